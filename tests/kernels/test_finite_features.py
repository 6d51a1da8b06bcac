"""Features of kernels of finite rank are the kernel itself."""

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp import kernels as k
from tests.kernels.test_features import CODES, inner


def test_categories_are_finite():
    weights = jnp.array([[1.0, 0.2], [0.5, -1.0], [0.3, 0.4]])
    for kernel in (
        k.Coregion(weights, jnp.array([0.5, 0.0, 0.2])),
        k.ZeroMeanCategory(1.5, jnp.array([0.2, 0.5, 0.3])),
    ):
        found = k.features(kernel.on(1), jax.random.key(0), 64, CODES)(CODES)
        np.testing.assert_allclose(inner(found), kernel.on(1).matrix(CODES), atol=1e-14)
