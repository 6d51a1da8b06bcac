"""Non-stationary and categorical kernels against formulas in NumPy and integrals over random networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.kernels import ArcCosine, CategoryDelta, Constant, Coregion, Linear, Polynomial, ZeroMeanCategory

X1 = np.random.default_rng(0).normal(size=(5, 2))
X2 = np.random.default_rng(1).normal(size=(4, 2))
SLOPES = np.array([0.4, 1.5])


def test_linear_polynomial_constant():
    inner = X1 @ np.diag(SLOPES) @ X2.T
    np.testing.assert_allclose(Linear(SLOPES).matrix(X1, X2), inner, rtol=1e-12)
    np.testing.assert_allclose(Linear(0.4).matrix(X1, X2), 0.4 * X1 @ X2.T, rtol=1e-12)
    np.testing.assert_allclose(Linear(SLOPES).diagonal(X1), np.diag(X1 @ np.diag(SLOPES) @ X1.T), rtol=1e-12)
    np.testing.assert_allclose(Polynomial(SLOPES, 0.7, 3).matrix(X1, X2), (inner + 0.7) ** 3, rtol=1e-12)
    np.testing.assert_allclose(Polynomial(SLOPES, 0, 1).matrix(X1, X2), inner, rtol=1e-12)
    np.testing.assert_array_equal(Constant(0.3).matrix(X1, X2), np.full((5, 4), 0.3))
    np.testing.assert_array_equal(Constant(0.3).matrix(X1), np.full((5, 5), 0.3))


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_the_expectation_over_random_hidden_units(order):
    """k(x, y) = 2 E[step(w.x) step(w.y) (w.x)^n (w.y)^n], w ~ N(0, I) (Cho and Saul, eq. 1), on a polar grid."""
    x, y, bias = np.array([0.7]), np.array([-0.4]), 0.3
    features = [np.array([np.sqrt(1.5) * point[0], np.sqrt(bias)]) for point in (x, y)]
    count = 400_000
    angle = 2 * np.pi * (np.arange(count) + 0.5) / count
    direction = np.stack([np.cos(angle), np.sin(angle)])
    one, two = (feature @ direction for feature in features)
    radial = {0: 1.0, 1: 2.0, 2: 8.0}[order]  # E |w|^(2 n) in two dimensions: 2^n n!
    expected = 2 * radial * np.mean((one > 0) * (two > 0) * (one * two) ** order)
    got = ArcCosine(0.6, 1.5, bias, order=order).matrix(x[None], y[None])[0, 0]
    np.testing.assert_allclose(got, 0.6 * expected, rtol=2e-5)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_diagonal_and_derivatives_of_parallel_inputs(order):
    norms = X1**2 @ SLOPES + 0.5
    kernel = ArcCosine(0.6, SLOPES, 0.5, order)
    np.testing.assert_allclose(kernel.diagonal(X1), 0.6 * {0: 1, 1: 1, 2: 3}[order] * norms**order, rtol=1e-12)
    at = jnp.asarray(X1[0])
    value = jax.jit(lambda x: kernel.matrix(x[None], at[None])[0, 0])
    gradient, hessian = jax.jit(jax.grad(value))(at), jax.jit(jax.hessian(value))(at)
    assert np.all(np.isfinite(hessian))
    # k(x, y) is symmetric, so its slope in x at y = x is half that of k(x, x) (order 0 has a kink: defined as 0).
    half = jax.grad(lambda x: 0.5 * kernel.diagonal(x[None])[0])(at)
    np.testing.assert_allclose(gradient, half, rtol=1e-6, atol=1e-7)


def test_categories_are_compared_in_all_columns_and_coregion_indexes_its_covariance():
    """Unknown codes that are traced give NaN and not a neighbour."""
    codes = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0]])
    np.testing.assert_array_equal(CategoryDelta(0.7).matrix(codes), 0.7 * np.array([[1.0, 0, 1], [0, 1, 0], [1, 0, 1]]))
    weights, own = np.array([[0.5, 0.1], [1.0, -0.3], [-0.4, 0.8]]), np.array([0.2, 0.1, 0.3])
    covariance = weights @ weights.T + np.diag(own)
    kernel = Coregion(weights, own)
    rows, columns = np.array([2, 0, 1, 2]), np.array([1, 2])
    got = kernel.matrix(rows[:, None].astype(float), columns[:, None].astype(float))
    np.testing.assert_allclose(kernel.covariance(), covariance, rtol=1e-13)
    np.testing.assert_allclose(got, covariance[np.ix_(rows, columns)], rtol=1e-13)
    np.testing.assert_allclose(kernel.diagonal(rows[:, None].astype(float)), np.diag(covariance)[rows], rtol=1e-13)
    np.testing.assert_allclose(Coregion(weights, 0.2).covariance(), weights @ weights.T + 0.2 * np.eye(3), rtol=1e-13)
    codes = np.array([[0.0], [3.0], [-1.0], [0.5]])
    for got in jax.jit(lambda codes: (kernel.diagonal(codes), kernel.matrix(codes, codes[:1])[:, 0]))(codes):
        np.testing.assert_array_equal(np.isnan(got), [False, True, True, True])


P = np.array([0.2, 0.5, 0.3])


def test_values_and_zero_mean():
    """The plain delta kernel averages to p_i, not to zero."""
    kernel = ZeroMeanCategory(1.7, jnp.asarray(P))
    codes = np.arange(3.0)[:, None]
    matrix = np.asarray(kernel.matrix(codes))
    np.testing.assert_allclose(matrix, 1.7 * (np.eye(3) - np.outer(P, P) / (P @ P)), atol=1e-14)
    np.testing.assert_allclose(matrix @ P, 0.0, atol=1e-14)
    np.testing.assert_allclose(kernel.matrix(codes, codes[:2]), matrix[:, :2], atol=1e-14)
    np.testing.assert_allclose(kernel.diagonal(codes), np.diag(matrix), atol=1e-14)
    assert np.linalg.eigvalsh(matrix).min() > -1e-14
    nodes, weights = kernel.quadrature()
    np.testing.assert_array_equal(nodes, codes[:, 0])
    np.testing.assert_array_equal(weights, P)
