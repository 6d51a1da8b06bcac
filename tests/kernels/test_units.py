"""Lengthscales of kernels by column."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp import neighbours
from numpyro_gp.kernels import RBF, Linear, Matern52
from numpyro_gp.kernels.varying import lengthscales


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
