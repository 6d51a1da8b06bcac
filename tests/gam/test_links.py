"""Links against SciPy and differences, and the ratio of a mean to what the link says."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.gam.model.family import as_family, residuals_at
from numpyro_gp.likelihoods.links import slope_of

L = ngp.likelihoods
F = np.array([-2.0, -0.3, 0.0, 1.2])
INVERSES = {"identity": lambda f: f, "log": np.exp, "logit": expit, "probit": stats.norm.cdf}


@pytest.mark.parametrize("link", INVERSES)
def test_working_residuals_are_those_of_least_squares(link):
    """``(y - mean) / slope of the mean``, by a difference of the inverse link."""
    y, step, inverse = np.array([1.0, 0.0, 1.0, 0.0]), 1e-6, INVERSES[link]
    slope = (inverse(F + step) - inverse(F - step)) / (2 * step)
    np.testing.assert_allclose(residuals_at(link, F, y), (y - inverse(F)) / slope, rtol=1e-6)


@pytest.mark.parametrize(
    ("family", "link", "law"),
    [
        ("poisson", "log", stats.poisson),
        (L.NegativeBinomial(2.0), "log", lambda mean: stats.nbinom(3.0, 3.0 / (3.0 + mean))),
        ("gamma", "log", lambda mean: stats.gamma(1.0, scale=mean)),
        ("exponential", "log", lambda mean: stats.expon(scale=mean)),
        ("bernoulli", "logit", stats.bernoulli),
        (L.Bernoulli("probit"), "probit", stats.bernoulli),
        ("beta", "logit", stats.bernoulli),  # of a concentration of nothing
        ("gaussian", "identity", lambda mean: stats.norm(mean, 1.0)),
    ],
)
def test_weights_are_squared_slopes_over_variances(family, link, law):
    wanted = slope_of(link, F) ** 2 / law(INVERSES[link](F)).var()
    np.testing.assert_allclose(as_family(family).weights(F, 3.0), wanted, rtol=1e-10)


def test_far_labels_have_no_weight_and_finite_residuals():
    far = np.array([-60.0, 60.0])
    for link in ("logit", "probit"):
        assert as_family(L.Bernoulli(link)).weights(far).max() < 1e-20
        assert np.abs(residuals_at(link, far, np.array([1.0, 0.0]))).max() <= 1000
