"""Zero-inflated counts against SciPy's quadrature of the mixture, typed out; gradients, moments, targets.

jit, vmap, pickling and the order of the two quantities: `tests/contracts/test_likelihoods.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from models.own_likelihood import ZeroInflatedPoisson

GATE, TARGETS = 0.3, np.array([0.0, 0.0, 1.0, 5.0])
MEAN, VARIANCE = np.array([-0.5, 1.5, 0.8, 1.2]), np.array([0.3, 0.2, 0.5, 0.4])
OWN = ZeroInflatedPoisson(jnp.asarray(GATE))


def probability(y, f, gate=GATE):
    return gate * (y == 0) + (1 - gate) * scipy.stats.poisson.pmf(y, np.exp(f))


def average(function, mean, variance):
    density = scipy.stats.norm(mean, np.sqrt(variance)).pdf
    ends = mean - 7 * np.sqrt(variance), mean + 7 * np.sqrt(variance)
    return scipy.integrate.quad(lambda f: density(f) * function(f), *ends, epsabs=1e-12, limit=200)[0]


def by_scipy(y, mean, variance, gate=GATE):
    expected = average(lambda f: np.log(probability(y, f, gate)), mean, variance)
    return expected, np.log(average(lambda f: probability(y, f, gate), mean, variance))


@jax.jit
def both(likelihood, mean, variance):
    moments = TARGETS, mean, variance
    return jnp.stack([likelihood.expected_log_prob(*moments), likelihood.predictive_log_prob(*moments)])


def test_expectations_agree_with_scipy():
    """Twenty nodes at y = 0; a Poisson without its gate misses by more than 0.2."""
    wanted = np.array([by_scipy(*row) for row in zip(TARGETS, MEAN, VARIANCE)]).T
    np.testing.assert_allclose(both(OWN, MEAN, VARIANCE), wanted, atol=1e-6)
    plain = np.array([by_scipy(*row, 1e-12) for row in zip(TARGETS, MEAN, VARIANCE)]).T
    assert np.abs(plain - wanted).min() > 0.2


@pytest.mark.long
def test_gradients_agree_with_differences_of_scipy():
    gradients = jax.jit(jax.jacfwd(both, (0, 1, 2)))(OWN, MEAN, VARIANCE)
    step = 1e-4
    for row, (y, mean, variance) in enumerate(zip(TARGETS, MEAN, VARIANCE)):
        at = np.array([GATE, mean, variance])
        for which in range(3):
            ends = [at + sign * step * np.eye(3)[which] for sign in (1, -1)]
            high, low = (np.array(by_scipy(y, end[1], end[2], end[0])) for end in ends)
            got = gradients[0].gate[:, row] if which == 0 else gradients[which][:, row, row]
            np.testing.assert_allclose(got, (high - low) / (2 * step), atol=2e-4)


@pytest.mark.long
def test_moments_and_samples_are_those_of_the_mixture():
    counts = np.arange(60)
    mass = np.array([[average(lambda f, y=y: probability(y, f), m, v) for y in counts] for m, v in zip(MEAN, VARIANCE)])
    mean = mass @ counts
    np.testing.assert_allclose(OWN.predictive_mean(MEAN, VARIANCE), mean, rtol=1e-4)
    variance = mass @ counts**2 - mean**2
    np.testing.assert_allclose(OWN.predictive_variance(MEAN, VARIANCE), variance, rtol=2e-3)
    draws = OWN.conditional(jnp.full(4000, 1.2)).sample(jax.random.key(0))
    expected = probability(0, 1.2)
    assert abs(np.mean(np.asarray(draws) == 0) - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 4000)


def test_targets_must_be_counts():
    with pytest.raises(ValueError, match="obs must be non-negative whole numbers, but got -1"):
        OWN.check_targets(np.array([0.0, -1.0]))
