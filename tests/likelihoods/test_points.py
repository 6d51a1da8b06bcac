"""Likelihoods made of callables do not ask for a unit: closed forms where data are small, and without variance."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose

import numpyro_gp as ngp

L = ngp.likelihoods


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_callables_in_any_unit_have_the_closed_form(dtype):
    """A floor of 1e-7 stood below every variance, whatever its unit: 6 nats for a noise of 1e-4."""
    unit = np.array([1.0, 1e-4, 1e-8, 1e6], dtype)
    noise, variance, y = 0.5 * unit, (0.7 * unit) ** 2, 0.3 * unit

    @jax.jit
    def slopes(mean, variance, noise):
        own = L.as_likelihood(lambda f: dist.Normal(f, noise))
        answers = (own.expected_log_prob, own.predictive_log_prob)
        each = [jax.vjp(lambda m, s, a=answer: a(y, m, s), mean, variance) for answer in answers]
        return [(found, *back(jnp.ones_like(found))) for found, back in each]

    limit = 1e-5 if dtype == np.float32 else 1e-12
    for own in (variance, 0 * variance):
        mean = 0 * y
        square, total = (y - mean) ** 2, own + noise**2
        log = -0.5 * np.log(2 * np.pi * noise**2) - 0.5 * (square + own) / noise**2
        density = -0.5 * np.log(2 * np.pi * total) - 0.5 * square / total
        wanted = [
            (log, (y - mean) / noise**2, -0.5 / noise**2),
            (density, (y - mean) / total, 0.5 * (square / total - 1) / total),
        ]
        # By 20 nodes of Gauss and Hermite a density is right to 1e-3 where the variance is wide.
        limits = 10 * limit, 2e-3 if own is variance else 10 * limit
        for found, want, rtol in zip(slopes(mean, own, noise), wanted, limits, strict=True):
            for part, closed in zip(found, want, strict=True):
                assert_allclose(part, closed, rtol=rtol)


def test_two_correlated_functions_of_unlike_units():
    """The floor of their covariance was that of the larger unit: 0.5 nat at a noise of 1e-3 beside a log scale."""
    unit, noise = np.float32(1e-6), np.float32(0.5)
    covariance = np.array([[0.3, 0.1], [0.1, 0.2]], np.float32) * np.array([[unit**2, unit], [unit, 1.0]])
    mean = np.array([0.1 * unit, 0.2], np.float32)

    @jax.jit
    def answer(mean, covariance):
        own = L.as_likelihood(lambda f, g: dist.Normal(f, noise * unit * jnp.exp(0.5 * g)))
        value = lambda s: own.expected_log_prob(0.2 * unit, mean, jnp.diagonal(s), covariance=s)  # noqa: E731
        return jax.value_and_grad(value)(covariance)

    closed = L.HeteroscedasticGaussian()
    scaled = covariance / np.array([[unit**2, unit], [unit, 1.0]])
    at = np.array([0.1, 0.2 + 2 * np.log(noise)])
    value = lambda s: closed.expected_log_prob(0.2, at, jnp.diagonal(s), covariance=s) - np.log(unit)  # noqa: E731
    want, slope = jax.value_and_grad(value)(jnp.asarray(scaled, float))
    for own in (covariance, 0 * covariance):
        found, change = answer(mean, own.astype(np.float32))
        if own is not covariance:
            want, slope = jax.value_and_grad(value)(jnp.zeros((2, 2)))
        assert_allclose(found, want, rtol=1e-5)
        change = change * np.array([[unit**2, unit], [unit, 1.0]])
        assert_allclose(change + change.T, slope + slope.T, rtol=1e-3, atol=1e-3)


def test_the_largest_function_asks_for_no_unit():
    """RobustMax compares functions: 1e-8 of them in float32 were all as large."""
    robust, mean, variance = L.RobustMax(3), np.array([1.0, 0.2, -0.3]), np.array([0.3, 0.5, 0.2])
    want = robust.predictive_mean(mean, variance)
    unit = np.float32(1e-8)
    found = jax.jit(robust.predictive_mean)(np.float32(mean) * unit, np.float32(variance) * unit**2)
    assert_allclose(found, want, rtol=1e-5)
