"""Features of kernels of finite rank are the kernel itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp import kernels as k
from numpyro_gp.kernels import features
from tests.kernels.test_features import CODES, inner


@pytest.mark.parametrize(
    "kernel",
    [
        k.Coregion(jnp.array([[1.0, 0.2], [0.5, -1.0], [0.3, 0.4]]), jnp.array([0.5, 0.0, 0.2])),
        k.ZeroMeanCategory(1.5, jnp.array([0.2, 0.5, 0.3])),
    ],
)
def test_categories_are_finite(kernel):
    kernel = kernel.on(1)
    found = features(kernel, jax.random.key(0), 64, CODES)(CODES)
    np.testing.assert_allclose(inner(found), kernel.matrix(CODES), atol=1e-14)
