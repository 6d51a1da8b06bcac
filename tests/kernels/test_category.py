"""The zero-mean kernel of a category: typed out again in NumPy, and what makes it zero-mean."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.kernels import ZeroMeanCategory

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
