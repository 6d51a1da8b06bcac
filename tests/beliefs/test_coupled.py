"""Coupled and mean-field beliefs against the dense oracle."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Coupled, MeanField
from tests.oracles.build import basis_of
from tests.oracles.vectors import cases

TOLERANCE = 1e-9  # a missing 1/2 in the KL, or C C^T for C^T C, is off by more than 1e-2


def belief_of(case):
    return Coupled(jnp.asarray(case["m"]), jnp.asarray(case["S_chol"]))


@pytest.mark.parametrize("case", cases("svgp"))
def test_marginals_joint_and_kl(case):
    basis, belief, X = basis_of(case), belief_of(case), jnp.asarray(case["Xs"])
    mean, variance = belief.marginals(basis, X)
    np.testing.assert_allclose(mean, case["mean"], atol=TOLERANCE)
    np.testing.assert_allclose(variance, case["var"], atol=TOLERANCE)
    joint = belief.joint(basis, X)
    np.testing.assert_allclose(joint.mean, case["mean"], atol=TOLERANCE)
    np.testing.assert_allclose(joint.covariance, case["cov"], atol=TOLERANCE)
    np.testing.assert_allclose(
        belief.whitened_moments()[1] ** 2, np.diag(case["S_chol"] @ case["S_chol"].T), rtol=1e-12
    )
    np.testing.assert_allclose(belief.kl(basis), case["kl"], atol=TOLERANCE)
    assert abs(float(belief.kl(basis)) - 0.5 * case["kl"]) > 100 * TOLERANCE


def test_mean_field_is_coupled_with_a_diagonal_factor(rng):
    case = cases("svgp")[1]
    basis, X = basis_of(case), jnp.asarray(case["Xs"])
    for shape in ((5,), (2, 5)):
        mean, scale = jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.uniform(0.2, 1.5, shape))
        diagonal = MeanField(mean, scale)
        full = Coupled(mean, jnp.zeros((*shape, 5)) + scale[..., None] * jnp.eye(5)[(None,) * (len(shape) - 1)])
        np.testing.assert_allclose(diagonal.kl(basis), full.kl(basis), rtol=1e-12)
        for got, wanted in zip(diagonal.marginals(basis, X), full.marginals(basis, X), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)
        for got, wanted in zip(diagonal.joint(basis, X), full.joint(basis, X), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)
