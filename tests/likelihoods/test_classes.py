"""Two classes and ordered classes against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from numpyro_gp.likelihoods import Bernoulli, NegativeBinomial, Ordinal
from tests.likelihoods.compiled import Compiled
from tests.likelihoods.grids import MASS, NODES

CUTPOINTS = np.array([-1.0, 0.2, 0.25, 2.0])


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_bernoulli_far_in_the_tail(link):
    """Logarithms of probabilities that round to zero: ``-f`` for logit, ``log ndtr(-40)`` for probit."""
    found = Bernoulli(link).expected_log_prob(0, 40.0, 1e-8)
    assert_allclose(found, -40.0 if link == "logit" else special.log_ndtr(-40.0), rtol=1e-7)
    assert_allclose(Bernoulli(link).conditional(jnp.array(-40.0)).log_prob(1), found, rtol=1e-6)


def test_slopes_in_a_variance_of_one_are_whole():
    """There two rules meet: a minimum of the variance and one has half a slope."""
    slopes = {
        "logit": -stats.logistic.pdf(NODES),
        "probit": -np.exp(stats.norm.logpdf(NODES) - special.log_ndtr(NODES)),
    }
    slopes["probit"] *= NODES - slopes["probit"]
    for link, slope in slopes.items():
        found = jax.grad(Bernoulli(link).expected_log_prob, 2)(1.0, 0.0, 1.0)
        assert_allclose(found, 0.5 * MASS @ slope, rtol=1e-6)
    share = special.expit(NODES - np.log(3.0))
    found = jax.grad(NegativeBinomial(3.0).expected_log_prob, 2)(2.0, 0.0, 1.0)
    assert_allclose(found, -0.5 * 5.0 * MASS @ (share * (1 - share)), rtol=1e-6)


@pytest.mark.long
def test_bernoulli_logit_predictive_of_a_wide_latent_marginal():
    exact = integrate.quad(lambda z: special.expit(1 + 30 * z) * stats.norm.pdf(z), -9, 9, points=[-0.1, 0, 0.1])[0]
    assert_allclose(Bernoulli().predictive_mean(1.0, 900.0), exact, atol=1e-8)
    assert_allclose(Bernoulli().predictive_log_prob(1, 1.0, 900.0), np.log(exact), atol=1e-8)


def interval(y, f, scale):
    edges = np.concatenate([[-np.inf], CUTPOINTS, [np.inf]])
    a, b = (edges[y] - f) / scale, (edges[y + 1] - f) / scale
    a, b = (-b, -a) if a + b > 0 else (a, b)
    return special.log_ndtr(b) + np.log(-np.expm1(special.log_ndtr(a) - special.log_ndtr(b)))


@pytest.mark.long
def test_ordinal_against_scipy():
    """The log mass bends within a twentieth of the latent deviation at each cutpoint."""
    scale, mean, variance = 0.05, 0.4, 1.3
    likelihood = Compiled(Ordinal(CUTPOINTS, scale))
    breaks = (CUTPOINTS[:, None] + scale * np.array([-10, -3, -1, 0, 1, 3, 10])).ravel()
    breaks = np.unique((np.concatenate([breaks, [mean]]) - mean) / np.sqrt(variance))
    gradient = jax.jit(jax.grad(likelihood.expected_log_prob, argnums=(1, 2)))
    for y in range(5):

        def expectation(power, y=y):
            def integrand(z):
                weight = {0: 1.0, 1: z / np.sqrt(variance), 2: (z**2 - 1) / (2 * variance)}[power]
                return weight * interval(y, mean + np.sqrt(variance) * z, scale) * stats.norm.pdf(z)

            return integrate.quad(integrand, -9, 9, points=breaks, epsabs=1e-10, epsrel=1e-10, limit=900)[0]

        assert_allclose(likelihood.expected_log_prob(y, mean, variance), expectation(0), atol=1e-6, rtol=1e-7)
        assert_allclose(gradient(y, mean, variance), [expectation(1), expectation(2)], rtol=1e-6)
        closed = interval(y, mean, np.sqrt(scale**2 + variance))
        assert_allclose(likelihood.predictive_log_prob(y, mean, variance), closed, atol=1e-12)


def test_ordinal_far_above_the_cutpoints_keeps_its_digits():
    """Both ends in the upper tail: their difference of distribution functions is zero without the reflection."""
    likelihood = Ordinal(np.array([20.0, 21.0]))
    assert_allclose(likelihood.conditional(jnp.array(0.0)).log_prob(1), special.log_ndtr(-20.0), rtol=1e-6)
    assert_allclose(likelihood.conditional(jnp.array(41.0)).log_prob(1), special.log_ndtr(-20.0), rtol=1e-6)


def test_a_label_that_is_certain_has_no_variance_below_zero():
    """In single precision the mean of squares of labels up to 100 has lost all digits of a small variance."""
    cutpoints, f = np.linspace(-3.0, 3.0, 101), np.linspace(-4.0, 8.0, 25)
    found = Ordinal(cutpoints.astype(np.float32)).predictive_variance(f.astype(np.float32), np.zeros(25, np.float32))
    above = special.ndtr(f[:, None] - cutpoints)
    masses = -np.diff(above, prepend=1.0, append=0.0, axis=1)
    labels = np.arange(102)
    expected = np.sum(masses * (labels - np.sum(masses * labels, axis=1, keepdims=True)) ** 2, axis=1)
    assert np.all(np.asarray(found) >= 0)
    assert_allclose(found, expected, rtol=2e-3, atol=1e-6)
