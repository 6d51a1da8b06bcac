"""Kernels that change with the inputs, against formulas written out in NumPy; lengthscales of kernels by column."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from numpyro_gp import kernels, neighbours
from numpyro_gp.kernels import RBF, Linear, Matern52
from numpyro_gp.kernels.varying import lengthscales

X1, X2 = np.random.default_rng(0).normal(size=(5, 2)), np.random.default_rng(1).normal(size=(4, 2))


def log_lengthscale(X):
    return jnp.stack([0.3 * X[:, 0], jnp.sin(X[:, 1])], axis=1)


def test_gibbs_is_its_formula():
    """Gibbs (1997), for a lengthscale of each column; positive definite, where an RBF of the mean of both is not."""
    matrix = kernels.Gibbs(1.7, log_lengthscale).matrix(X1, X2)
    first, second = (np.exp(np.stack([0.3 * X[:, 0], np.sin(X[:, 1])], axis=1)) for X in (X1, X2))
    squares = first[:, None] ** 2 + second[None] ** 2
    factors = np.sqrt(2 * first[:, None] * second[None] / squares) * np.exp(-((X1[:, None] - X2[None]) ** 2) / squares)
    assert_allclose(matrix, 1.7 * factors.prod(-1), rtol=1e-12)
    many = np.random.default_rng(2).normal(size=(40, 2))
    gram = np.asarray(kernels.Gibbs(1.7, log_lengthscale).matrix(many))
    assert np.linalg.eigvalsh(gram).min() > -1e-12
    assert_allclose(np.diag(gram), 1.7)


def test_gibbs_of_a_constant_is_rbf():
    gibbs = kernels.Gibbs(2.0, lambda X: jnp.full(len(X), np.log(0.6)))
    assert_allclose(gibbs.matrix(X1, X2), kernels.RBF(2.0, 0.6).matrix(X1, X2), rtol=1e-12)
    ends = jnp.array([[-300.0], [300.0]])  # lengthscales of e^-300 and e^300
    assert np.isfinite(jax.grad(lambda a: kernels.Gibbs(1.0, lambda X: a * X[:, 0]).matrix(ends)[0, 1])(1.0))


def test_modulated_kernels_and_their_features():
    kernel = kernels.Modulated(kernels.RBF(1.3, 0.7), lambda X: X[:, 0])
    dense = X1[:, :1] * np.asarray(kernels.RBF(1.3, 0.7).matrix(X1, X2)) * X2[:, 0]
    assert_allclose(kernel.matrix(X1, X2), dense, rtol=1e-12)
    linear = kernels.Modulated(kernels.Linear(2.0), lambda X: X[:, 1])
    (block,) = kernels.features(linear, jax.random.key(0), 1, jnp.asarray(X1))(jnp.asarray(X1))
    assert_allclose(block[:, 0] @ block[:, 0].T, linear.matrix(X1), rtol=1e-12)


def test_change_points_sum_to_weights_of_their_kernels():
    """Three regimes by hand; far from every change the process is one of them."""
    parts = [kernels.RBF(1.0, 0.5), kernels.RBF(2.0, 0.5), kernels.RBF(3.0, 0.5)]
    kernel = kernels.change_points(parts, [-1.0, 0.5], 0.2, column=1)
    s = lambda X, place: 1 / (1 + np.exp(-(X[:, 1] - place) / 0.2))  # noqa: E731
    weights = [[1 - s(X, -1.0), s(X, -1.0) * (1 - s(X, 0.5)), s(X, 0.5)] for X in (X1, X2)]
    dense = sum(a[:, None] * np.asarray(k.matrix(X1, X2)) * b for a, k, b in zip(weights[0], parts, weights[1]))
    assert_allclose(kernel.matrix(X1, X2), dense, rtol=1e-10)
    assert_allclose(kernel.diagonal(jnp.array([[0.0, -9.0], [0.0, 9.0]])), [1.0, 3.0])
    slope = jax.grad(lambda place: kernels.change_points(parts, [place, 0.5], 0.2, 1).matrix(X1, X2).sum())
    up, down = (kernels.change_points(parts, [-1.0 + h, 0.5], 0.2, 1).matrix(X1, X2).sum() for h in (1e-5, -1e-5))
    assert_allclose(slope(-1.0), (up - down) / 2e-5, rtol=1e-6)


def test_a_function_inside_gets_integers_as_they_are():
    table = np.eye(4) + 0.5
    graph = kernels.as_kernel(lambda a, b: jnp.asarray(table)[a[:, 0]][:, b[:, 0]])
    kernel = kernels.Modulated(graph, lambda X: 1.0 + X[:, 0])
    nodes = np.array([[0], [2], [3]])
    size = 1.0 + nodes[:, 0]
    assert_allclose(kernel.matrix(nodes), size[:, None] * table[nodes[:, 0]][:, nodes[:, 0]] * size, rtol=1e-12)


def test_lengthscales_are_those_of_the_parts():
    np.testing.assert_allclose(lengthscales(Matern52(1.0, 0.5), 3), [0.5] * 3)
    both = 2.0 * RBF(1.0, jnp.array([0.5, 2.0])) + RBF(3.0, 1.0)  # the shortest of a sum
    np.testing.assert_allclose(lengthscales(both, 2), [0.5, 1.0])
    apart = RBF(1.0, 0.5).on([2]) * Matern52(1.0, jnp.array([3.0, 4.0])).on([0, 1])
    np.testing.assert_allclose(lengthscales(apart, 3), [3.0, 4.0, 0.5])
    # A product of RBF kernels is one of the lengthscale that this says.
    X, found = jnp.array([[0.0], [0.7]]), lengthscales(RBF(1.0, 3.0) * RBF(1.0, 4.0), 1)
    product = (RBF(1.0, 3.0) * RBF(1.0, 4.0)).matrix(X)
    np.testing.assert_allclose(RBF(1.0, found).matrix(X), product)
    assert lengthscales(RBF(1.0, 1.0) + Linear(1.0), 2) is None
    assert lengthscales(Linear(1.0) * 2.0, 2) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_column_that_is_not_read_tells_no_rows_apart_however_far_they_are(rng, dtype):
    """Seconds since 1970, say, which the mean function alone reads: a million lengthscales were not enough."""
    X = np.stack([rng.uniform(size=200), 1e9 * rng.uniform(size=200)], axis=1).astype(dtype)
    for lengthscale in (1e-3, 0.3, 100.0):
        own = jnp.asarray(lengthscale, dtype)
        found = neighbours(X, 5, lengthscale=lengthscales(RBF(jnp.ones((), dtype), own).on([0]), 2))
        np.testing.assert_array_equal(found.index, neighbours(X[:, :1], 5).index)
