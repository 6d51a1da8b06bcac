"""Moments and quantiles of mixtures of draws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats

import numpyro_gp as ngp
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.sites import Observation
from tests.posterior.test_prediction import MEANS, SCALES, prediction


def test_moments_of_large_numbers_in_single_precision(rng):
    """A sum of draws at 1e6 would round by a unit and more; each draw is exact to 0.03."""
    away = rng.normal(size=(64, 5)).astype(np.float32)
    draws = np.float32(1e6) + away
    gaussian = ngp.likelihoods.Gaussian(jnp.float32(0.1))
    whole = jax.vmap(lambda m: Observation(dist.Normal(m, jnp.float32(0.1)), gaussian))(jnp.asarray(draws))
    found = Prediction([whole], [5], jax.random.key(0))
    exact = draws.astype(float)
    np.testing.assert_allclose(np.asarray(found.mean, float), exact.mean(0), atol=0.07)
    np.testing.assert_allclose(found.variance, 0.02 + exact.var(0), rtol=1e-3)
    np.testing.assert_allclose(found.function_variance, 0.01 + exact.var(0), rtol=1e-3)


def test_gaussian_quantiles_invert_the_distribution_function():
    """A Gaussian of the same two moments would be off by more than 0.1 at the first, bimodal, point."""
    levels = [0.05, 0.5, 0.9]
    got = prediction().quantiles(levels)
    scales = np.sqrt(SCALES**2 + 0.04)
    for i, level in enumerate(levels):
        for n in range(3):
            cdf = lambda q, n=n: stats.norm.cdf(q, MEANS[:, n], scales[:, n]).mean() - level  # noqa: B023, E731
            np.testing.assert_allclose(got[i, n], optimize.brentq(cdf, -20, 20), atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivatives_of_gaussian_quantiles_are_those_of_the_equation(dtype):
    """Of means ``x`` and ``-2 x``, of the scale of the noise, and of the level; in the gap between two draws too."""

    def of(x, noise, level):
        likelihood = ngp.likelihoods.Gaussian(jnp.stack([noise, noise]))
        latent = dist.Normal(jnp.stack([x, -2 * x])[:, None], jnp.full((2, 1), 1e-3, dtype))
        return Prediction([Observation(latent, likelihood)], [1], jax.random.key(0)).quantiles(level[None])[0, 0]

    def solved(x, noise, level):
        scale = np.hypot(noise, 1e-3)
        below = lambda q: stats.norm.cdf(q, [x, -2 * x], scale).mean() - level  # noqa: E731
        return optimize.brentq(below, -10 * abs(x) - 9, 10 * abs(x) + 9, xtol=1e-14, rtol=1e-15)

    at, h = np.array([1.0, 0.7, 0.9]), 1e-5
    wanted = [(solved(*(at + h * e)) - solved(*(at - h * e))) / (2 * h) for e in np.eye(3)]
    own = jnp.asarray(at, dtype)
    slopes = jax.jit(jax.grad(of, argnums=(0, 1, 2)))
    np.testing.assert_allclose(slopes(*own), wanted, rtol=2e-4 if dtype == np.float32 else 1e-7)
    apart = np.asarray(slopes(*jnp.asarray([50.0, 0.1, 0.5], dtype)))  # above the lower draw there is no density
    np.testing.assert_allclose(apart[0], -2.0, rtol=1e-3)
    assert np.isfinite(apart).all()
