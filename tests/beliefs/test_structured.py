"""Additive beliefs against the dense oracle and against each other."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis, Structured
from numpyro_gp.kernels import RBF
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.sites import InducingPrior
from tests.oracles.additive import POSTERIORS, additive_basis_of, belief_of
from tests.oracles.build import answers_and_fitted
from tests.oracles.vectors import cases

TOLERANCE = 1e-9  # a dropped cross term E_c^T E_e, or a missing 1/2 in the KL, is off by more than 1e-2


@pytest.mark.long
@pytest.mark.parametrize("tag", POSTERIORS)
@pytest.mark.parametrize("case", cases("additive"))
def test_predictor_kl_and_bound(case, tag):
    (mean, variance), joint, divergence, fitted = answers_and_fitted(
        belief_of(case, tag), additive_basis_of(case), case
    )
    np.testing.assert_allclose(mean, case[f"{tag}/mean"], atol=TOLERANCE)
    np.testing.assert_allclose(variance, np.diag(case[f"{tag}/cov"]), atol=TOLERANCE)
    np.testing.assert_allclose(joint[0], case[f"{tag}/mean"], atol=TOLERANCE)
    np.testing.assert_allclose(joint[1], case[f"{tag}/cov"], atol=TOLERANCE)
    np.testing.assert_allclose(divergence, case[f"{tag}/kl"], atol=TOLERANCE)
    expected = Gaussian(np.sqrt(case["noise"])).expected_log_prob(jnp.asarray(case["y"]), *fitted).sum()
    np.testing.assert_allclose(expected - divergence, case[f"{tag}/elbo_gaussian"], rtol=1e-9)
    assert case[f"{tag}/elbo_gaussian"] < case["exact_lml"]


def test_outputs_are_refused():
    """With as many outputs as inducing inputs products of the wrong axes had shapes that fit."""
    belief = Structured(jnp.zeros((3, 3)), jnp.ones((3, 3, 1)))
    f = InducingPrior("f", Basis.build(RBF(1.0, 1.0), jnp.linspace(0.0, 1.0, 3)[:, None]), (3, 3))
    with pytest.raises(ValueError, match=r"mean of Structured must be of shape \(M,\) at a site without outputs"):
        f.log_prob(belief)
    with pytest.raises(ValueError, match="mean of Structured must be"):
        belief.marginals(f.basis, jnp.zeros((2, 1)))
