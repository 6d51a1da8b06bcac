"""Zero-inflated counts against SciPy's quadrature of the mixture, typed out.

Gradients, moments, jit, vmap, pickling and the order of the two quantities: `tests/contracts/test_likelihoods.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
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
