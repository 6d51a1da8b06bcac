"""Predictive densities of data far from what was predicted, against a fine grid over 180 standard deviations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from scipy import special, stats

from numpyro_gp.likelihoods import Bernoulli, Beta, Gamma, HeteroscedasticGaussian, NegativeBinomial, Poisson, StudentT

GRID = np.linspace(-60.0, 120.0, 200_001)
LOG_WEIGHTS = -0.5 * GRID**2 - 0.5 * np.log(2 * np.pi) + np.log(GRID[1] - GRID[0])
# Likelihood, y, latent mean and variance; nodes within 8 standard deviations of the mean are off by what is said.
CASES = {
    "counts, 12 deviations": (Poisson(), 2000.0, 6.9, 0.0025),  # 36 nats
    "counts, 26 deviations": (Poisson(), 457.0, 0.35, 0.0275),  # 1065
    "none, 29 deviations below": (Poisson(), 0.0, 8.0, 0.01),  # 826
    "overdispersed": (NegativeBinomial(50.0), 2000.0, 4.0, 0.0025),  # 195
    "positive": (Gamma(50.0), 5000.0, 0.0, 0.01),  # 1502
    "nearly normal": (StudentT(1e6, 0.1), 5.0, 0.0, 0.01),  # 293
    "heavy tails, where the mode stays": (StudentT(4.0, 0.1), 5.0, 0.0, 0.01),
    "two modes": (StudentT(50.0, 0.1), 2.6, 0.0, 0.01),
    "shares": (Beta(200.0), 0.99, -2.0, 0.01),  # 115
    "labels": (Bernoulli("probit"), 1.0, -9.0, 0.1),
    "nothing unusual": (Poisson(), 3.0, 0.3, 0.5),
}


def on_the_grid(likelihood, y, mean, variance):
    f = mean + jnp.sqrt(variance) * GRID
    return logsumexp(likelihood.log_prob(jnp.broadcast_to(y, f.shape), f) + LOG_WEIGHTS)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_density_and_gradient_of_an_outlier(name):
    likelihood, y, *moments = CASES[name]
    y = jnp.asarray(y, int if isinstance(likelihood, Bernoulli) else float)
    moments = [jnp.asarray(part) for part in moments]
    # One program for values and gradients of both.
    both = jax.jit(
        lambda *moments: [
            jax.value_and_grad(lambda m, s, density=density: density(y, m, s), argnums=(0, 1))(*moments)
            for density in (likelihood.predictive_log_prob, lambda *given: on_the_grid(likelihood, *given))
        ]
    )
    (value, gradient), (wanted, wanted_gradient) = both(*moments)
    np.testing.assert_allclose(value, wanted, atol=5e-6)
    np.testing.assert_allclose(gradient, wanted_gradient, rtol=1e-5)


@pytest.mark.long
def test_noise_that_explains_an_outlier_is_far_from_its_mean():
    """A residual of 50 under noise of 0.37, known to a tenth in the logarithm: 3339 nats too few within 8 deviations."""
    mean, covariance = jnp.array([0.0, -2.0]), jnp.array([[0.1, 0.02], [0.02, 0.01]])
    for y, shared in ((50.0, 0.0), (5.0, 0.02)):
        own = covariance.at[[0, 1], [1, 0]].set(shared)
        found = HeteroscedasticGaussian().predictive_log_prob(y, mean, jnp.diag(own), covariance=own)
        noise, rest = np.exp(-2.0 + 0.1 * GRID), 0.1 - shared**2 / 0.01
        residual = y - shared / 0.1 * GRID
        terms = -0.5 * (np.log(2 * np.pi * (rest + noise)) + residual**2 / (rest + noise))
        np.testing.assert_allclose(found, logsumexp(terms + LOG_WEIGHTS), atol=5e-6)


@pytest.mark.long
def test_outliers_in_single_precision():
    """Where the normal density itself underflows: 1e-147 at 26 deviations."""
    found = Poisson().predictive_log_prob(*map(jnp.float32, (457.0, 0.35, 0.0275)))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, on_the_grid(Poisson(), 457.0, 0.35, 0.0275), rtol=2e-6)


def of_student_t(df, scale, y):
    """Log density, its mean slope and half its curvature, by Gauss-Legendre on panels about both peaks (NumPy)."""
    x, w = np.polynomial.legendre.leggauss(40)
    off = np.concatenate([[0.0], scale * np.logspace(-1, 7, 25)])
    edges = np.unique(np.concatenate([np.arange(-12.0, y + 12.1, 0.5), y - off, y + off]))
    edges = edges[(edges >= -12) & (edges <= y + 12)]
    half = 0.5 * np.diff(edges)[:, None]
    f = (edges[:-1, None] + half + half * x).ravel()
    terms = stats.t.logpdf(y, df, f, scale) + stats.norm.logpdf(f) + np.log((half * w).ravel())
    value = special.logsumexp(terms)
    weights = np.exp(terms - value)
    return value, weights @ f, 0.5 * weights @ (f**2 - 1)


@pytest.mark.long
def test_a_narrow_peak_may_hold_less_than_the_bulk():
    """Noise narrow beside the latent deviation, an outlier 9 to 20 of these away: 3.6 nats too few by the higher."""
    cases = [(10.0, 1e-3, 13.5), (10.0, 1e-4, 15.0), (10.0, 1e-4, 15.5), (4.0, 1e-4, 10.25), (30.0, 0.1, 14.0)]
    cases += [(30.0, 0.1, 11.5), (2.0, 1e-2, 9.0), (30.0, 0.45, 20.0), (10.0, 1e-2, -11.25), (10.0, 1e-2, 3.1)]
    df, scale, y = np.array(cases).T
    wanted = np.array([of_student_t(d, s, abs(t)) for d, s, t in cases]).T
    wanted[1] *= np.sign(y)

    @jax.jit
    def found(df, scale, y, mean, variance):
        density = lambda m, s: StudentT(df, scale).predictive_log_prob(y, m, s)  # noqa: E731
        value, slopes = jax.vjp(density, mean, variance)
        return jnp.stack([value, *slopes(jnp.ones_like(value))])

    for dtype, bound in ((np.float64, 1e-3), (np.float32, 1e-2)):
        of_both = found(*(np.asarray(a, dtype) for a in (df, scale, y, np.zeros_like(y), np.ones_like(y))))
        assert of_both.dtype == dtype
        np.testing.assert_allclose(of_both[0], wanted[0], atol=bound)
        np.testing.assert_allclose(of_both[1:], wanted[1:], rtol=bound, atol=bound)
