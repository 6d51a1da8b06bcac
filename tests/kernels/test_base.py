"""Combining kernels: laws of sums and products, active inputs, and functions as kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.kernels import RBF, Linear, Matern32, Periodic, as_kernel

X1 = np.random.default_rng(0).normal(size=(4, 2))
X2 = np.random.default_rng(1).normal(size=(3, 2))
PARTS = {
    "rbf": RBF(1.3, 0.7),
    "matern": Matern32(0.6, np.array([0.5, 2.0])),
    "linear": Linear(0.4),
    "active": Periodic(0.8, 0.9, 1.7).on(1),
}


@jax.jit
def evaluate(kernels):
    return [(one.matrix(X1, X2), one.matrix(X1), one.diagonal(X1)) for one in kernels]


@pytest.mark.long
def test_combinations_equal_the_same_operations_on_matrices():
    """Of each kind with the next, and of one with itself."""
    kinds = list(PARTS.values())
    pairs = [*zip(kinds, kinds[1:] + kinds[:1]), (kinds[0], kinds[0])]
    combined = evaluate([own for a, b in pairs for own in (a, b, a + b, a * b, 2.5 * a)])
    for at in range(0, len(combined), 5):
        for a, b, total, product, scaled in zip(*combined[at : at + 5]):
            np.testing.assert_allclose(total, a + b, rtol=1e-13, atol=1e-14)
            np.testing.assert_allclose(product, a * b, rtol=1e-13, atol=1e-14)
            np.testing.assert_allclose(scaled, 2.5 * a, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dims", [(1,), (2, 0), (0, 1), (2, 0, 1)])
def test_active_inputs_equal_the_chosen_columns_in_their_order(dims):
    X = np.random.default_rng(4).normal(size=(4, 3))
    kernel = RBF(1.1, np.array([0.3, 0.8, 2.0])[: len(dims)])
    np.testing.assert_allclose(kernel.on(dims).matrix(X), kernel.matrix(X[:, dims]), rtol=1e-13)
    np.testing.assert_allclose(kernel.on(dims)(X, X[:2].copy()), kernel(X[:, dims], X[:2, dims]), rtol=1e-13)
    np.testing.assert_allclose(kernel.on(dims).diagonal(X), kernel.diagonal(X[:, dims]), rtol=1e-13)


def test_a_function_is_a_kernel_and_joins_sums_and_products_on_both_sides():
    def function(A, B):
        return (A @ B.T) ** 2

    expected, other = (X1 @ X2.T) ** 2, np.asarray(RBF(1.0, 1.0).matrix(X1, X2))
    np.testing.assert_allclose(as_kernel(function).matrix(X1, X2), expected, rtol=1e-12)
    np.testing.assert_allclose(as_kernel(function).diagonal(X1), np.sum(X1**2, axis=1) ** 2, rtol=1e-12)
    for combined in (function + RBF(1.0, 1.0), RBF(1.0, 1.0) + function):
        np.testing.assert_allclose(combined.matrix(X1, X2), expected + other, rtol=1e-12)
    for combined in (function * RBF(1.0, 1.0), RBF(1.0, 1.0) * function):
        np.testing.assert_allclose(combined.matrix(X1, X2), expected * other, rtol=1e-12)
    assert jax.tree.leaves(as_kernel(function)) == []


def test_a_callable_pytree_keeps_its_parameters_as_leaves():
    scaled = jax.tree_util.Partial(lambda scale, A, B: scale * (A @ B.T), jnp.asarray(3.0))
    kernel = as_kernel(scaled)
    assert as_kernel(kernel) is kernel
    assert [float(leaf) for leaf in jax.tree.leaves(kernel)] == [3.0]
    gradient = jax.grad(lambda k: jnp.sum(k.matrix(X1, X2)))(kernel)
    np.testing.assert_allclose(jax.tree.leaves(gradient)[0], np.sum(X1 @ X2.T), rtol=1e-12)


def test_integer_inputs_are_floats():
    np.testing.assert_array_equal(RBF(1.0, 1.0).matrix(np.arange(2)[:, None]), RBF(1.0, 1.0).matrix(jnp.eye(2)[:, :1]))
    assert RBF(1, 2).matrix(np.zeros((2, 1), np.float32)).dtype == jnp.float32


def test_every_kind_of_number_scales_from_both_sides_and_a_traced_one_has_a_gradient():
    kernel, expected = RBF(1.0, 1.0), 2 * np.asarray(RBF(1.0, 1.0).matrix(X1, X2))
    for two in (2, 2.0, np.float64(2.0), np.asarray(2.0), jnp.asarray(2.0)):
        for product in (two * kernel, kernel * two):
            np.testing.assert_allclose(product.matrix(X1, X2), expected, rtol=1e-14)
    gradient = jax.jit(jax.grad(lambda c: jnp.sum((c * kernel).matrix(X1, X2))))(2.0)
    np.testing.assert_allclose(gradient, 0.5 * expected.sum(), rtol=1e-13)
