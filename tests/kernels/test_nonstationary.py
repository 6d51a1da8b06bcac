"""Non-stationary and categorical kernels against formulas in NumPy and integrals over random networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.kernels import ArcCosine, CategoryDelta, Constant, Coregion, Linear, Polynomial

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


def test_category_delta_compares_all_columns():
    codes = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0]])
    np.testing.assert_array_equal(CategoryDelta(0.7).matrix(codes), 0.7 * np.array([[1.0, 0, 1], [0, 1, 0], [1, 0, 1]]))


WEIGHTS, OWN = np.array([[0.5, 0.1], [1.0, -0.3], [-0.4, 0.8]]), np.array([0.2, 0.1, 0.3])


def test_coregion_indexes_its_covariance():
    covariance = WEIGHTS @ WEIGHTS.T + np.diag(OWN)
    kernel = Coregion(WEIGHTS, OWN)
    rows, columns = np.array([2, 0, 1, 2]), np.array([1, 2])
    got = kernel.matrix(rows[:, None].astype(float), columns[:, None].astype(float))
    np.testing.assert_allclose(kernel.covariance(), covariance, rtol=1e-13)
    np.testing.assert_allclose(got, covariance[np.ix_(rows, columns)], rtol=1e-13)
    np.testing.assert_allclose(kernel.diagonal(rows[:, None].astype(float)), np.diag(covariance)[rows], rtol=1e-13)
    np.testing.assert_allclose(Coregion(WEIGHTS, 0.2).covariance(), WEIGHTS @ WEIGHTS.T + 0.2 * np.eye(3), rtol=1e-13)


def test_unknown_traced_codes_give_nan_and_not_a_neighbour():
    kernel = Coregion(WEIGHTS, OWN)
    codes = np.array([[0.0], [3.0], [-1.0], [0.5]])
    got = np.asarray(jax.jit(kernel.diagonal)(codes))
    np.testing.assert_array_equal(np.isnan(got), [False, True, True, True])
    got = np.asarray(jax.jit(kernel.matrix)(codes, codes[:1]))
    np.testing.assert_array_equal(np.isnan(got[:, 0]), [False, True, True, True])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Linear(-1.0), "variance must be positive"),
        (lambda: Linear(np.ones(3)).matrix(X1), r"variance must be a scalar or of shape \(2,\)"),
        (lambda: Polynomial(1.0, 1.0, 0), "degree must be at least 1, but got 0"),
        (lambda: Constant(0.0), "variance must be positive"),
        (lambda: ArcCosine(1.0, order=3), "order must be 0, 1 or 2, but got 3"),
        (lambda: ArcCosine(1.0, order=1.0), "order must be 0, 1 or 2, but got 1.0"),
        (
            lambda: CategoryDelta(1.0).matrix(jnp.array([[1.0], [2.5]])),
            "inputs of a kernel of categories must be category codes, whole numbers, but got 2.5. Give .*categorical",
        ),
        (lambda: ArcCosine(1.0, 1.0, 0.0), "bias_variance must be positive"),
        (lambda: ArcCosine(1.0, np.ones(3)).diagonal(X1), r"weight_variance must be a scalar or of shape \(2,\)"),
        (lambda: CategoryDelta(-1.0), "variance must be positive"),
        (lambda: Coregion(WEIGHTS, np.ones(2)), r"diagonal must be a scalar or of shape \(3,\), but got shape \(2,\)"),
        (lambda: Coregion(WEIGHTS, -1.0), "diagonal must be zero or positive"),
        (lambda: Coregion(WEIGHTS, OWN).matrix(X1), r"one column of category codes, but got shape \(5, 2\)"),
        (
            lambda: Coregion(WEIGHTS, OWN).matrix(np.array([[3.0]])),
            "category codes 0, 1, …, 2, but got 3. Number the categories from 0",
        ),
        (lambda: Coregion(WEIGHTS, OWN).diagonal(np.array([[0.5]])), "but got 0.5. Give the column of codes as it is"),
    ],
)
def test_wrong_values(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_degree_must_be_a_whole_number():
    with pytest.raises(TypeError, match="degree must be a whole number"):
        Polynomial(1.0, 1.0, 1.5)
