"""Numbers times kernels."""

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.kernels import RBF
from tests.kernels.test_base import X1, X2


def test_every_kind_of_number_scales_from_both_sides_and_a_traced_one_has_a_gradient():
    kernel, expected = RBF(1.0, 1.0), 2 * np.asarray(RBF(1.0, 1.0).matrix(X1, X2))
    for two in (2, 2.0, np.float64(2.0), np.asarray(2.0), jnp.asarray(2.0)):
        for product in (two * kernel, kernel * two):
            np.testing.assert_allclose(product.matrix(X1, X2), expected, rtol=1e-14)
    gradient = jax.jit(jax.grad(lambda c: jnp.sum((c * kernel).matrix(X1, X2))))(2.0)
    np.testing.assert_allclose(gradient, 0.5 * expected.sum(), rtol=1e-13)
