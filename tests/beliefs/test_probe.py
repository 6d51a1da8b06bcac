"""Largest eigenvalues by power iterations. What probes tell a guide is in tests/guides/test_coefficient_steps.py."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.beliefs.curvature_taps import largest_eigenvalue


def test_power_iterations_are_a_limit_for_operators_of_either_sign(rng):
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    matrix = jnp.asarray(turn @ np.diag([-5.0, 2.0, 1.0, 0.5, 0.1, 0.0]) @ turn.T)
    np.testing.assert_allclose(largest_eigenvalue(lambda x: matrix @ x, 6, jnp.float64), 5.0, rtol=1e-3)
    assert largest_eigenvalue(lambda x: 0 * x, 6, jnp.float64) == 0
