"""Forms of the marginals that cost less, against the plain form: values, gradients, second derivatives, float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis, Coupled
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.coupled import plain_marginals, whitened_marginals
from numpyro_gp.kernels import Matern32

LINE = np.linspace(-1.0, 1.0, 5)[:, None] * np.ones((1, 2)) + 0.1 * np.random.default_rng(3).normal(size=(5, 2))


def values_of(batch=(), dtype=float, size=5):
    rng = np.random.default_rng(1)
    mean = rng.normal(size=(*batch, size))
    factor = np.tril(0.3 * rng.normal(size=(*batch, size, size)), -1) + 0.7 * np.eye(size)
    return jnp.asarray(mean, dtype), jnp.asarray(factor, dtype)


def plain(basis, X, mean, factor):
    return plain_marginals(basis.features(X), basis.diagonal(X), mean, factor)


def bound(form, jitter, arguments):
    """A function of everything that a step differentiates, with another weight for each row, mean and variance."""
    lengthscale, Z, X, mean, factor = arguments
    basis = Basis.build(Matern32(1.3, lengthscale), Z, jitter)
    loc, variance = form(basis, X, mean, factor)
    weights = jnp.cos(jnp.arange(1.0, X.shape[0] + 1))
    return jnp.sum(jnp.tanh(loc) @ weights) + jnp.sum(jnp.log(1.0 + variance) @ weights)


@pytest.mark.long
@pytest.mark.parametrize(("lengthscale", "jitter"), [(0.7, 1e-6), (40.0, 1e-6)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_values_and_gradients_are_those_of_the_plain_form(batch, lengthscale, jitter, rng):
    """To 1e-9 of the largest, also where K is singular but for the jitter; without P in Y they are off by 1e-1."""
    X = jnp.asarray(rng.normal(size=(7, 2)))
    arguments = (jnp.asarray(lengthscale), jnp.asarray(LINE), X, *values_of(batch))
    both = [
        jax.jit(jax.value_and_grad(lambda a, f=f: bound(f, jitter, a)))(arguments) for f in (whitened_marginals, plain)
    ]
    for found, wanted in zip(*map(jax.tree.leaves, both), strict=True):
        assert np.abs(wanted).max() > 1e-6
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * max(1, np.abs(wanted).max()))


@pytest.mark.long
def test_forward_mode_and_second_derivatives(rng):
    """Laplace's approximation and Newton steps differentiate forward over backward."""
    rest = (jnp.asarray(LINE), jnp.asarray(rng.normal(size=(3, 2))))
    mean, factor = values_of()

    def along(form, x):
        return bound(form, 1e-6, (x[0], *rest, mean + x[1], factor * jnp.exp(x[2])))

    x = jnp.array([0.7, 0.1, -0.2])
    for derivative in (jax.jacfwd, jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))):
        found, wanted = (jax.jit(derivative(lambda x, f=f: along(f, x)))(x) for f in (whitened_marginals, plain))
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_a_basis_that_knows_only_its_features_is_enough(rng):
    basis = Basis.build(Matern32(1.3, 0.7), jnp.asarray(LINE))

    class Own(AbstractBasis):
        size, dtype = basis.size, basis.dtype
        features, diagonal, matrix, white = basis.features, basis.diagonal, basis.matrix, basis.white

    X = jnp.asarray(rng.normal(size=(50, 2)))
    belief = Coupled(*values_of())
    for one, other in zip(belief.marginals(Own(), X), belief.marginals(basis, X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_compiled_call_with_outputs_is_mapped_over_inputs():
    """Its derivative rule must lay out the batch as the value does: else JAX reads (2, 4, 12) as (4, 2, 12)."""
    rng = np.random.default_rng(0)
    Z, inputs = jnp.linspace(0.0, 1.0, 5)[:, None], jnp.asarray(rng.normal(size=(4, 12, 1)))
    mean, weights = jnp.asarray(rng.normal(size=(2, 5))), jnp.asarray(rng.normal(size=(4, 2, 12)))
    factor = jnp.broadcast_to(0.5 * jnp.eye(5), (2, 5, 5))

    @jax.jit
    def loc(X):
        return whitened_marginals(Basis.build(Matern32(1.0, 0.5), Z, 1e-6), X, mean, factor)[0] * jnp.ones((2, 12))

    mapped = jax.grad(lambda X: jnp.sum(weights * jax.vmap(loc)(X)))(inputs)
    one_by_one = jax.grad(lambda X: sum(jnp.sum(w * loc(x)) for w, x in zip(weights, X, strict=True)))(inputs)
    np.testing.assert_allclose(mapped, one_by_one, rtol=1e-9)
