"""Moments and quantiles of new data by NumPy, beside the likelihoods of the library and SciPy."""

import numpy as np
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.answers.predictions import TableRowPredictor, formulas_of, new_moments, new_quantiles
from numpyro_gp.gam.model.families import MeanGamma
from tests.gam.known import LAWS, fit_of, repeated

L = ngp.likelihoods
KNOWN = [  # with data at f = 0.2 without doubt, by SciPy
    (L.Gaussian(0.4), LAWS["gaussian"](0.2, 0.4)),
    (L.StudentT(5.0, 0.4), LAWS["student_t"](0.2, 5.0, 0.4)),
    (L.Poisson(), LAWS["poisson"](0.2)),
    (L.NegativeBinomial(2.0), LAWS["negative_binomial"](0.2, 2.0)),
    (L.Gamma(3.0), stats.gamma(3.0, scale=np.exp(0.2))),
    (MeanGamma(3.0), LAWS["gamma"](0.2, 3.0)),
    (L.Exponential(), LAWS["exponential"](0.2)),
    (L.Bernoulli(), LAWS["bernoulli"](0.2)),
    (L.Bernoulli(link="probit"), stats.bernoulli(stats.norm.cdf(0.2))),
    (L.Beta(7.0), LAWS["beta"](0.2, 7.0)),
]


@pytest.mark.parametrize(("likelihood", "law"), KNOWN, ids=[type(own).__name__ for own, _ in KNOWN])
def test_moments_and_quantiles(likelihood, law):
    mean, variance = np.array([[0.2, -1.0], [0.7, 0.1]]), np.array([[0.3, 0.01], [0.5, 1.0]])
    at_draws, level = repeated(likelihood, 2), np.array([0.3, 0.9])
    found = new_moments(at_draws, mean, variance)
    means = np.asarray(likelihood.predictive_mean(mean, variance))
    variances = np.asarray(likelihood.predictive_variance(mean, variance))
    np.testing.assert_allclose(found[0], means.mean(0), rtol=1e-4)
    np.testing.assert_allclose(found[1], variances.mean(0) + means.var(0), rtol=1e-4)
    own = new_quantiles(at_draws, np.full((2, 1), 0.2), np.full((2, 1), 1e-16), level)[:, 0]
    np.testing.assert_allclose(own, law.ppf(level), rtol=0.12, atol=0.05)
    if hasattr(law, "pmf"):
        every = new_quantiles(at_draws, mean, variance, np.linspace(0.001, 0.999, 999))
        np.testing.assert_array_equal(every, np.round(every))


@pytest.mark.parametrize("likelihood", [ngp.likelihoods.Poisson(), ngp.likelihoods.NegativeBinomial(4.0)])
def test_counts_of_a_rate_that_no_generator_draws_are_normal(likelihood):
    """Far ahead NumPy refused: "lam value too large". At a rate of 1e18 the law is normal, of a mixture with gamma."""
    rate, levels = 1e18, np.array([0.05, 0.5, 0.95])
    law = stats.norm(rate, np.sqrt(rate)) if isinstance(likelihood, L.Poisson) else stats.gamma(4.0, scale=rate / 4)
    mean, variance = np.log([[rate, 2.0, np.inf]] * 2), np.full((2, 3), 1e-30)
    found = new_quantiles(repeated(likelihood, 2), mean, variance, levels, 20_000)
    np.testing.assert_allclose(law.cdf(found[:, 0]), levels, atol=0.02)
    np.testing.assert_array_equal(found, np.round(found))  # of a table with small rates too
    assert found[1, 1] in (1.0, 2.0)
    assert np.isfinite(found).all()


def test_likelihoods_that_it_does_not_know():
    with pytest.raises(ValueError, match=r"must be one of .*'Poisson'.*, but got Ordinal\. Take fit\.predict"):
        formulas_of(ngp.likelihoods.Ordinal(np.array([0.0, 1.0])))
    model = ngp.gam.model("y ~ x", {"x": np.arange(3.0), "y": np.array([0.0, 2.0, 1.0])})
    fit = fit_of(model, repeated(ngp.likelihoods.Gaussian(np.ones(3)), 2), 2, is_dense=True)
    with pytest.raises(ValueError, match="of one number for all rows, but got one for each row"):
        TableRowPredictor(fit._draws())
