"""Additive beliefs against the dense oracle and against each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis, BlockDiagonal, BlockLowRank, Structured
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


@pytest.mark.parametrize("tag", ["structured", "blocklowrank"])
def test_no_gradient_leaves_W_at_zero(tag):
    """Everything depends on W W^T: at W = 0 the gradient is exactly zero, elsewhere it is not."""
    case = cases("additive")[0]
    basis, belief, X, y = additive_basis_of(case), belief_of(case, tag), jnp.asarray(case["X"]), jnp.asarray(case["y"])

    def bound(W):
        blocks = getattr(belief, "precision_trils", None)
        at = Structured(belief.mean, W) if blocks is None else BlockLowRank(belief.mean, blocks, W)
        return Gaussian(0.3).expected_log_prob(y, *at.marginals(basis, X)).sum() - at.kl(basis)

    slope = jax.jit(jax.grad(bound))
    assert not np.any(slope(jnp.zeros_like(belief.W)))
    assert np.all(np.abs(slope(0.1 * belief.W)) > 1e-6)


def test_the_structured_posterior_forms_no_square_of_all_values():
    """As the full one does, in the gradient of the bound as well."""
    case = cases("additive")[0]
    basis, X = additive_basis_of(case), jnp.asarray(case["Xs"])
    for tag, is_square in (("structured", False), ("full", True)):
        slope = jax.grad(lambda value: value.kl(basis) + value.marginals(basis, X).variance.sum())
        equations = jax.make_jaxpr(slope)(belief_of(case, tag)).jaxpr.eqns
        shapes = {variable.aval.shape for equation in equations for variable in equation.outvars}
        assert ((basis.size, basis.size) in shapes) == is_square


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Structured(jnp.zeros(3), jnp.ones((3, 0))), "W must be of rank at least 1"),
        (lambda: Structured(jnp.zeros((1, 3)), jnp.ones((3, 1))), r"W must be of shape \(1, 3, any\)"),
        (lambda: BlockDiagonal(jnp.zeros(3), (jnp.eye(2),)), "scale_trils must be of sizes that add up to 3"),
        (lambda: BlockDiagonal(jnp.zeros(2), {"a": -jnp.eye(2)}), r"scale_trils\['a'\] must be a factor with a pos"),
        (lambda: BlockDiagonal(jnp.zeros(2), {"a": jnp.ones(2)}), r"scale_trils\['a'\] must be of shape \(M, M\)"),
        (lambda: BlockLowRank(jnp.zeros(2), (jnp.eye(2),), jnp.ones((3, 1))), r"W must be of shape \(2, any\)"),
    ],
)
def test_bad_beliefs(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_outputs_are_refused():
    """With as many outputs as inducing inputs products of the wrong axes had shapes that fit."""
    belief = Structured(jnp.zeros((3, 3)), jnp.ones((3, 3, 1)))
    f = InducingPrior("f", Basis.build(RBF(1.0, 1.0), jnp.linspace(0.0, 1.0, 3)[:, None]), (3, 3))
    with pytest.raises(ValueError, match=r"mean of Structured must be of shape \(M,\) at a site without outputs"):
        f.log_prob(belief)
    with pytest.raises(ValueError, match="mean of Structured must be"):
        belief.marginals(f.basis, jnp.zeros((2, 1)))
