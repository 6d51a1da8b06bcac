"""The table against dense formulas: Gaussian noise, fixed hyper-parameters, inducing inputs at all rows."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.beliefs import additive_optimum
from numpyro_gp.gam.answers.draws import sample_posterior
from numpyro_gp.gam.answers.effects import effects_of, moments_at
from numpyro_gp.gam.answers.summary import report_on_rows
from numpyro_gp.gam.model.features import TermFeatures
from tests.gam.known import kernel_of_term

N, NOISE = 12, 0.4
RNG = np.random.default_rng(0)
DATA = {
    "x": RNG.lognormal(size=N),
    "z": RNG.normal(size=N),
    "g": np.array(list("abcabcabcaab")),
    "y": RNG.normal(size=N),
}
FIXED = {"f_scale": jnp.array([1.2, 0.7, 0.9]), "f_lengthscale": jnp.array([0.8]), "noise": jnp.asarray(NOISE)}


@functools.cache
def fitted():
    """The model and its exact posterior, and dense ``K_c`` of each component with the inverse of their noisy sum."""
    model = dataclasses.replace(ngp.gam.model("y ~ s(x) + linear(z) + re(g)", DATA), jitter=0.0)
    X, y = model.arguments

    @jax.jit
    def exact():
        parts = model.layout.read_terms
        lengths = [[FIXED["f_lengthscale"][0]], [], []]
        kernels = {p.name: kernel_of_term(model, p, s**2, l) for p, s, l in zip(parts, FIXED["f_scale"], lengths)}
        kernels["constant"] = ngp.kernels.Constant((3 * model.start.size) ** 2)
        inducing = {name: jnp.asarray(points) for name, points in model.kernel_data.inducing.items()}
        inducing["constant"] = jnp.zeros((1, X.shape[1]))
        left = y - model.start.constant
        best = additive_optimum(kernels, inducing, X, left, NOISE**2, form="full", jitter=0.0).belief
        return best, {name: kernel.matrix(X) for name, kernel in kernels.items()}

    best, dense = exact()

    def guide(*args, **kwargs):
        for name, value in FIXED.items():
            numpyro.sample(name, dist.Delta(value, event_dim=value.ndim))
        numpyro.sample("f", ngp.Belief(best))

    gram = {name: np.asarray(dense[name]) for name in (*(part.name for part in model.layout.read_terms), "constant")}
    inverse = np.linalg.inv(sum(gram.values()) + NOISE**2 * np.eye(N))
    return model, ngp.Posterior.from_svi(model, guide, {}), gram, inverse


@functools.cache
def numbers():
    """Its one draw."""
    model, posterior, _, _ = fitted()
    return sample_posterior(TermFeatures(model), None, lambda: posterior, jax.random.key(0), 1)


@pytest.mark.long
def test_shares_edf_and_correlations_equal_dense_formulas():
    model, _, gram, inverse = fitted()
    found = report_on_rows(numbers(), 0.9, np.random.default_rng(0))
    rows, left, centre = found.rows, DATA["y"] - DATA["y"].mean(), np.eye(N) - 1 / N
    names = [part.name for part in model.layout.read_terms]
    variance = {}
    for name in names:
        mean, covariance = gram[name] @ inverse @ left, gram[name] - gram[name] @ inverse @ gram[name]
        variance[name] = (np.sum((centre @ mean) ** 2) + np.trace(centre @ covariance)) / N
    joint = np.array([[np.mean(np.diag((a is b) * a - a @ inverse @ b)) for b in gram.values()] for a in gram.values()])
    correlation = joint / np.sqrt(np.diag(joint)[:, None] * np.diag(joint)[None, :])
    for at, row in enumerate(rows):
        np.testing.assert_allclose(row.share, variance[row.term] / sum(variance.values()), rtol=1e-8)
        np.testing.assert_allclose(row.edf, np.trace(gram[row.term] @ inverse), rtol=1e-8)
        others = np.where(np.arange(3) == at, 0, correlation[at, :3])
        np.testing.assert_allclose(row.correlation, others[np.abs(others).argmax()], rtol=1e-7)
        assert row.partner == list(gram)[np.abs(others).argmax()]
        assert row.low < row.share < row.high
    K = gram["constant"]
    variance = (K - K @ inverse @ K)[0, 0]
    wanted = DATA["y"].mean() + (K @ inverse @ left)[0], np.sqrt(variance)
    np.testing.assert_allclose(found.constant, wanted, rtol=1e-6)


@pytest.mark.long
def test_moments_and_effects_equal_dense_formulas():
    """At the rows of the fit and on grids, whose values inducing inputs at all rows determine only together with them."""
    model, _, gram, inverse = fitted()
    draws = numbers()
    found = moments_at(draws, model.rows.X)
    left = DATA["y"] - DATA["y"].mean()
    for at, (name, K) in enumerate(gram.items()):
        assert found.names[at] == name
        np.testing.assert_allclose(found.mean[:, at], K @ inverse @ left, atol=1e-8)
        np.testing.assert_allclose(found.scale[:, at] ** 2, np.diag(K - K @ inverse @ K), atol=1e-8)
    effects, constant = effects_of(draws, 30, np.random.default_rng(0))
    np.testing.assert_allclose(constant, DATA["y"].mean() + (gram["constant"] @ inverse @ left)[0], atol=1e-8)
    K = gram["re(g)"]
    first = [int(np.flatnonzero(DATA["g"] == level)[0]) for level in "abc"]
    np.testing.assert_allclose(effects["re(g)"].mean, (K @ inverse @ left)[first], atol=1e-8)
    assert effects["s(x)"].mean.shape == (30,)
    np.testing.assert_allclose(effects["s(x)"].axes[0][[0, -1]], [DATA["x"].min(), DATA["x"].max()], rtol=1e-12)
    line = effects["linear(z)"]
    # A line: its band for all values at once is the band for each, but on both sides of one point.
    np.testing.assert_allclose(line.half_width(0.9, simultaneous=True), line.half_width(0.9), rtol=0.1)
    wide = effects["s(x)"]
    assert 1.2 * wide.half_width(0.9) < wide.half_width(0.9, simultaneous=True) < 2.5 * wide.half_width(0.9)
