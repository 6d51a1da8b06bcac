"""Densities of named families at draws, against SciPy's distributions and integrals."""

import numpy as np
import pytest

from numpyro_gp.gam.model.families import NAMED
from tests.gam.known import LAWS, log_density
from tests.likelihoods.grids import expected

F = np.array([[-1.2], [0.4]])  # two draws
DATA = {"gaussian": [-0.3, 0.8], "student_t": [-0.3, 6.0], "bernoulli": [0.0, 1.0], "binomial": [0.0, 3.0, 7.0]}
DATA |= {"gamma": [0.2, 1.7], "exponential": [0.2, 1.7], "beta": [0.02, 0.7]}
PARAMETERS = {"binomial": [np.full((2, 1), 7.0)], "student_t": [np.array([[1.7], [6.0]]), np.array([[0.7], [1.9]])]}
PARAMETERS |= {name: [np.array([[0.7], [1.9]])] for name in ("gaussian", "negative_binomial", "gamma", "beta")}


@pytest.mark.parametrize("name", LAWS)
def test_they_and_their_expectations_are_those_of_scipy(name):
    """Over ``f`` of variances on both sides of where rules change, of all draws, data and variances together."""
    own, y, variance = NAMED[name], np.array(DATA.get(name, [0.0, 1.0, 7.0])), np.array([0.3, 2.5])
    parameters = PARAMETERS.get(name, [])
    law = LAWS[name](F, *parameters)
    np.testing.assert_allclose(
        own.log_prob(y, F, *parameters), log_density(name, y, F, *parameters), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(own.until(y, F, *parameters), law.cdf(y), rtol=1e-10)
    assert own.is_discrete == hasattr(law, "pmf")
    found, means = own.expect(np.full(2, y[-1]), F, variance, *parameters), own.mean(F, variance, *parameters)
    for draw in range(2):
        numbers = [one[draw] for one in parameters]
        log = expected(lambda f: log_density(name, y[-1], f, *numbers), F[draw], variance)  # noqa: B023
        np.testing.assert_allclose(found[draw], log, rtol=1e-6)
        mean = expected(lambda f: LAWS[name](f, *numbers).mean(), F[draw], variance)  # noqa: B023
        np.testing.assert_allclose(means[draw], mean, rtol=1e-6)
