"""Moments of components against the dense oracle, for every belief."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs.components import component_covariance, component_marginals
from tests.oracles.additive import POSTERIORS, additive_basis_of, belief_of
from tests.oracles.vectors import cases

TOLERANCE = 1e-9


@jax.jit
def moments(belief, basis, X):
    """Of the components, and of their sum."""
    return (component_marginals(belief, basis, X), component_covariance(belief, basis, X), belief.marginals(basis, X))


# Beliefs of two components with blocks and columns hold what the others hold.
FEW = [
    (case, tag) for at, case in enumerate(cases("additive")) for tag in POSTERIORS if at == 2 or tag == "blocklowrank"
]


@pytest.mark.parametrize(("case", "tag"), FEW)
def test_components_are_the_oracles(case, tag):
    """A wrong sign of E_c^T E_e, or a forgotten |A_c|^2, is off by more than 1e-2."""
    basis, belief, X = additive_basis_of(case), belief_of(case, tag), jnp.asarray(case["Xs"])
    (mean, variance), covariance, total = moments(belief, basis, X)
    wanted = case[f"{tag}/component_cov_same_point"]
    np.testing.assert_allclose(mean, case[f"{tag}/component_mean"], atol=TOLERANCE)
    np.testing.assert_allclose(covariance, wanted, atol=TOLERANCE)
    np.testing.assert_allclose(variance, np.diagonal(wanted, axis1=1, axis2=2).T, atol=TOLERANCE)
    off_diagonal = wanted * (1 - np.eye(len(wanted[0])))
    assert (np.abs(off_diagonal).max() < 1e-12) == (tag == "meanfield")
    np.testing.assert_allclose(covariance.sum((1, 2)), total.variance, atol=TOLERANCE)
    np.testing.assert_allclose(mean.sum(0), total.mean, atol=TOLERANCE)
