"""Squared distances: near zero, far from the origin, over many lengthscales, in both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from numpyro_gp.kernels import RBF, Matern12
from tests.kernels.test_stationary import FAMILY, FORMULAS, matrix


@FAMILY
def test_near_coincident_points(family, rng):
    """At distance 1e-6 the squared distance is 1e-12: rounding of the product form (1e-15) leaves three digits of it."""
    X = rng.normal(size=(5, 4))
    moved = X + 1e-6 * np.array([0.6, 0.8, 0.0, 0.0])
    drop = 1 - np.diag(matrix(family(1.0, 1.0), X, moved))
    expected = 1 - FORMULAS[family](np.array(1e-6))
    # RBF and Matern52, 32 drop by 1e-12, near rounding of 1; Matern12 by 1e-6, which must keep three digits.
    np.testing.assert_allclose(drop, expected, rtol=5e-3, atol=2e-15)


@FAMILY
def test_points_far_from_the_origin(family, rng):
    """Without centring the squared distance would lose 1e8 * eps = 2e-8 (float64), everything in float32."""
    X1, X2 = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))
    far = [(X + 1e4).astype(np.float32) for X in (X1, X2)]
    exact = FORMULAS[family](cdist(far[0].astype(float), far[1].astype(float)))
    high = matrix(family(1.0, 1.0), far[0].astype(float), far[1].astype(float))
    np.testing.assert_allclose(high, exact, rtol=0, atol=1e-12)
    low = matrix(family(1.0, 1.0), *far)
    assert low.dtype == jnp.float32
    np.testing.assert_allclose(low, exact, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("span", "atol"), [(100.0, 1e-5), (1000.0, 2e-5), (10_000.0, 2e-4)])
def test_float32_inputs_that_span_many_lengthscales(span, atol):
    """The product form is wrong by 2e-4, 1e-2 and 0.8; what is left is the rounding of scaled inputs."""
    X1 = np.linspace(0, span, 200, dtype=np.float32)[:, None]
    X2 = X1 + np.float32(0.3)
    squares = cdist(X1.astype(float), X2.astype(float), "sqeuclidean")
    one = jnp.float32(1.0)
    np.testing.assert_allclose(matrix(RBF(one, one), X1, X2), np.exp(-0.5 * squares), rtol=0, atol=atol)
    slope = jax.jit(jax.grad(lambda l: jnp.sum(RBF(one, l).matrix(X1, X2))))(one)
    np.testing.assert_allclose(slope, np.sum(squares * np.exp(-0.5 * squares)), rtol=10 * atol)


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_float32_gram_of_inputs_that_a_compiler_scales(columns, rng):
    """Where the scaling is fused into ``a_i - a_j``, one of both may be rounded: a quarter of it was not symmetric."""
    X = (100 * rng.normal(size=(67, columns))).astype(np.float32)
    found = np.asarray(jax.jit(lambda X: Matern12(1.0, 90.7).matrix(X * np.float32(1.7)))(X))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 1)
    if columns == 1:  # by the product up to 7e-4
        np.testing.assert_allclose(np.diag(matrix(Matern12(1.0, 1.0), X, X.copy())), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("size", "columns"), [(7, 6), (301, 8), (517, 40)])
def test_gram_matrices_by_products_are_symmetric_to_the_last_bit(size, columns, dtype, rng):
    """And large ones on a CPU, whose products of rows with themselves are, read no matrix by rows and columns at once."""
    X = rng.normal(size=(2, size, columns)).astype(dtype)
    gram = jax.jit(lambda X: RBF(1.0, 1.3).matrix((X - jnp.mean(X, axis=0, keepdims=True)) / 1.7))
    for found in (gram(X[0]), *jax.vmap(gram)(X)):
        np.testing.assert_array_equal(found, found.T)
    lines = gram.lower(X[0]).compile().as_text().splitlines()
    assert size < 300 or not [line for line in lines if f"[{size},{size}]" in line and " transpose(" in line]


@pytest.mark.parametrize("columns", [2, 14])
def test_float32_gram_of_pairs_that_are_far_from_the_mean(columns, rng):
    """By the product up to 1e-3, which no jitter of 1e-4 makes positive definite; as in blocks found in other units."""
    X = 60 * rng.normal(size=(16, columns)) / np.sqrt(columns)
    X = np.concatenate([X, X + 0.02 * rng.normal(size=X.shape)]).astype(np.float32)
    squares = cdist(X.astype(float), X.astype(float), "sqeuclidean")
    found = np.asarray(jax.jit(RBF(1.0, 1.0).matrix)(X))
    np.testing.assert_allclose(found, np.exp(-0.5 * squares), rtol=0, atol=5e-6)
    np.testing.assert_array_equal(found, found.T)
    assert np.isfinite(np.linalg.cholesky(found + np.float32(1e-4) * np.eye(32, dtype=np.float32))).all()


@pytest.mark.parametrize("columns", [2, 3])
def test_in_single_precision_kernels_hold_their_digits_hundreds_of_lengthscales_wide(columns, rng):
    """By the product form covariances of neighbours were off by 4e-4, more than a jitter of 1e-5."""
    X = rng.uniform(0, 100, (1000, columns)).astype(np.float32)
    Z = (X[:400] + 0.5 * rng.normal(size=(400, columns))).astype(np.float32)
    with jax.enable_x64(False):
        kernel = RBF(1.0, 1.0)
        cross, gram = jax.jit(lambda X, Z: (kernel.matrix(X, Z), kernel.matrix(Z)))(X, Z)
    for found, rows in ((cross, X), (gram, Z)):
        wanted = np.exp(-0.5 * cdist(rows.astype(float), Z.astype(float), "sqeuclidean"))
        np.testing.assert_allclose(found, wanted, atol=5e-6)
