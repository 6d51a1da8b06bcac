"""What a fit gives: predictions for tables, a summary with all its parts, and a figure."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.model.model import offset_at
from numpyro_gp.likelihoods import as_likelihood
from tests.gam.known import fit_of

RNG = np.random.default_rng(0)
DATA = {"x": RNG.uniform(size=40), "g": np.array(list("abcd") * 10), "e": RNG.uniform(1, 2, 40)}
DATA["n"] = RNG.poisson(3 * DATA["e"])


def of_draws(text="n ~ linear(x) + re(g) + offset(log(e))", num=40):
    """A fit whose posterior is a set of draws: no engine is run."""
    model = ngp.gam.model(text, DATA, "poisson")
    keys = jax.random.split(jax.random.key(1))
    draws = {"f_scale": jnp.full((num, 2), 0.2), "f": jax.random.normal(keys[0], (num, 6))}
    posterior = ngp.Posterior.from_mcmc(model, draws)
    return ngp.gam.Fit(model, posterior, None, None, "nuts", num, (), keys[1]), draws


@pytest.mark.long
def test_predictions_of_a_table_with_a_new_level():
    fit, draws = of_draws()
    found = fit.predict({"x": [0.3], "g": ["z"], "e": [1.5]})
    column = fit.model.layout.columns[0]
    # The line, the constant and the offset; the new level has its prior, of variance 0.04.
    slope = 0.2 * (0.3 - column.shift) / column.scale
    level = fit.model.start.constant + np.log(1.5) + 3 * fit.model.start.size * draws["f"][:, 5]
    mean = slope * draws["f"][:, 0] + level
    np.testing.assert_allclose(found.function_mean[0], mean.mean(), rtol=1e-5)
    np.testing.assert_allclose(found.function_variance[0], mean.var() + 0.04, rtol=1e-5)


def drawn(fit):
    """The line of a figure of means, and the function whose mean it is."""
    figure = fit.plot(scale="response", grid=5)
    line = next(line.get_ydata() for line in figure.axes[0].lines if len(line.get_xdata()) == 5)
    plt.close(figure)
    return line, fit.effects(grid=5)["linear(x)"].mean + fit.terms().mean[0, 1]


def test_residuals_and_figures_of_gamma_data_are_those_of_their_mean():
    """The mean is ``a e^f``: of shapes 2 and 8 that is ``4 e^f``, by the average of ``log a``."""
    model = ngp.gam.model("n ~ linear(x) + offset(log(e))", DATA | {"n": DATA["n"] + 0.5}, "gamma")
    fit = fit_of(model, ngp.likelihoods.Gamma(np.array([2.0, 8.0])))
    terms = fit.terms().mean
    mean = 4 * np.exp(terms.sum(axis=1) + offset_at(model, model.rows.X) - model.start.constant)
    left, weights = fit.residuals()
    np.testing.assert_allclose(left, model.rows.y / mean - 1, rtol=1e-9)
    np.testing.assert_allclose(weights, 1.0)  # relative errors are as large everywhere
    points = fit._points(fit._draws(), True)["linear(x)"]
    np.testing.assert_allclose(points.residuals, terms[:, 0] + model.rows.y / mean - 1, rtol=1e-9)
    line, f = drawn(fit)
    np.testing.assert_allclose(line, 4 * np.exp(f), rtol=1e-9)


def test_residuals_and_figures_of_probits():
    model = ngp.gam.model("b ~ linear(x)", DATA | {"b": DATA["n"] > 3}, ngp.likelihoods.Bernoulli("probit"))
    fit = fit_of(model, ngp.likelihoods.Bernoulli("probit"))
    f = fit.terms().mean.sum(axis=1)
    p, slope = stats.norm.cdf(f), stats.norm.pdf(f)
    left, weights = fit.residuals()
    np.testing.assert_allclose(left, (model.rows.y - p) / slope, rtol=1e-9)
    np.testing.assert_allclose(weights, slope**2 / (p * (1 - p)), rtol=1e-9)
    figure = fit.plot(grid=5)
    assert figure.axes[0].get_ylabel().startswith("effect on probit of b")
    plt.close(figure)
    line, f = drawn(fit)
    np.testing.assert_allclose(line, stats.norm.cdf(f), rtol=1e-9)


def test_residuals_of_a_likelihood_of_ones_own_are_those_of_its_mean():
    """Data less ``f`` were called so of waiting times whose mean is ``e^f``, and drawn as partial residuals."""
    of_mean, of_log = (
        as_likelihood(one) for one in (lambda f: dist.Laplace(f, 0.3), lambda f: dist.Exponential(jnp.exp(-f)))
    )
    model = ngp.gam.model("n ~ linear(x)", DATA | {"n": DATA["n"] + 0.5}, lambda: lambda f: dist.Laplace(f, 0.3))
    fit = fit_of(model, of_mean)
    f = fit.terms().mean.sum(axis=1)
    np.testing.assert_allclose(fit.residuals()[0], model.rows.y - f, rtol=1e-9)
    assert fit._points(fit._draws(), True)["linear(x)"].residuals is not None
    fit = fit_of(model, of_log)
    with pytest.raises(ValueError, match=r"one whose mean is a known function of f.*Take y less fit\.predict"):
        fit.residuals()
    assert fit._points(fit._draws(), True)["linear(x)"].residuals is None


@pytest.mark.long
def test_a_summary_of_labels_by_a_callable():
    """It ended with shapes (512, 2) and (40,) that could not be broadcast."""
    table = DATA | {"n": (DATA["n"] > 4).astype(int)}
    fit = ngp.gam("n ~ linear(x)", table, lambda: lambda f: dist.OrderedLogistic(f, jnp.zeros(1)), progress=False)
    density = float(fit.summary().facts["log density, left out"].split()[0])
    known = ngp.gam("n ~ linear(x)", table, ngp.likelihoods.Bernoulli(), progress=False)
    assert abs(density - float(known.summary().facts["log density, left out"].split()[0])) < 0.02


def test_terms_add_up_to_what_is_predicted():
    """Their constant is the intercept, which the summary has too."""
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=40)}
    table["y"] = 100 + table["x"] + 0.1 * rng.normal(size=40)
    fit = ngp.gam("y ~ linear(x)", table)
    np.testing.assert_allclose(fit.terms().mean.sum(axis=1), fit.predict(table).function_mean, rtol=1e-9)
    facts = fit.summary(level=0.8, check=False, density=False).facts
    assert float(facts["intercept"].split(" ")[0]) == pytest.approx(table["y"].mean(), abs=0.1)
    assert facts["intervals"] == "80 %"


def test_what_has_no_link_is_not_drawn_as_a_mean():
    model = ngp.gam.model("b ~ linear(x)", DATA | {"b": DATA["n"] > 3}, lambda: lambda f: dist.Bernoulli(logits=f))
    fit = ngp.gam.Fit(model, None, None, None, "nuts", 2, (), jax.random.key(0))
    with pytest.raises(ValueError, match="scale must be 'link' where the mean is no known function of f"):
        fit.plot(scale="response")


def test_a_summary_says_which_level_is_1():
    x = np.arange(40) % 7
    labels = np.where(x > np.arange(40) % 3 + 2, "win", "lose")
    summary = ngp.gam("y ~ x", {"x": x, "y": labels}, "bernoulli").summary(check=False, density=False)
    assert summary.facts["response"] == "1 is 'win', 0 is 'lose'"
    assert "1 is 'win'" in str(summary)
    numbers = ngp.gam("y ~ x", {"x": x, "y": labels == "win"}, "bernoulli").summary(check=False, density=False)
    assert "response" not in numbers.facts
