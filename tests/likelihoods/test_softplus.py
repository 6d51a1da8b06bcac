"""Expectations of ``log(1 + e^f)`` under wide normals, against sums over a grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import gammaln

from numpyro_gp.likelihoods import Bernoulli, NegativeBinomial
from numpyro_gp.likelihoods.links import SHARES, SPREADS, expected_softplus, softplus_moments
from tests.likelihoods.grids import expected
from tests.precision import x64

MEAN, VARIANCE = (part.ravel() for part in np.meshgrid([-30.0, -9.0, -2.0, 0.0, 0.7, 6.0, 25.0], [1.0, 3.0, 36.0]))


def test_the_expectation_and_its_slopes():
    """In JAX and NumPy: the slope in the mean is ``E sigmoid``, that in the variance half of its slope."""
    functions = lambda f: np.logaddexp(0, f), stats.logistic.cdf, stats.logistic.pdf
    wanted = [expected(fun, MEAN, VARIANCE) for fun in functions]
    for found, exact in zip(softplus_moments(MEAN, VARIANCE, np), wanted, strict=True):
        assert_allclose(found, exact, rtol=1e-9, atol=1e-9)
    value, (of_mean, of_variance) = jax.vmap(jax.value_and_grad(expected_softplus, (0, 1)))(MEAN, VARIANCE)
    for found, exact in zip((value, of_mean, 2 * of_variance), wanted, strict=True):
        assert_allclose(found, exact, rtol=1e-9, atol=1e-9)


def test_the_mixture_is_the_logistic_distribution():
    """Of its moments the even ones say it: ``E (2 k)^2 = pi^2 / 3``, and a third of the fourth moment, ``7 pi^4 / 15``."""
    shares, spreads = np.array(SHARES), np.array(SPREADS)
    assert_allclose(shares.sum(), 1, rtol=1e-14)
    assert_allclose(shares @ spreads**2, np.pi**2 / 3, rtol=1e-9)
    assert_allclose(3 * shares @ spreads**4, 7 * np.pi**4 / 15, rtol=1e-9)


@pytest.mark.parametrize("is_double", [True, False])
def test_labels_under_wide_functions(is_double):
    """20 nodes are off by 6e-3 at a variance of 30, and their slope in the variance by 5e-3 of itself at 8."""
    mean, variance, y = np.array([[-2.0, 0.3, 2.0, 0.7], [0.9, 1.1, 8.0, 36.0], [1.0, 0.0, 1.0, 0.0]])
    exact = expected(lambda f: -np.logaddexp(0, (1 - 2 * y) * f), mean, variance)
    slopes = -0.5 * expected(stats.logistic.pdf, mean, variance)
    with x64(is_double):
        given = [jnp.asarray(one, float) for one in (y, mean, variance)]
        found = jax.jit(jax.vmap(jax.value_and_grad(Bernoulli().expected_log_prob, 2)))(*given)
    assert_allclose(found[0], exact, rtol=1e-9 if is_double else 2e-6)
    assert_allclose(found[1], slopes, rtol=1e-7 if is_double else 1e-4)


@pytest.mark.parametrize("is_double", [True, False])
def test_counts_under_wide_functions(is_double):
    """20 nodes are off by 0.8 nat for a count of 20000 at variance 9, and by tens of nats at 36."""
    rows = [(20000.0, 4.0, 9.0, 8.0), (20000.0, 4.0, 36.0, 8.0), (0.0, 2.0, 16.0, 1.0), (30.0, 1e6, 4.0, 3.0)]
    y, r, variance, mean = np.array(rows).T

    def log_prob(f):
        constant = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
        return constant + y * (f - np.log(r)) - (y + r) * np.logaddexp(0, f - np.log(r))

    with x64(is_double):
        given = (jnp.asarray(part, float) for part in (r, y, mean, variance))
        found = jax.jit(lambda r, *given: NegativeBinomial(r).expected_log_prob(*given))(*given)
    assert_allclose(found, expected(log_prob, mean, variance), rtol=1e-7 if is_double else 2e-5)
