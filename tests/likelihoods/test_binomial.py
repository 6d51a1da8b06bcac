"""Successes among trials, against SciPy and against labels."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.likelihoods import Binomial

TRIALS = np.array([1.0, 7.0, 7.0, 7.0, 400.0])
Y = np.array([1.0, 0.0, 7.0, 3.0, 390.0])
MEAN, VARIANCE = np.array([0.3, -2.0, 1.0, 0.5, 3.0]), np.array([0.4, 9.0, 0.02, 2.5, 0.6])


def expected(values):
    """``E values(f)`` of each datum, by SciPy's quadrature."""

    def one(at):
        mean, sd = MEAN[at], np.sqrt(VARIANCE[at])
        return integrate.quad(lambda z: stats.norm.pdf(z) * values(np.full(5, mean + sd * z))[at], -12, 12, limit=400)[
            0
        ]

    return np.array([one(at) for at in range(len(Y))])


@jax.jit
def numbers(likelihood, y, mean, variance):
    """All that a likelihood says, in one program."""
    moments = likelihood.predictive_mean(mean, variance), likelihood.predictive_variance(mean, variance)
    logs = likelihood.expected_log_prob(y, mean, variance), likelihood.predictive_log_prob(y, mean, variance)
    return likelihood.log_prob(y, mean), *logs, *moments


def test_expectations_are_those_of_scipy():
    log, expectation, mass, mean, variance = numbers(Binomial(TRIALS), Y, MEAN, VARIANCE)
    assert_allclose(log, stats.binom.logpmf(Y, TRIALS, expit(MEAN)), rtol=1e-10)
    assert_allclose(expectation, expected(lambda f: stats.binom.logpmf(Y, TRIALS, expit(f))), rtol=1e-7)
    assert_allclose(mass, np.log(expected(lambda f: stats.binom.pmf(Y, TRIALS, expit(f)))), rtol=1e-6)
    share = expected(expit)
    assert_allclose(mean, TRIALS * share, rtol=1e-8)
    within, between = expected(lambda f: expit(f) * expit(-f)), expected(lambda f: (expit(f) - share) ** 2)
    assert_allclose(variance, TRIALS * within + TRIALS**2 * between, rtol=1e-6)


def test_single_precision_knows_many_trials():
    """A million trials: their logarithms of factorials alone are 1e7, of which float32 has steps of one."""
    y, n, f = (np.full(5, x, np.float32) for x in (300_100, 1_000_000, -0.8468))
    found = np.asarray(numbers(Binomial(n), y, f, np.full(5, 1e-8, np.float32))[1])
    exact = stats.binom.logpmf(300_100, 1_000_000, expit(float(f[0])))
    exact -= 0.5e-8 * 1e6 * expit(float(f[0])) * expit(-float(f[0]))
    assert found.dtype == np.float32
    assert_allclose(found, exact, atol=0.02)


def test_a_model_observes_and_draws_successes():
    trials = jnp.array([3, 50])

    def model(y=None):
        with numpyro.plate("data", 2):
            f = numpyro.distributions.Normal(jnp.array([0.0, 1.0]), 0.1)
            ngp.observe("y", f, Binomial(trials), obs=y)

    drawn = jax.vmap(lambda key: numpyro.handlers.trace(numpyro.handlers.seed(model, key)).get_trace()["y"]["value"])(
        jax.random.split(jax.random.key(0), 300)
    )
    assert_allclose(drawn.mean(axis=0), [1.5, 36.5], rtol=0.1)
    assert (drawn >= 0).all()
    assert (np.asarray(drawn) <= np.asarray(trials)).all()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Binomial(2.5), "trials must be whole numbers from 1 on, but got 2.5"),
        (lambda: Binomial(np.array([3, 0])), "trials must be whole numbers from 1 on, but got 0"),
        (lambda: Binomial(3).check_targets([4.0]), "obs must be whole numbers from 0 to the trials, 3, but got 4"),
        (
            lambda: Binomial(np.array([3, 9])).check_targets([4.0, 4.0]),
            "obs must be whole numbers from 0 to the trials, but got 4",
        ),
        (lambda: Binomial(3).check_targets([0.5]), "obs must be whole .* got 0.5. y counts successes: multiply shares"),
    ],
)
def test_what_counts_no_successes_is_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()
