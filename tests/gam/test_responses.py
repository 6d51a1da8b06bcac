"""Moments and quantiles of new data by NumPy, beside the likelihoods of the library and SciPy."""

import numpy as np
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.mean_gamma import MeanGamma
from numpyro_gp.gam.responses import NewData
from tests.gam.known import repeated

LIKELIHOODS = [
    ngp.likelihoods.Gaussian(0.4),
    ngp.likelihoods.StudentT(5.0, 0.4),
    ngp.likelihoods.Poisson(),
    ngp.likelihoods.NegativeBinomial(2.0),
    ngp.likelihoods.Gamma(3.0),
    MeanGamma(3.0),
    ngp.likelihoods.Exponential(),
    ngp.likelihoods.Bernoulli(),
    ngp.likelihoods.Bernoulli(link="probit"),
    ngp.likelihoods.Beta(7.0),
]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: f"{type(one).__name__} {getattr(one, 'link', '')}")
def test_moments_and_quantiles(likelihood):
    mean, variance = np.array([[0.2, -1.0], [0.7, 0.1]]), np.array([[0.3, 0.01], [0.5, 1.0]])
    new_data = NewData(repeated(likelihood, 2))
    found = new_data.moments(mean, variance)
    means, variances = (np.asarray(one) for one in _of_library(likelihood, mean, variance))
    np.testing.assert_allclose(found[0], means.mean(0), rtol=1e-4)
    np.testing.assert_allclose(found[1], variances.mean(0) + means.var(0), rtol=1e-4)

    # Of data at f = 0.2 without doubt, by SciPy.
    level = np.array([0.3, 0.9])
    own = new_data.quantiles(np.full((2, 1), 0.2), np.full((2, 1), 1e-16), level)[:, 0]
    wanted = KNOWN[type(likelihood).__name__, getattr(likelihood, "link", "")](np.exp(0.2)).ppf(level)
    np.testing.assert_allclose(own, wanted, rtol=0.12, atol=0.05)


@pytest.mark.parametrize("likelihood", [ngp.likelihoods.Poisson(), ngp.likelihoods.Bernoulli()])
def test_quantiles_of_counts_and_labels_are_whole(likelihood):
    every = NewData(repeated(likelihood, 2)).quantiles(np.ones((2, 3)), np.ones((2, 3)), np.linspace(0.001, 0.999, 999))
    np.testing.assert_array_equal(every, np.round(every))


def _of_library(likelihood, mean, variance):
    return likelihood.predictive_mean(mean, variance), likelihood.predictive_variance(mean, variance)


KNOWN = {
    ("Gaussian", ""): lambda _: stats.norm(0.2, 0.4),
    ("StudentT", ""): lambda _: stats.t(5.0, 0.2, 0.4),
    ("Poisson", ""): stats.poisson,
    ("NegativeBinomial", ""): lambda mean: stats.nbinom(2.0, 2.0 / (2.0 + mean)),
    ("Gamma", ""): lambda mean: stats.gamma(3.0, scale=mean),
    ("MeanGamma", ""): lambda mean: stats.gamma(3.0, scale=mean / 3),
    ("Exponential", ""): lambda mean: stats.expon(scale=mean),
    ("Bernoulli", "logit"): lambda mean: stats.bernoulli(mean / (1 + mean)),
    ("Bernoulli", "probit"): lambda _: stats.bernoulli(stats.norm.cdf(0.2)),
    ("Beta", "logit"): lambda mean: stats.beta(7 * mean / (1 + mean), 7 / (1 + mean)),
}


def test_likelihoods_that_it_does_not_know():
    with pytest.raises(ValueError, match=r"must be one of .*'Poisson'.*, but got Ordinal\. Take fit\.predict"):
        NewData(ngp.likelihoods.Ordinal(np.array([0.0, 1.0])))
    with pytest.raises(ValueError, match="of one number for all rows, but got one for each row"):
        NewData(repeated(ngp.likelihoods.Gaussian(np.ones(3)), 2))
