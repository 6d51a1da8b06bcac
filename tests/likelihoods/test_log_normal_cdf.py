"""Slopes of the logarithm of the normal distribution function, in both precisions, beside SciPy's in double."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfcx

import numpyro_gp as ngp
from numpyro_gp.likelihoods.links import log_ndtr
from tests.precision import x64

AT = np.array([-130.0, -30.0, -6.1, -5.9, -2.0, 0.0, 3.0, 20.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slope_curvature_and_the_slope_of_that_hold_in_the_lower_tail(dtype):
    """In float32 JAX's curvature at -130 was 4 and not -1."""
    with x64(dtype == "float64"):
        x = jnp.asarray(AT, dtype)
        first = jax.grad(log_ndtr)
        second = jax.grad(first)
        found = jax.jit(lambda x: [jax.vmap(f)(x) for f in (first, second, jax.grad(second))])(x)
    s = np.sqrt(2 / np.pi) / erfcx(-AT / np.sqrt(2))
    near = dtype == "float32"
    np.testing.assert_allclose(found[0], s, rtol=1e-5 if near else 1e-10, atol=1e-30)
    np.testing.assert_allclose(found[1], -s * (s + AT), rtol=2e-4 if near else 1e-9, atol=1e-30)
    np.testing.assert_allclose(found[2], s * (s + AT) * (2 * s + AT) - s, rtol=5e-3, atol=3e-4 if near else 1e-9)


def test_an_interval_far_away_has_a_positive_precision_in_single_precision():
    """``dE / dvariance`` of a datum in [13, 13.5], 130 scales of the noise from f: it was +68 for -50."""
    lower, one = jnp.full(1, 13.0, jnp.float32), jnp.ones(1, jnp.float32)
    interval = ngp.likelihoods.Interval(ngp.likelihoods.Gaussian(0.1), lower, lower + 0.5)
    slope = jax.grad(lambda v: interval.expected_log_prob(lower, 0 * one, v).sum())(1e-3 * one)
    np.testing.assert_allclose(slope, -50.0, rtol=1e-3)
