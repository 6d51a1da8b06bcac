"""Coverage of component bands over simulated data sets: structured is calibrated, mean field is too narrow.

Truths are drawn from the prior, so the exact posterior's 90 % bands cover in 90 % of cases on average. The shares of
200 independent data sets have a standard error below 0.012; a correct program fails the test of 4 standard errors with
probability below 1e-4. Bands that ignore the data (the prior's) also cover 90 %: they fail the test of width.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import BlockDiagonal, additive_optimum
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.components import component_marginals
from numpyro_gp.guides.natural import natural_to_mean
from numpyro_gp.kernels import RBF, Uniform, ZeroMean

DATA_SETS, ROWS, TESTS, NOISE = 200, 40, 15, 0.2
Z90 = 1.6448536269514722


def kernels():
    one = ZeroMean(RBF(1.0, 0.3), Uniform(0.0, 1.0))
    return {name: one.on(d) for d, name in enumerate("abc")}


def simulate(rng):
    """Three effects of inputs that go together (correlations near 0.9), so that effects compete for the data."""
    common = rng.uniform(size=(ROWS, 1))
    X = np.clip(common + 0.12 * rng.normal(size=(ROWS, 3)), 0, 1)
    grid = np.linspace(0.05, 0.95, TESTS)[:, None] * np.ones((1, 3))
    at, values = jnp.asarray(np.concatenate([X, grid])), []
    for kernel in kernels().values():
        prior = np.asarray(kernel.matrix(at)) + 1e-10 * np.eye(len(at))
        values.append(np.linalg.cholesky(prior) @ rng.normal(size=len(at)))
    values = np.stack(values)
    y = values[:, :ROWS].sum(0) + np.sqrt(NOISE) * rng.normal(size=ROWS)
    return X, grid, y, values[:, ROWS:]


@jax.jit
def bands(X, grid, y):
    """Mean and standard deviations of the components: structured optimum, mean-field optimum, prior."""
    points = jnp.linspace(0.0, 1.0, 12)[:, None] * jnp.ones((1, 3))
    inducing = dict.fromkeys("abc", points)
    structured = additive_optimum(kernels(), inducing, X, y, NOISE).belief
    basis = AdditiveBasis.build(kernels(), inducing)
    # The best mean-field belief has the mean of the best belief, and the blocks of its precision.
    precisions = [jnp.eye(12) + A @ A.T / NOISE for A in basis.blocks(X)]
    factors = tuple(natural_to_mean(jnp.zeros(12), precision)[1] for precision in precisions)
    mean_field = BlockDiagonal(structured.mean, factors)
    found = [component_marginals(belief, basis, grid) for belief in (structured, mean_field)]
    return found[0].mean, jnp.sqrt(found[0].variance), jnp.sqrt(found[1].variance), jnp.sqrt(basis.diagonals(grid))


@pytest.mark.statistical
def test_coverage_of_component_bands():
    rng = np.random.default_rng(5)
    shares = {"structured": [], "mean field": []}
    widths = {"structured": [], "mean field": [], "prior": []}
    for _ in range(DATA_SETS):
        X, grid, y, truth = simulate(rng)
        mean, structured, mean_field, prior = (np.asarray(part) for part in bands(X, grid, y))
        for name, scale in (("structured", structured), ("mean field", mean_field)):
            shares[name].append(np.mean(np.abs(truth - mean) < Z90 * scale))
            widths[name].append(scale.mean())
        widths["prior"].append(prior.mean())
    coverage = {name: np.mean(values) for name, values in shares.items()}
    error = {name: np.std(values) / np.sqrt(DATA_SETS) for name, values in shares.items()}
    print("coverage", coverage, "standard errors", error, "widths", {k: np.mean(v) for k, v in widths.items()})
    assert error["structured"] < 0.012
    assert abs(coverage["structured"] - 0.9) < 4 * error["structured"]
    assert coverage["mean field"] < 0.9 - 8 * error["mean field"]
    assert np.mean(widths["structured"]) < 0.75 * np.mean(widths["prior"])
