"""Links against SciPy, differences and quadrature; what is in NumPy and in JAX is the same."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit

from numpyro_gp.likelihoods.links import expected_mean, link_at, mean_of, slope_of
from numpyro_gp.likelihoods.quadrature import Latent

F = np.array([-2.0, -0.3, 0.0, 1.2])
INVERSES = {"identity": lambda f: f, "none": lambda f: f, "log": np.exp, "logit": expit, "probit": stats.norm.cdf}


@pytest.mark.parametrize("link", INVERSES)
def test_means_and_slopes(link):
    step, inverse = 1e-6, INVERSES[link]
    np.testing.assert_allclose(mean_of(link, F), inverse(F), rtol=1e-12)
    np.testing.assert_allclose(slope_of(link, F), (inverse(F + step) - inverse(F - step)) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_links_of_probabilities(link):
    """The link undoes its inverse, JAX says what NumPy says, and the expectation is that of quadrature."""
    assert mean_of(link, np.array(link_at(link, 0.8))) == pytest.approx(0.8)
    np.testing.assert_allclose(mean_of(link, jnp.asarray(F)), mean_of(link, F), rtol=1e-12)
    found = expected_mean(link, Latent(jnp.array([0.4]), jnp.array([2.0])))
    law, inverse = stats.norm(0.4, np.sqrt(2.0)), INVERSES[link]
    assert float(found[0]) == pytest.approx(quad(lambda f: law.pdf(f) * inverse(f), -15, 15)[0], rel=1e-6)
