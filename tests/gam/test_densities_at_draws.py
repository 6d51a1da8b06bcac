"""Densities of named families at draws, against SciPy's distributions and integrals."""

import numpy as np
import pytest
from scipy import integrate, stats

from numpyro_gp.gam.densities_at_draws import AT_DRAWS
from numpyro_gp.gam.family import NAMED, PARAMETERS, Start
from numpyro_gp.likelihoods import Likelihood

F = np.array([[-1.2], [0.4]])  # two draws
DISTRIBUTIONS = {
    "gaussian": (lambda f, scale: stats.norm(f, scale), [-0.3, 0.8]),
    "poisson": (lambda f: stats.poisson(np.exp(f)), [0.0, 1.0, 7.0]),
    "negative_binomial": (lambda f, r: stats.nbinom(r, r / (r + np.exp(f))), [0.0, 1.0, 7.0]),
    "bernoulli": (lambda f: stats.bernoulli(1 / (1 + np.exp(-f))), [0.0, 1.0]),
    "gamma": (lambda f, a: stats.gamma(a, scale=np.exp(f) / a), [0.2, 1.7]),
    "exponential": (lambda f: stats.expon(scale=np.exp(f)), [0.2, 1.7]),
}


@pytest.mark.parametrize("name", AT_DRAWS)
def test_they_are_those_of_scipy(name):
    make, data = DISTRIBUTIONS[name]
    own, y = AT_DRAWS[name], np.array(data)
    parameter = [np.array([[0.7], [1.9]])] * len(PARAMETERS[name](Start()))
    given = make(F, *parameter)
    is_discrete = hasattr(given, "pmf")
    log_prob = given.logpmf(y) if is_discrete else given.logpdf(y)
    np.testing.assert_allclose(own.log_prob(y, F, *parameter), log_prob, rtol=1e-10, atol=1e-12)
    until, before = own.below(y, F, *parameter)
    np.testing.assert_allclose(until, given.cdf(y), rtol=1e-10)
    np.testing.assert_allclose(before, given.cdf(y - 1) if is_discrete else until, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("name", AT_DRAWS)
def test_expectations_are_integrals(name):
    """Over ``f`` of variances on both sides of where rules change, of all draws, data and variances together."""
    make, data = DISTRIBUTIONS[name]
    own, y, variance = AT_DRAWS[name], data[-1], np.array([0.3, 2.5])
    parameter = [np.array([[0.7], [1.9]])] * len(PARAMETERS[name](Start()))
    expected = own.expected(np.full(2, y), F, variance, *parameter).value
    mean = own.mean(F, variance)
    for draw, place in np.ndindex(2, 2):
        numbers = [float(one[draw, 0]) for one in parameter]
        normal = stats.norm(F[draw, 0], np.sqrt(variance[place]))
        f = np.linspace(*normal.ppf([1e-14, 1 - 1e-14]), 20_001)
        given = make(f, *numbers)
        log_prob = given.logpmf(y) if hasattr(given, "pmf") else given.logpdf(y)
        wanted = [integrate.trapezoid(normal.pdf(f) * what, f) for what in (log_prob, given.mean())]
        np.testing.assert_allclose([expected[draw, place], mean[draw, place]], wanted, rtol=1e-6)


def test_all_of_them_are_families_with_at_most_one_parameter():
    assert set(AT_DRAWS) <= set(NAMED)
    assert all(len(PARAMETERS[name](Start())) <= 1 for name in AT_DRAWS)
    assert all(issubclass(NAMED[name], Likelihood) for name in AT_DRAWS)
