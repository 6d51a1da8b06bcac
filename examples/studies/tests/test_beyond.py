"""The pieces of `beyond` that its numbers stand on: an interval with soft edges, the choice, the verdict."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import logistic

from examples.studies.peers.beyond import Interval

pytestmark = pytest.mark.experiments

LOW, HIGH, SCALE = -0.4, 1.1, 0.2


def density(value):
    """``int_low^high logistic(value - u) du / (high - low)``."""
    return quad(lambda u: logistic.pdf(value, u, SCALE), LOW, HIGH, epsabs=1e-12)[0] / (HIGH - LOW)


def test_interval_is_a_uniform_with_logistic_noise():
    values = np.array([-3.0, -0.4, 0.3, 1.0, 1.1, 2.5])
    found = jnp.exp(Interval(LOW, HIGH, SCALE).log_prob(jnp.asarray(values)))
    np.testing.assert_allclose(found, [density(value) for value in values], rtol=1e-6)


def test_moments_of_the_interval():
    interval = Interval(LOW, HIGH, SCALE)
    value = np.linspace(-8, 9, 4001)
    inside = (logistic.cdf(value, LOW, SCALE) - logistic.cdf(value, HIGH, SCALE)) / (HIGH - LOW)
    moments = [np.trapezoid(value**k * inside, value) for k in (1, 2)]
    np.testing.assert_allclose(interval.mean, moments[0], atol=1e-6)
    np.testing.assert_allclose(interval.variance, moments[1] - moments[0] ** 2, atol=1e-6)
    draws = interval.sample(jax.random.key(0), (20_000,))
    error = np.sqrt(interval.variance / 20_000)
    assert abs(draws.mean() - interval.mean) < 5 * error
    assert abs(draws.std() - np.sqrt(interval.variance)) < 5 * error  # without the noise it is 0.08 less
