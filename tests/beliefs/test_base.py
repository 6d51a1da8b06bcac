"""The basis, the point process, and how a belief looks to NumPyro."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import AbstractBelief, Basis, Coupled, Point
from numpyro_gp.beliefs.base import above_rounding
from numpyro_gp.kernels import RBF, Matern32
from tests.oracles.build import basis_of
from tests.oracles.vectors import cases


@pytest.mark.parametrize("case", cases("sparse_mcmc"))
def test_point_is_the_conditional_given_whitened_values(case):
    """Tolerance 1e-9: a factor L transposed, or a missing whitening, is off by 0.1 and more."""
    basis, X = basis_of(case), jnp.asarray(case["Xs"])
    point = Point(jnp.asarray(case["v"]))
    mean, variance = point.marginals(basis, X)
    np.testing.assert_allclose(mean, case["mean"], atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(case["cov"]), atol=1e-9)
    np.testing.assert_allclose(point.joint(basis, X).covariance, case["cov"], atol=1e-9)


@pytest.mark.parametrize("jitter", [0.0, 1e-2])
def test_features_at_the_inducing_inputs_are_read_off_the_factor_where_that_is_asked_for(rng, jitter):
    """With a jitter of 1e-2, L^T alone would be off by 1e-3 and more."""
    Z = jnp.asarray(rng.normal(size=(6, 2)))
    basis = Basis.build(Matern32(1.3, 0.7), Z, jitter)
    asked = dataclasses.replace(basis, kernel=None, at_inducing=True)  # a basis with no kernel left to call
    np.testing.assert_allclose(asked.features(asked.inducing), basis.features(Z), atol=1e-12)


def test_jitter_is_relative_and_positive_keeps_nan_and_lifts_rounding():
    basis = Basis.build(RBF(4.0, 1.0), jnp.zeros((1, 1)), 1e-2)
    np.testing.assert_allclose((basis.jitter, basis.factor[0, 0] ** 2), (0.04, 4.04))
    lifted = above_rounding(jnp.array([-1e-18, jnp.nan, 0.5]), jnp.ones(3))
    assert lifted[0] > 0
    assert jnp.isnan(lifted[1])
    assert lifted[2] == 0.5


def test_a_belief_looks_like_the_array_of_its_whitened_mean():
    belief = Coupled(jnp.arange(3.0), jnp.eye(3))
    assert (belief.shape, belief.ndim, belief.size, belief.dtype) == ((3,), 1, 3, jnp.float64)
    assert jnp.shape(belief) == (3,)
    np.testing.assert_array_equal(belief.__jax_array__(), np.arange(3.0))
    assert jax.tree.map(jnp.shape, belief).scale_tril == (3, 3)
    without = type("Own", (AbstractBelief,), dict.fromkeys(["marginals", "joint", "kl"], lambda *_: None))()
    with pytest.raises(TypeError, match="field mean or a property whitened_mean, but got an Own with neither"):
        _ = without.shape
