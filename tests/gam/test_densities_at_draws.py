"""Densities of named families at draws, against SciPy's distributions and integrals."""

import numpy as np
import pytest

from numpyro_gp.gam.densities_at_draws import AT_DRAWS
from numpyro_gp.gam.family import NAMED, PARAMETERS, Start
from numpyro_gp.likelihoods import Likelihood
from tests.gam.known import LAWS, log_density
from tests.likelihoods.grids import expected

F = np.array([[-1.2], [0.4]])  # two draws
DATA = {"gaussian": [-0.3, 0.8], "bernoulli": [0.0, 1.0], "gamma": [0.2, 1.7], "exponential": [0.2, 1.7]}


@pytest.mark.parametrize("name", AT_DRAWS)
def test_they_and_their_expectations_are_those_of_scipy(name):
    """Over ``f`` of variances on both sides of where rules change, of all draws, data and variances together."""
    own, y, variance = AT_DRAWS[name], np.array(DATA.get(name, [0.0, 1.0, 7.0])), np.array([0.3, 2.5])
    count = len(PARAMETERS[name](Start()))
    assert count <= 1
    assert issubclass(NAMED[name], Likelihood)
    parameter = [np.array([[0.7], [1.9]])] * count
    law = LAWS[name](F, *parameter)
    np.testing.assert_allclose(
        own.log_prob(y, F, *parameter), log_density(name, y, F, *parameter), rtol=1e-10, atol=1e-12
    )
    until, before = own.below(y, F, *parameter)
    np.testing.assert_allclose(until, law.cdf(y), rtol=1e-10)
    np.testing.assert_allclose(before, law.cdf(y - 1) if hasattr(law, "pmf") else until, rtol=1e-10, atol=1e-15)
    found, means = own.expected(np.full(2, y[-1]), F, variance, *parameter).value, own.mean(F, variance)
    for draw in range(2):
        numbers = [one[draw] for one in parameter]
        log = expected(lambda f: log_density(name, y[-1], f, *numbers), F[draw], variance)  # noqa: B023
        np.testing.assert_allclose(found[draw], log, rtol=1e-6)
        mean = expected(lambda f: LAWS[name](f, *numbers).mean(), F[draw], variance)  # noqa: B023
        np.testing.assert_allclose(means[draw], mean, rtol=1e-6)
