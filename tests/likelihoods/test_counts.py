"""Counts and successes among trials of large numbers, in single precision, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit

from numpyro_gp.likelihoods import Binomial, Censored, NegativeBinomial, PointPattern, Poisson
from tests.precision import x64


@pytest.mark.parametrize("rate", [20.0, 3e6, 4e9])
def test_draws_have_the_law_of_scipy_in_single_precision(rate):
    """Saturated at 2^31 - 1 before, and 1.2 times too wide from 1e8 on: 4 standard errors of 20000 draws."""
    with x64(False):
        f = jnp.full(20000, np.log(rate), jnp.float32)
        mean = float(jnp.exp(f[0]))
        for likelihood, law in (
            (Poisson(), stats.poisson(mean)),
            (Censored(Poisson(), right=True), stats.poisson(mean)),
            (PointPattern(2.0), stats.poisson(2 * mean)),
            (NegativeBinomial(2.0), stats.nbinom(2, 2 / (2 + mean))),
        ):
            drawn = np.asarray(likelihood.draw(jax.random.key(0), f), float)
            np.testing.assert_array_equal(drawn, np.round(drawn))
            levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
            # The share below a quantile, of whole numbers that of all not above it.
            share = np.array([(drawn <= q).mean() for q in law.ppf(levels)])
            np.testing.assert_allclose(share, law.cdf(law.ppf(levels)), atol=4 * 0.5 / np.sqrt(20000))


def test_rates_that_are_no_number_or_infinite_have_no_other_draws():
    drawn = Poisson().draw(jax.random.key(0), jnp.array([jnp.nan, jnp.inf, -jnp.inf]))
    np.testing.assert_array_equal(drawn, [np.nan, np.inf, 0.0])


def test_single_precision_knows_many_trials():
    """A million trials: their logarithms of factorials alone are 1e7, of which float32 has steps of one."""
    y, n, f = (np.full(5, x, np.float32) for x in (300_100, 1_000_000, -0.8468))
    found = Binomial(n).expected_log_prob(y, f, np.full(5, 1e-8, np.float32))
    exact = stats.binom.logpmf(300_100, 1_000_000, expit(float(f[0])))
    exact -= 0.5e-8 * 1e6 * expit(float(f[0])) * expit(-float(f[0]))
    assert found.dtype == np.float32
    assert_allclose(found, exact, atol=0.02)


def test_the_variance_of_a_share_near_one_keeps_its_digits_in_single_precision():
    f = np.linspace(-14.0, 14.0, 15, dtype=np.float32)
    found = Binomial(np.float32(1e6)).predictive_variance(f, np.zeros_like(f))
    share = expit(-np.abs(f.astype(float)))
    assert found.dtype == np.float32
    assert_allclose(found, 1e6 * share * (1 - share), rtol=1e-2)


@pytest.mark.parametrize(
    ("trials", "share"), [(30, 0.8), (10**8, 0.3), (10**8, 1e-6), (10**8, 1 - 2.0**-8), (10**10, 0.5)]
)
def test_draws_of_many_trials_have_the_law_of_scipy_in_single_precision(trials, share):
    with x64(False):
        f = jnp.full(20000, np.log(share / (1 - share)), jnp.float32)
        drawn = np.asarray(Binomial(float(trials)).draw(jax.random.key(0), f), float)
    law = stats.binom(trials, expit(float(f[0])))
    levels = law.ppf([0.05, 0.25, 0.5, 0.75, 0.95])
    step = max(np.spacing(np.float32(levels[0])) / 2, 0)  # of the type, which large numbers are rounded to
    assert_allclose([(drawn <= q + step).mean() for q in levels], law.cdf(levels), atol=4 * 0.5 / np.sqrt(20000) + 0.01)
    assert drawn.min() >= 0
    assert drawn.max() <= trials


def test_large_rates_overflow_only_beyond_the_range_of_the_precision():
    found = Poisson().expected_log_prob(jnp.float32(1.0), jnp.float32(80.0), jnp.array([10.0, 20.0], jnp.float32))
    np.testing.assert_array_equal(np.isneginf(found), [False, True])
