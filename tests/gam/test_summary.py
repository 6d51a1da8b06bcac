"""Deviances against log densities of SciPy, and the table as text and HTML; what it holds is in test_shares."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.gam.answers.summary import deviance_explained, null_mean
from numpyro_gp.gam.model.families import NAMED
from numpyro_gp.gam.model.family import as_family
from tests.gam.known import log_density


def test_deviances_are_twice_the_log_density_that_is_lost():
    """Of ``f`` at ``log y`` and at the logarithm of the mean."""
    y, mean = np.array([0.0, 2.0, 7.0]), np.array([0.5, 2.5, 4.0])
    for name, at, *numbers in (("poisson", y), ("negative_binomial", y, 3.0), ("gamma", y + 1, 1.0)):
        density = lambda mean: log_density(name, at, np.log(mean), *numbers)  # noqa: B023, E731
        lost = density(np.maximum(at, 1e-300)) - density(mean)
        np.testing.assert_allclose(NAMED[name].deviance(at, mean, *(numbers or [np.nan])), 2 * lost, rtol=1e-9)
    labels, share = np.array([0.0, 1.0]), np.array([0.2, 0.3])
    np.testing.assert_allclose(
        NAMED["bernoulli"].deviance(labels, share, np.nan), -2 * stats.bernoulli(share).logpmf(labels)
    )
    model = ngp.gam.model("y ~ 1", {"y": share}, "beta")
    assert np.isnan(deviance_explained(model, share, np.nan))


def test_deviance_explained_of_gaussian_data_is_r_squared_and_nothing_is_beyond_an_offset():
    """``y`` is ten times ``e`` and noise: an offset of that, and a constant, fit as well as ``fitted``."""
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=200), "e10": 10 * rng.normal(size=200)}
    y = data["y"] = data["e10"] + rng.normal(size=200)
    wanted = 1 - np.sum((0.5 * y) ** 2) / np.sum((y - y.mean()) ** 2)
    found = deviance_explained(ngp.gam.model("y ~ linear(x)", data), 0.5 * y, np.nan)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    weights = rng.uniform(0.5, 2.0, 200)
    model = ngp.gam.model("y ~ s(x) + offset(e10)", data, weights=weights)
    fitted = data["e10"] + np.average(y - data["e10"], weights=weights)
    np.testing.assert_allclose(deviance_explained(model, fitted, np.nan), 0.0, atol=1e-12)


@pytest.mark.parametrize("name", ["logit", "probit", "poisson", "gamma", "negative_binomial"])
def test_the_constant_beside_an_offset_is_the_likeliest(name):
    """By a search for the smallest deviance, in one number."""
    rng = np.random.default_rng(1)
    offset, weights, r = 2 * rng.normal(size=150), rng.uniform(0.5, 2.0, 150), 2.0
    inverse = {"logit": expit, "probit": stats.norm.cdf}.get(name, np.exp)
    family = as_family(ngp.likelihoods.Bernoulli(name) if inverse is not np.exp else name)
    mean = inverse(0.7 + offset)
    y = (rng.uniform(size=150) < mean).astype(float) if inverse is not np.exp else mean * rng.gamma(2.0, 0.5, 150)
    y = np.round(y) if name in ("poisson", "negative_binomial") else y

    def deviance(constant):
        return np.sum(weights * family.row.deviance(y, inverse(constant + offset), r))

    best = minimize_scalar(deviance, bracket=(0.0, 1.0), tol=1e-9).x
    found = null_mean(family, y, offset, weights, r)
    np.testing.assert_allclose(found, inverse(best + offset), rtol=1e-5)
    np.testing.assert_allclose(null_mean(family, y, 0 * offset, weights, r), np.average(y, weights=weights))
    if family.name in ("bernoulli", "Bernoulli", "poisson"):  # of one value it is the mean
        np.testing.assert_array_equal(null_mean(family, 0 * y, offset, weights, r), 0 * y)


def test_a_summary_has_slopes_groups_and_what_was_left_out_by_column():
    rng = np.random.default_rng(2)
    data = {"x": rng.normal(size=60), "g": rng.choice(list("abc"), 60).astype(object), "e": rng.uniform(1, 2, 60)}
    data["y"] = 2 * data["x"] + 0.1 * rng.normal(size=60)
    data["x"][:3], data["g"][2:4], data["y"][-1] = np.nan, None, np.nan
    fit = ngp.gam("y ~ linear(x) + s(e) + re(g)", data)
    facts, table = fit.summary(check=False, density=False).facts, fit.coefficients()
    assert facts["rows"] == "55 used, 5 left out (3 without x, 2 without g, 1 without y)"
    for name in ("linear(x)", "sd of re(g)"):
        row = table[name]
        assert facts[name] == f"{row.estimate:.4g} ± {row.sd:.2g} ({row.low:.4g} to {row.high:.4g})"


def test_the_density_of_a_transformed_response_names_it():
    """It is no density of the response itself, which another summary has under the same words."""
    x = np.linspace(0.0, 3.0, 40)
    table = {"x": x, "y": np.exp(np.sin(x) + 0.1 * np.cos(7 * x))}
    assert "per row, of log(y)" in str(ngp.gam("log(y) ~ s(x)", table).summary(check=False))
    assert "of log(y)" not in str(ngp.gam("y ~ s(x)", table).summary(check=False))
