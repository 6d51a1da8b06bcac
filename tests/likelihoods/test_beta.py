"""The beta likelihood against SciPy, and where its mean rounds to zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from numpyro_gp.likelihoods import Beta
from tests.likelihoods.compiled import Compiled


@pytest.mark.long
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_beta_against_scipy(link):
    cdf, k = (special.expit if link == "logit" else special.ndtr), 7.0
    likelihood = Compiled(Beta(k, link))
    for y, mean, variance in ((0.3, 0.5, 0.8), (0.99, -1.0, 0.3), (0.01, 0.2, 2.0), (0.5, 3.0, 5.0)):

        def expectation(fun, mean=mean, variance=variance):
            return integrate.quad(
                lambda z: fun(mean + np.sqrt(variance) * z) * stats.norm.pdf(z),
                -9,
                9,
                points=[-4, -1, 0, 1, 4],
                epsabs=1e-13,
                epsrel=1e-12,
                limit=400,
            )[0]

        def log_density(f, y=y):
            return stats.beta.logpdf(y, cdf(f) * k, cdf(-f) * k)

        first = expectation(cdf)
        second = expectation(lambda f: cdf(f) * cdf(-f) / (1 + k) + cdf(f) ** 2) - first**2
        assert_allclose(likelihood.expected_log_prob(y, mean, variance), expectation(log_density), atol=1e-7)
        mass = expectation(lambda f: np.exp(log_density(f)))
        assert_allclose(likelihood.predictive_log_prob(y, mean, variance), np.log(mass), atol=1e-6)
        assert_allclose(likelihood.predictive_mean(mean, variance), first, atol=1e-9)
        assert_allclose(likelihood.predictive_variance(mean, variance), second, atol=1e-9)  # E m (1 - m) alone: 1e-2


@pytest.mark.long
def test_beta_is_finite_where_its_mean_rounds_to_zero():
    found = jax.value_and_grad(Beta(3.0).expected_log_prob, argnums=1)(
        jnp.float32(0.5), jnp.float32(-150.0), jnp.float32(1.0)
    )
    assert np.isfinite(found).all()
    assert_allclose(found[1], 1.0, rtol=1e-5)  # log p ~ f there
