"""Numbers and sums of kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.kernels import RBF
from tests.kernels.test_base import X1, X2


@pytest.mark.parametrize("two", [2, 2.0, np.float64(2.0), np.asarray(2.0), jnp.asarray(2.0)])
def test_every_kind_of_number_scales_from_both_sides(two):
    expected = 2 * np.asarray(RBF(1.0, 1.0).matrix(X1))
    np.testing.assert_allclose((two * RBF(1.0, 1.0)).matrix(X1), expected, rtol=1e-14)
    np.testing.assert_allclose((RBF(1.0, 1.0) * two).matrix(X1), expected, rtol=1e-14)


def test_a_traced_factor_has_a_gradient():
    gradient = jax.jit(jax.grad(lambda c: jnp.sum((c * RBF(1.0, 1.0)).matrix(X1, X2))))(2.0)
    np.testing.assert_allclose(gradient, np.sum(RBF(1.0, 1.0).matrix(X1, X2)), rtol=1e-13)
