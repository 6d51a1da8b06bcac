"""What beliefs stand on: one factorisation for each kernel and set of inducing inputs, placed in plates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs.basis import Basis, batch_of_bases
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.kernels import RBF, stack

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
