"""Mean functions and the fixed projections of deep layers."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.means import (
    Constant,
    FunctionMean,
    Linear,
    Projection,
    Zero,
    as_mean,
    identity,
    linear_projection,
    padding,
    pca,
)
from tests.oracles.vectors import cases

X = np.random.default_rng(0).normal(size=(6, 3))
DEEP = np.random.default_rng(1).normal(size=(2, 4, 3))
WEIGHTS = np.random.default_rng(2).normal(size=(3, 2))


def first_column(X):
    return X[..., 0]


def test_values_for_one_and_many_outputs_over_leading_axes():
    np.testing.assert_array_equal(Zero()(DEEP), np.zeros((2, 4)))
    np.testing.assert_array_equal(Zero(outputs=5)(DEEP), np.zeros((2, 4, 5)))
    np.testing.assert_array_equal(Constant(1.5)(DEEP), np.full((2, 4), 1.5))
    np.testing.assert_array_equal(Constant(np.array([1.5, 2.0]))(X), np.tile([1.5, 2.0], (6, 1)))
    np.testing.assert_allclose(Linear(WEIGHTS[:, 0], 0.5)(DEEP), DEEP @ WEIGHTS[:, 0] + 0.5, rtol=1e-12)
    bias = np.array([0.5, -1.0])
    np.testing.assert_allclose(Linear(WEIGHTS, bias)(DEEP), DEEP @ WEIGHTS + bias, rtol=1e-12)
    np.testing.assert_allclose(Projection(WEIGHTS)(DEEP), DEEP @ WEIGHTS, rtol=1e-12)


@pytest.mark.parametrize(
    "mean",
    [Zero(2), Constant(1.5), Linear(WEIGHTS, 0.5), Projection(WEIGHTS), as_mean(first_column)],
    ids=lambda mean: type(mean).__name__,
)
def test_pytree_pickle_jit_and_float32(mean):
    expected = mean(X)
    rebuilt = jax.tree.unflatten(jax.tree.structure(mean), jax.tree.leaves(mean))
    np.testing.assert_array_equal(rebuilt(X), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mean))(X), expected)
    np.testing.assert_allclose(jax.jit(lambda m, X: m(X))(mean, X), expected, rtol=1e-12)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), mean)(X.astype(np.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, expected, rtol=1e-5, atol=1e-5)
    for own in (Constant(1), Linear(WEIGHTS.astype(np.float32), 1)):  # numbers take the precision of the inputs
        assert own(X.astype(np.float32)).dtype == jnp.float32


def test_projections_are_fixed_and_linear_weights_are_not():
    def gradient(mean):
        return jax.grad(lambda m: jnp.sum(m(X) ** 2))(mean).weights

    np.testing.assert_array_equal(gradient(Projection(WEIGHTS)), 0)
    np.testing.assert_allclose(gradient(Linear(WEIGHTS)), 2 * X.T @ X @ WEIGHTS, rtol=1e-11)


def test_pca_spans_the_space_of_the_oracle():
    """The oracle does not centre X; the centred projector must differ, or this test says nothing."""
    case = cases("linear_mean")[0]
    weights = pca(case["X"], 2).weights
    np.testing.assert_allclose(weights @ weights.T, case["projector"], rtol=0, atol=1e-9)
    centred = pca(case["X"] - case["X"].mean(axis=0), 2).weights
    assert np.max(np.abs(centred @ centred.T - case["projector"])) > 1e-3


def test_pca_columns_are_ordered_orthonormal_and_signed():
    weights = np.asarray(pca(X, 3).weights)
    np.testing.assert_allclose(weights.T @ weights, np.eye(3), atol=1e-12)
    lengths = np.linalg.norm(X @ weights, axis=0)
    np.testing.assert_allclose(lengths, np.linalg.svd(X, compute_uv=False), rtol=1e-12)
    np.testing.assert_allclose(pca(-X, 3).weights, weights, atol=1e-12)
    assert np.all(weights[np.argmax(np.abs(weights), axis=0), np.arange(3)] > 0)


def test_linear_projection_picks_by_the_number_of_outputs():
    np.testing.assert_array_equal(linear_projection(X, 3).weights, np.eye(3))
    np.testing.assert_array_equal(identity(3).weights, np.eye(3))
    np.testing.assert_array_equal(linear_projection(X, 5).weights, np.eye(3, 5))
    np.testing.assert_array_equal(padding(3, 5)(X), np.concatenate([X, np.zeros((6, 2))], axis=1))
    np.testing.assert_array_equal(linear_projection(X, 2).weights, pca(X, 2).weights)
    for outputs in (2, 3, 5):
        assert linear_projection(X.astype(np.float32), outputs).weights.dtype == jnp.float32


def test_as_mean_keeps_ours_and_wraps_functions():
    np.testing.assert_array_equal(as_mean(1.5)(np.zeros((3, 2))), np.full(3, 1.5))
    np.testing.assert_array_equal(as_mean(jnp.asarray(1.5))(np.zeros((3, 2))), np.full(3, 1.5))
    mean = Constant(1.0)
    assert as_mean(mean) is mean
    assert isinstance(as_mean(None), Zero)
    wrapped = as_mean(first_column)
    assert isinstance(wrapped, FunctionMean)
    np.testing.assert_array_equal(wrapped(DEEP), DEEP[..., 0])
    np.testing.assert_array_equal(as_mean(lambda X: X)(DEEP), DEEP)
    with_parameters = as_mean(jax.tree_util.Partial(lambda scale, X: scale * X[..., 0], jnp.asarray(2.0)))
    assert [float(leaf) for leaf in jax.tree.leaves(with_parameters)] == [2.0]
