"""What beliefs stand on, a point process on it, and how a belief looks to NumPyro."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import AbstractBelief, Coupled, Point
from numpyro_gp.beliefs.basis import Basis, batch_of_bases
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.kernels import RBF, Matern32, stack
from tests.oracles.build import basis_of
from tests.oracles.vectors import cases

Z = jnp.array([[0.0], [0.4], [1.1]])


def bound_of(theta, X, y, Z, noise, jitter, plain=False):
    """The tight collapsed bound of precise data as a function of ``(log variance, log lengthscale)``."""
    basis = Basis.build(RBF(*jnp.exp(theta)), Z, jitter)
    data = GaussianData.build(basis, X, jnp.asarray(noise**2, X.dtype))
    return (data._replace(turned=None) if plain else data).tight_bound(y / data.scale)


def precise_data(noise):
    rng, X = np.random.default_rng(0), np.linspace(-1.0, 1.0, 500)
    y = np.sin(3 * X) + noise * rng.normal(size=500)
    return [np.asarray(own, np.float32) for own in (X[:, None], y, np.linspace(-1.0, 1.0, 50)[:, None])]


@pytest.mark.long
@pytest.mark.parametrize("noise", [1 / 30, 1 / 100])
def test_slopes_of_the_bound_of_precise_data_in_single_precision(noise):
    """By the derivative of the features themselves those in the variance are off by hundreds and thousands."""
    data, theta = precise_data(noise), np.asarray([0.3, np.log(0.5)], np.float32)
    slopes = jax.jit(jax.grad(bound_of), static_argnums=(4, 5))
    found, wanted = (slopes(*(jnp.asarray(x, kind) for x in (theta, *data)), noise, 1e-5) for kind in "fd")
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, atol=8.0)


@pytest.mark.long
def test_derivatives_of_the_bound_are_those_of_its_features():
    """The first, in the points too, and the second, in which both must turn together."""
    X, y, Z = (jnp.asarray(own, float) for own in precise_data(0.3))
    theta, of = jnp.asarray([0.3, -0.7]), lambda plain: lambda theta, Z: bound_of(theta, X, y, Z, 0.3, 1e-3, plain)
    for found, wanted in zip(*(jax.grad(of(plain), (0, 1))(theta, Z[::8]) for plain in (False, True)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    found, wanted = (jax.hessian(of(plain))(theta, Z[::8]) for plain in (False, True))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_kernels_broadcast_against_inducing_inputs():
    """Two kernels and three sets of inputs: (2, 1) and (3,) make (2, 3)."""
    own, Z = [RBF(1.3, 0.7), RBF(0.6, 0.2)], jnp.array([[0.0], [0.4], [1.1]])
    kernels = jax.tree.map(lambda leaf: leaf[:, None], stack(own))
    sets = jnp.stack([Z, Z + 0.3, Z - 0.2])
    batch = batch_of_bases(kernels, sets)
    np.testing.assert_allclose(batch.factor[1, 2], Basis.build(own[1], sets[2]).factor, rtol=1e-12)


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


def test_a_belief_looks_like_the_array_of_its_whitened_mean():
    belief = Coupled(jnp.arange(3.0), jnp.eye(3))
    assert (belief.shape, belief.ndim, belief.size, belief.dtype) == ((3,), 1, 3, jnp.float64)
    assert jnp.shape(belief) == (3,)
    np.testing.assert_array_equal(belief.__jax_array__(), np.arange(3.0))
    assert jax.tree.map(jnp.shape, belief).scale_tril == (3, 3)
    without = type("Own", (AbstractBelief,), dict.fromkeys(["marginals", "joint", "kl"], lambda *_: None))()
    with pytest.raises(TypeError, match="field mean or a property whitened_mean, but got an Own with neither"):
        _ = without.shape
