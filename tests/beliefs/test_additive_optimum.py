"""The optimum for Gaussian data: the oracle's, in both forms; the bound is below the evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import additive_optimum
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.kernels import RBF
from tests.oracles.additive import additive_basis_of, additive_of
from tests.oracles.build import answers
from tests.oracles.vectors import cases


def optimum_of(case, form, noise=None):
    kernels, inducing = additive_of(case)
    noise = case["noise"] if noise is None else noise
    return additive_optimum(kernels, inducing, case["X"], case["y"], noise, form=form, jitter=0.0)


@pytest.mark.long
@pytest.mark.parametrize("form", ["structured", "full"])
@pytest.mark.parametrize("case", cases("additive"))
def test_the_optimum_is_the_oracles(case, form):
    """Rank N reaches the exact optimum; W = A (without 1/sigma) is off by more than 0.1."""
    belief, bound = jax.jit(lambda: optimum_of(case, form))()
    _, joint, divergence = answers(belief, additive_basis_of(case), jnp.asarray(case["Xs"]))
    np.testing.assert_allclose(belief.mean, case["optimal/m"], atol=1e-8)
    np.testing.assert_allclose(belief.whitened_scale**2, np.diag(case["optimal/S"]), atol=1e-8)
    np.testing.assert_allclose(bound, case["optimal/elbo_gaussian"], atol=1e-7)
    np.testing.assert_allclose(divergence, case["optimal/kl"], atol=1e-7)
    np.testing.assert_allclose(joint.covariance, case["optimal/cov"], atol=1e-8)
    assert bound < case["exact_lml"]


@pytest.mark.parametrize("points", [20, 90])
def test_precise_data_in_single_precision_have_the_bound_of_their_features(points):
    """Noise of 1/300 of the function, fewer points than rows and more; by a factor of all rows it was 9 nats off."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (150, 2)).astype(np.float32)
    y = (np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.003 * rng.normal(size=150)).astype(np.float32)
    with jax.enable_x64(False):
        kernels = {name: RBF(1.0, 0.3).on(column) for column, name in enumerate("ab")}
        Z = dict.fromkeys("ab", jnp.tile(jnp.linspace(0, 1, points)[:, None], (1, 2)))
        data = GaussianData.build(AdditiveBasis.build(kernels, Z, 1e-4), jnp.asarray(X), jnp.asarray(0.003**2))
        found = additive_optimum(kernels, Z, X, y, 0.003**2, jitter=1e-4)
    B, r, scale = np.asarray(data.features, float), y.astype(float) / 0.003, float(data.scale[0])
    S, left = np.eye(150) + B.T @ B, np.asarray(data.unexplained, float).sum()
    constant = 150 * (np.log(scale) + 0.5 * np.log(2 * np.pi))
    wanted = -0.5 * np.linalg.slogdet(S)[1] - constant - 0.5 * (r @ np.linalg.solve(S, r) + left)
    np.testing.assert_allclose(found.bound, wanted, atol=0.5)
    np.testing.assert_allclose(B.T @ np.asarray(found.belief.mean, float), r - np.linalg.solve(S, r), atol=0.3)
