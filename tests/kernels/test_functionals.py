"""Rows that are functionals: what they are made of, and their algebra."""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro_gp.functionals import Values

from numpyro_gp.kernels.functionals import Average, Derivative, Functional

RNG = np.random.default_rng(0)


def test_rows_are_indexed_added_and_scaled():
    points = jnp.asarray(RNG.normal(size=(4, 3)))
    slopes = Derivative(points, 2)
    cube = lambda X: jnp.sum(X**3, axis=-1)  # noqa: E731
    assert (slopes.shape, slopes.ndim, len(slopes)) == ((4, 3), 2, 4)
    np.testing.assert_allclose(slopes[jnp.array([2, 0])].of(cube), 3 * points[jnp.array([2, 0]), 2] ** 2)
    np.testing.assert_array_equal(slopes[..., 1:].rows, slopes[1:].rows)
    sums = 2.0 * slopes - Values(points)
    np.testing.assert_allclose(sums.of(cube), 6 * points[:, 2] ** 2 - cube(points), rtol=1e-12)
    assert (sums.slopes, Values(points).slopes) == ((2,), ())
    general = Functional(points[:, None], jnp.ones(1), jnp.broadcast_to(jnp.array([0.0, 1.0, 0.0]), (4, 1, 3)))
    np.testing.assert_allclose(general.of(cube), cube(points) + 3 * points[:, 1] ** 2, rtol=1e-12)
    assert general.slopes == (1,)
    single = jax.tree.leaves(Derivative(points.astype(jnp.float32), 0))
    assert [leaf.dtype for leaf in single] == [jnp.float32]


def test_rows_end_when_one_goes_over_them():
    """JAX clamps numbers beyond the last row: Python's own way over them, and NumPy's, did not end."""
    L = Derivative(np.arange(3.0)[:, None], 0)
    assert [row.rows.tolist() for row in L] == L.rows.tolist()


def test_numpy_may_stand_on_the_left():
    """It took a functional for an array of points, and told the user to pass points."""
    X = np.arange(3.0)[:, None]
    slope, square = Derivative(X, 0), lambda X: X[..., 0] ** 2
    for left in (X, jnp.asarray(X)):
        np.testing.assert_allclose((left - slope).of(square), X[:, 0] ** 2 - 2 * X[:, 0])
        np.testing.assert_allclose((left + slope).of(square), X[:, 0] ** 2 + 2 * X[:, 0])
    for factor in (np.float64(3.0), np.array([1.0, 2.0, 3.0])):
        np.testing.assert_allclose((factor * slope).of(square), factor * 2 * X[:, 0])


def product(X):
    return X[..., 0] ** 2 * X[..., 1]


def test_slopes_and_averages_of_a_known_product():
    X = np.array([[[0.0, 1.0], [2.0, 3.0]], [[1.0, -1.0], [1.0, 2.0]]])
    np.testing.assert_allclose(Derivative(X[0], 0).of(product), 2 * X[0, :, 0] * X[0, :, 1], rtol=1e-6)
    np.testing.assert_allclose(Average(X).of(product), product(X).mean(axis=-1), rtol=1e-6)
    weights = np.array([0.5, 2.0])
    np.testing.assert_allclose(Average(X, weights).of(product), product(X) @ weights, rtol=1e-6)
