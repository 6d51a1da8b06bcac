"""Forms of the marginals that cost less, against the plain form: values, gradients, second derivatives, float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis, Coupled
from numpyro_gp.beliefs import moments as module
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.moments import plain_marginals, signed_rows, whitened_marginals
from numpyro_gp.kernels import RBF, Matern32

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


@pytest.fixture(scope="module")
def many():
    """As few inducing points and rows as the eigendecomposition is used for, smooth enough to need the jitter."""
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (module.SMALLEST, 2)), rng.uniform(-1, 1, (module.ROWS_TO_REPAY * module.SMALLEST, 2))


def at_rows(form, many, dtype, jitter, batch=()):
    Z, X = (jnp.asarray(part, dtype) for part in many)
    basis = Basis.build(RBF(jnp.asarray(1.0, dtype), jnp.asarray(1.0, dtype)), Z, jitter)
    return jax.jit(lambda: form(basis, X, *values_of(batch, dtype, module.SMALLEST)))()


@pytest.mark.parametrize("jitter", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_one_product_over_many_rows(many, jitter, batch, monkeypatch):
    """K has condition 1e5 to 1e12; ``W^T (S - I) W`` would be off by 1e-4 at the last."""
    used = []
    monkeypatch.setattr(module, "signed_rows", lambda *a: used.append(1) or signed_rows(*a))
    found, wanted = (at_rows(form, many, float, jitter, batch) for form in (whitened_marginals, plain))
    assert used
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())


@pytest.mark.long
def test_one_product_loses_no_more_of_float32_than_two(many):
    exact = at_rows(plain, many, float, 1e-4)
    for number in range(2):
        fast, slow = (
            np.abs(np.asarray(at_rows(form, many, np.float32, 1e-4)[number], float) - exact[number]).max()
            for form in (whitened_marginals, plain)
        )
        assert fast < 2 * slow + 1e-6


def test_many_rows_are_differentiated_as_few_are(many, rng):
    """The eigenvectors of ``S - I = 0`` have no derivative, and none is asked of them."""
    Z, X = (jnp.asarray(part) for part in many)
    eye = jnp.eye(module.SMALLEST)

    def total(form, lengthscale, factor):
        mean, variance = form(Basis.build(RBF(1.0, lengthscale), Z, 1e-3), X, eye[0], factor)
        return jnp.sum(mean) + jnp.sum(jnp.log(variance + 0.1))

    slope = lambda f: jax.jit(jax.grad(lambda a: total(f, *a)))  # noqa: E731
    found, wanted = (slope(form)((jnp.array(0.7), eye)) for form in (whitened_marginals, plain))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())


def test_a_basis_that_knows_only_its_features_is_enough(rng):
    basis = Basis.build(Matern32(1.3, 0.7), jnp.asarray(LINE))

    class Own(AbstractBasis):
        size, dtype = basis.size, basis.dtype
        features, diagonal, matrix, white = basis.features, basis.diagonal, basis.matrix, basis.white

    X = jnp.asarray(rng.normal(size=(50, 2)))
    belief = Coupled(*values_of())
    for one, other in zip(belief.marginals(Own(), X), belief.marginals(basis, X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
