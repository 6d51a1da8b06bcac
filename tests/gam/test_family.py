"""Families by name, by value and by function, and the quick GLM behind the scales of the priors."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.arrays import value_type
from numpyro_gp.gam.model.families import NAMED, FamilyRow
from numpyro_gp.gam.model.family import as_family, quick_glm
from tests.compiling import counted


def test_gaussian_scales_are_those_of_least_squares():
    """The residual deviation of a line, and the deviation of the response."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    y = 5 + 2 * x[:, 0] + 0.3 * rng.normal(size=200)
    start = quick_glm(as_family("gaussian"), x, y, np.zeros(200), np.ones(200))
    np.testing.assert_allclose(start[:2], (y.mean(), y.std()), rtol=1e-12)
    design = np.stack([np.ones(200), x[:, 0]], axis=1)
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(start.noise, 0.7 * left.std(), rtol=0.01)


def test_the_size_of_f_is_found_beyond_the_noise_of_counts():
    """``f`` is a wave of deviation 1 that no line explains; the variance of the counts alone is 0.7 of it."""
    rng = np.random.default_rng(1)
    x, offset = rng.uniform(size=(4000, 1)), rng.normal(size=4000) * 0.3
    f = np.sqrt(2) * np.sin(6 * np.pi * x[:, 0])
    y = rng.poisson(np.exp(f + offset))
    start = quick_glm(as_family("poisson"), x, y.astype(float), offset, np.ones(4000))
    assert 0.7 < start.size < 1.3
    np.testing.assert_allclose(start.constant, np.log(y.mean() / np.exp(offset).mean()), rtol=1e-9)


def test_labels_start_at_the_link_of_their_share():
    """Without lines the working response varies as its noise does. 3 of 30 000 trials, as two rows: not half of one in two."""
    y, probit = np.array([0.0, 1.0, 1.0, 1.0]), as_family(ngp.likelihoods.Bernoulli("probit"))
    start = lambda family, y, weights: quick_glm(family, np.zeros((len(y), 0)), y, np.zeros(len(y)), weights)  # noqa: E731
    np.testing.assert_allclose(start(as_family("bernoulli"), y, np.ones(4)), (np.log(3.0), 1.5, 1.0), rtol=1e-12)
    np.testing.assert_allclose(start(probit, y, np.ones(4)), (stats.norm.ppf(0.75), 0.9, 1.0), rtol=1e-9)
    rare = start(as_family("bernoulli"), y[:2], np.array([29997.0, 3.0]))
    np.testing.assert_allclose(rare.constant, np.log(3 / 29997), rtol=1e-9)


def positive(shape, seed=0):
    """Gamma data of this shape along a line, and the line."""
    x = np.random.default_rng(seed).normal(size=(2000, 1))
    return x, np.random.default_rng(seed + 1).gamma(shape, np.exp(2 + 0.5 * x[:, 0]) / shape)


@pytest.mark.parametrize("shape", [1.0, 4.0, 50.0])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e3])
def test_gamma_data_start_at_their_mean_over_their_shape(shape, unit):
    """The mean is ``a e^f``. The mean squared relative residual around the line is ``1 / a``, to a tenth or two."""
    x, y = positive(shape)
    zeros, ones = np.zeros(2000), np.ones(2000)
    free = lambda: ngp.likelihoods.Gamma(numpyro.sample("a", dist.LogNormal(0.0, 1.0)))  # noqa: E731
    for family, over in (("gamma", 1.0), (free, shape)):  # the family of this name says the mean itself
        start = quick_glm(as_family(family), x, unit * y, zeros, ones)
        assert abs(start.constant - np.log(unit * y.mean() / over)) < 0.2
        # Of the logarithm, 0.5 by the line and the noise, whatever the unit is.
        np.testing.assert_allclose(start.size, quick_glm(as_family(family), x, y, zeros, ones).size, rtol=0.05)
    given = quick_glm(as_family(ngp.likelihoods.Gamma(shape)), x, unit * y, zeros, ones)
    np.testing.assert_allclose(given.constant, np.log(unit * y.mean() / shape), rtol=1e-9)
    each = quick_glm(as_family(ngp.likelihoods.Gamma(np.linspace(1, 3, 2000))), x, unit * y, zeros, ones)
    np.testing.assert_allclose(each.constant, np.log(unit * y.mean() / 2.0), rtol=1e-9)


def test_counts_without_an_event_start_at_half_of_one():
    """And the mean of tiny positive data is found; without a residual their shape is the largest."""
    start = quick_glm(as_family("poisson"), np.zeros((200, 0)), np.zeros(200), np.zeros(200), np.ones(200))
    assert start.constant == pytest.approx(np.log(0.5 / 200))
    tiny = quick_glm(as_family("exponential"), np.zeros((4, 0)), np.full(4, 1e-12), np.zeros(4), np.ones(4))
    assert tiny.constant == pytest.approx(np.log(1e-12))
    free = as_family(lambda: ngp.likelihoods.Gamma(numpyro.sample("a", dist.LogNormal(0.0, 1.0))))
    for family, over in ((as_family("gamma"), 1.0), (free, 1000.0)):
        tiny = quick_glm(family, np.zeros((4, 0)), np.full(4, 1e-12), np.zeros(4), np.ones(4))
        assert tiny.constant == pytest.approx(np.log(1e-12) - np.log(over))  # no residual: the largest shape


@pytest.mark.parametrize("lines", [10, 60])
def test_the_noise_beside_lines_is_found_however_many(lines):
    """Of noise alone, true 1, over 40 rows, on average of 40 data sets; no more than the spread, which cuts some off."""
    rng, found = np.random.default_rng(0), []
    for _ in range(40):
        X = rng.normal(size=(40, lines))
        start = quick_glm(as_family("gaussian"), X, rng.normal(size=40), np.zeros(40), np.ones(40))
        found.append(start.noise / 0.7)
    assert 0.7 < np.mean(found) < 1.05


@value_type()
class Events(ngp.likelihoods.Poisson):
    """Counts by another class, which no row has."""


@pytest.mark.parametrize("has_formulas", [False, True])
def test_a_family_is_added_by_one_row(has_formulas, monkeypatch):
    """Its class and its link are enough: what the row leaves open is compiled, and the numbers are the same."""
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 60)
    data = {"x": x, "y": rng.poisson(np.exp(1 + x))}
    known = ngp.gam("y ~ linear(x)", data, "poisson")
    row = NAMED["poisson"]._replace(kind=Events) if has_formulas else FamilyRow(Events, "log", is_discrete=True)
    monkeypatch.setitem(NAMED, "events", row)
    with counted() as programs:
        fit = ngp.gam("y ~ linear(x)", data, "events")
        found, wanted = (one.terms(num_draws=10).mean for one in (fit, known))
    assert (programs.count == 0) == has_formulas
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    if has_formulas:
        found, wanted = (one.summary(num_draws=10).facts for one in (fit, known))
        assert found.pop("family") == "events"
        assert found == {name: value for name, value in wanted.items() if name != "family"}
        np.testing.assert_array_equal(fit.quantiles({"x": [-0.5, 0.8]}), known.quantiles({"x": [-0.5, 0.8]}))
