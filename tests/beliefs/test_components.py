"""Moments of components against the dense oracle, for every belief."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Coupled, MeanField, Point
from numpyro_gp.beliefs.components import component_covariance, component_marginals, whitened_blocks
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


@pytest.mark.parametrize("case", cases("additive"))
def test_mean_field_and_points_are_special_cases_of_full(case):
    basis, X, mean = additive_basis_of(case), jnp.asarray(case["Xs"]), jnp.asarray(case["m"])
    scale = jnp.linspace(0.3, 1.4, len(mean))
    tiny = 1e-8 * jnp.eye(len(mean))
    for special, full in [(MeanField(mean, scale), Coupled(mean, jnp.diag(scale))), (Point(mean), Coupled(mean, tiny))]:
        np.testing.assert_allclose(
            component_covariance(special, basis, X), component_covariance(full, basis, X), atol=1e-10
        )
        for one, other in zip(whitened_blocks(special, basis), whitened_blocks(full, basis), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


def test_values_that_have_no_components():
    case = cases("additive")[0]
    basis, X = additive_basis_of(case), jnp.asarray(case["Xs"])
    with pytest.raises(TypeError, match="the belief of an additive site must be a belief over its whitened"):
        component_marginals(object(), basis, X)
    with pytest.raises(TypeError, match="the belief of an additive site must be a belief over its whitened"):
        whitened_blocks(object(), basis)
    with pytest.raises(ValueError, match="the value of the site must be one vector of whitened values"):
        component_marginals(Point(jnp.zeros((2, basis.size))), basis, X)


def test_blocks_of_a_structured_belief():
    """Those of ``(I + W W^T)^-1``; of other beliefs they are in ``test_whitened.py``."""
    case = cases("additive")[0]
    basis, covariance = additive_basis_of(case), np.linalg.inv(np.eye(len(case["m"])) + case["W"] @ case["W"].T)
    for at, block in zip(basis.slices, whitened_blocks(belief_of(case, "structured"), basis), strict=True):
        np.testing.assert_allclose(block, covariance[at, at], atol=1e-9)
