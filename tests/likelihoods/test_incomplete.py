"""Incomplete gamma and beta functions against SciPy, with derivatives that JAX's own do not have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
from numpy.testing import assert_allclose

from numpyro_gp.likelihoods.incomplete import log_beta_parts, log_gamma_parts


@pytest.mark.long
def test_incomplete_functions_and_their_second_derivatives():
    """JAX's own have none in the parameters: a finite difference of SciPy stands for them."""
    a, x = np.array([0.3, 2.5, 60.0]), np.array([0.2, 4.0, 75.0])
    below, above = log_gamma_parts(jnp.asarray(a), jnp.asarray(x))
    assert_allclose(below, np.log(sp.gammainc(a, x)), rtol=1e-12)
    assert_allclose(above, np.log(sp.gammaincc(a, x)), rtol=1e-12)
    curve = jax.vmap(jax.grad(jax.grad(lambda a, x: log_gamma_parts(a, x)[1]), argnums=1))(a, x)
    h, log = 1e-4, lambda a, x: np.log(sp.gammaincc(a, x))
    steps = (log(a + h, x + h) - log(a + h, x - h) - log(a - h, x + h) + log(a - h, x - h)) / (4 * h * h)
    assert_allclose(curve, steps, rtol=1e-5)
    slope = jax.grad(lambda a: log_beta_parts(a, jnp.array(2.0), jnp.array(0.3), jnp.array(0.7))[0])(1.5)
    step = np.log(sp.betainc(1.5 + 1e-5, 2, 0.3) / sp.betainc(1.5 - 1e-5, 2, 0.3)) / 2e-5
    assert_allclose(slope, step, rtol=1e-7)
