"""Factorisations against NumPy and SciPy, and their derivatives against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from numpyro_gp.linalg import (
    cholesky,
    default_jitter,
    factorise,
    gaussian_log_density,
    half_log_det,
    inverse_factor,
    jittered,
    lower_product,
    outer_square,
    small_cholesky,
    solve_lower,
)


def positive_definite(rng, size, batch=()):
    root = rng.normal(size=(*batch, size, size))
    return root @ np.swapaxes(root, -1, -2) + size * np.eye(size)


def test_default_jitter_by_precision():
    assert default_jitter(jnp.float64) == 1e-6
    assert default_jitter(jnp.float32) == 1e-4


def test_jitter_is_relative_to_the_mean_diagonal(rng):
    matrix = positive_definite(rng, 4)
    shifted, amount = jittered(jnp.asarray(matrix), 0.5)
    np.testing.assert_allclose(amount, 0.5 * np.trace(matrix) / 4, rtol=1e-14)
    np.testing.assert_allclose(shifted, matrix + 0.5 * np.trace(matrix) / 4 * np.eye(4), rtol=1e-14)
    zero, _ = jittered(jnp.asarray(matrix), 0.0)
    np.testing.assert_array_equal(zero, matrix)


def test_inverse_factor(rng):
    root = rng.normal(size=(4, 6))
    precision = root @ root.T
    factor = inverse_factor(jnp.asarray(precision))
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(precision), rtol=1e-9)
    np.testing.assert_array_equal(np.triu(factor, 1), 0)


def test_factor_and_inverse(rng):
    matrix = positive_definite(rng, 7, (3,))
    factor, inverse = factorise(jnp.asarray(matrix))
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(inverse @ factor, np.broadcast_to(np.eye(7), (3, 7, 7)), atol=1e-12)


def test_features_by_the_inverse_factor_are_as_accurate_as_a_solve():
    """The product replaces the solve (mathematics.md section 12), so its error is held: a smooth kernel, jitter 1e-6."""
    points = np.linspace(0, 1, 200)
    gram = np.exp(-0.5 * (points[:, None] - points) ** 2 / 0.3**2)
    shifted, _ = jittered(jnp.asarray(gram), None)
    factor, inverse = factorise(shifted)
    right = jnp.asarray(np.exp(-0.5 * (points[:, None] - np.linspace(0, 1, 50)) ** 2 / 0.3**2))
    np.testing.assert_allclose(inverse @ right, solve_lower(factor, right), atol=1e-9)


def test_a_matrix_that_is_not_positive_definite_gives_nan_and_no_repair():
    assert jnp.isnan(cholesky(jnp.array([[1.0, 2.0], [2.0, 1.0]]))).any()
    assert jnp.isnan(factorise(jnp.array([[1.0, 2.0], [2.0, 1.0]]))[1]).any()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_derivative_of_the_factorisation(rng, mode):
    base, direction = positive_definite(rng, 5), rng.normal(size=(5, 5))
    direction = direction + direction.T
    left, right = rng.normal(size=(5, 5)), rng.normal(size=(5, 5))

    def loss(t):
        factor, inverse = factorise(jnp.asarray(base) + t * direction)
        return jnp.sum(left * factor) + jnp.sum(right * inverse)

    def dense(t):
        factor = np.linalg.cholesky(base + t * direction)
        return np.sum(left * factor) + np.sum(right * np.linalg.inv(factor))

    step = 1e-5
    expected = (dense(step) - dense(-step)) / (2 * step)
    slope = jax.grad(loss)(0.0) if mode == "reverse" else jax.jacfwd(loss)(0.0)
    np.testing.assert_allclose(slope, expected, rtol=1e-7)
    curvature = (dense(1e-3) - 2 * dense(0.0) + dense(-1e-3)) / 1e-6
    np.testing.assert_allclose(jax.hessian(loss)(0.0), curvature, rtol=1e-4)


def test_gradient_of_the_factorisation_is_symmetric(rng):
    gradient = jax.grad(lambda m: jnp.sum(factorise(m)[0]) + jnp.sum(factorise(m)[1]))(
        jnp.asarray(positive_definite(rng, 4))
    )
    np.testing.assert_allclose(gradient, gradient.T, atol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 2, 5, 16, 17])
def test_small_factors(rng, size):
    matrix = positive_definite(rng, size, (3, 2))
    np.testing.assert_allclose(small_cholesky(jnp.asarray(matrix)), np.linalg.cholesky(matrix), rtol=1e-11, atol=1e-11)


def test_small_factors_under_vmap_and_grad(rng):
    matrix = jnp.asarray(positive_definite(rng, 3, (4,)))
    np.testing.assert_allclose(jax.vmap(small_cholesky)(matrix), small_cholesky(matrix), rtol=1e-14)
    gradient = jax.grad(lambda m: jnp.sum(small_cholesky(m)))(matrix)
    assert jnp.isfinite(gradient).all()


def test_half_log_det(rng):
    matrix = positive_definite(rng, 6)
    np.testing.assert_allclose(
        half_log_det(cholesky(jnp.asarray(matrix))), 0.5 * np.linalg.slogdet(matrix)[1], rtol=1e-13
    )


def test_gaussian_log_density_and_its_gradient(rng):
    covariance, residual = positive_definite(rng, 6), rng.normal(size=6)
    expected = stats.multivariate_normal(np.zeros(6), covariance).logpdf(residual)
    np.testing.assert_allclose(
        gaussian_log_density(jnp.asarray(residual), jnp.asarray(covariance)), expected, rtol=1e-12
    )
    direction = rng.normal(size=(6, 6))
    direction = direction + direction.T

    def along(t):
        return gaussian_log_density(residual + t * jnp.arange(6.0), covariance + t * direction)

    def dense(t):
        return stats.multivariate_normal(np.zeros(6), covariance + t * direction).logpdf(residual + t * np.arange(6.0))

    np.testing.assert_allclose(jax.grad(along)(0.0), (dense(1e-5) - dense(-1e-5)) / 2e-5, rtol=1e-7)
    np.testing.assert_allclose(jax.hessian(along)(0.0), (dense(1e-3) - 2 * dense(0.0) + dense(-1e-3)) / 1e-6, rtol=1e-4)


def test_a_product_with_a_factor_and_its_derivatives(rng):
    """``L v`` with a derivative in ``K`` of its own, against JAX's of the factorisation; a running sum that holds the
    whole of the last term is off by 1e-2."""
    matrix, direction, other = (jnp.asarray(positive_definite(rng, 6)) for _ in range(3))
    v, weights = jnp.asarray(rng.normal(size=6)), jnp.asarray(rng.normal(size=6))

    def at(t, product):
        return jnp.sum(jnp.sin(product(matrix + 0.1 * (t[0] * direction + t[1] * other), v + t[1] * weights)) * weights)

    own = lambda t: at(t, lambda K, v: lower_product(K, v, *factorise(K)))  # noqa: E731
    plain = lambda t: at(t, lambda K, v: jnp.linalg.cholesky(K) @ v)  # noqa: E731
    t = jnp.array([0.2, -0.1])
    for derivative in (lambda f: f, jax.grad, jax.jacfwd, jax.hessian):
        found, wanted = (jax.jit(derivative(f))(t) for f in (own, plain))
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
    lanes = jax.jit(jax.vmap(jax.grad(own)))(jnp.stack([t, 2 * t]))
    np.testing.assert_allclose(lanes[0], jax.grad(plain)(t), rtol=1e-10)


def test_a_square_and_its_derivative(rng):
    root, weights = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 3))
    np.testing.assert_allclose(outer_square(jnp.asarray(root)), root @ np.swapaxes(root, 1, 2), rtol=1e-14)
    slope = jax.grad(lambda C: jnp.sum(outer_square(C) * weights))(jnp.asarray(root))
    np.testing.assert_allclose(slope, (weights + np.swapaxes(weights, 1, 2)) @ root, rtol=1e-12)


def test_float32_stays_float32(rng):
    matrix = jnp.asarray(positive_definite(rng, 4), jnp.float32)
    assert all(part.dtype == jnp.float32 for part in factorise(matrix))
    assert gaussian_log_density(jnp.ones(4, jnp.float32), matrix).dtype == jnp.float32
    assert small_cholesky(matrix).dtype == jnp.float32
