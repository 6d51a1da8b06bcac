"""Successes among trials, against SciPy and against labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit

from numpyro_gp.likelihoods import Binomial
from tests.likelihoods.grids import expected
from tests.precision import x64

TRIALS = np.array([1.0, 7.0, 7.0, 7.0, 400.0])
Y = np.array([1.0, 0.0, 7.0, 3.0, 390.0])
MEAN, VARIANCE = np.array([0.3, -2.0, 1.0, 0.5, 3.0]), np.array([0.4, 9.0, 0.02, 2.5, 0.6])


@jax.jit
def numbers(likelihood, y, mean, variance):
    """All that a likelihood says, in one program."""
    moments = likelihood.predictive_mean(mean, variance), likelihood.predictive_variance(mean, variance)
    logs = likelihood.expected_log_prob(y, mean, variance), likelihood.predictive_log_prob(y, mean, variance)
    return likelihood.log_prob(y, mean), *logs, *moments


def test_expectations_are_those_of_scipy():
    log, expectation, mass, mean, variance = numbers(Binomial(TRIALS), Y, MEAN, VARIANCE)
    assert_allclose(log, stats.binom.logpmf(Y, TRIALS, expit(MEAN)), rtol=1e-10)
    assert_allclose(expectation, expected(lambda f: stats.binom.logpmf(Y, TRIALS, expit(f)), MEAN, VARIANCE), rtol=1e-7)
    assert_allclose(mass, np.log(expected(lambda f: stats.binom.pmf(Y, TRIALS, expit(f)), MEAN, VARIANCE)), rtol=1e-6)
    share = expected(expit, MEAN, VARIANCE)
    assert_allclose(mean, TRIALS * share, rtol=1e-8)
    spread = expected(lambda f: TRIALS * expit(f) * expit(-f) + TRIALS**2 * (expit(f) - share) ** 2, MEAN, VARIANCE)
    assert_allclose(variance, spread, rtol=1e-6)


def test_single_precision_knows_many_trials():
    """A million trials: their logarithms of factorials alone are 1e7, of which float32 has steps of one."""
    y, n, f = (np.full(5, x, np.float32) for x in (300_100, 1_000_000, -0.8468))
    found = np.asarray(numbers(Binomial(n), y, f, np.full(5, 1e-8, np.float32))[1])
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
