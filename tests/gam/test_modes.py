"""The best of several modes: waves that a search from smooth curves takes for noise, and what belongs to a mode."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import polygamma

import numpyro_gp as ngp
from numpyro_gp.gam.search import modes as own
from numpyro_gp.gam.search.bound import Bound, BoundParts, Data
from tests.precision import x64

RNG = np.random.default_rng(3)
X = RNG.uniform(size=30)
DATA = {"x": X, "z": RNG.normal(size=30), "y": np.sin(5 * X) + 0.3 * RNG.normal(size=30)}
DATA["n"] = RNG.poisson(2 * np.exp(np.sin(5 * X)))


def wave(family, rows=300, cycles=5):
    """Five waves beneath noise as large as they are, or counts of a low rate."""
    rng = np.random.default_rng(cycles)
    x, z = rng.uniform(size=rows), rng.normal(size=rows)
    f = np.sin(2 * np.pi * cycles * x)
    y = f + rng.normal(size=rows) if family == "gaussian" else rng.poisson(np.exp(0.9 * f + 0.3)).astype(float)
    return {"x": x, "z": z, "y": y}, f


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_wave_is_not_noise(family):
    """From a smooth curve the search ended 34 and 45 nats below the wave, at a noise that was all of the response."""
    data, f = wave(family)
    with x64(False):
        fit = ngp.gam("y ~ s(x) + s(z)", data, family)
        found = fit.terms(num_draws=1).mean[:, 0]
    assert np.corrcoef(found, f)[0, 1] > 0.9
    if family == "gaussian":  # under priors of the user's too
        terms = ngp.gam.s("x", scale=dist.HalfNormal(2.0), lengthscale=dist.LogNormal(0.5, 1.0))
        found = ngp.gam(terms, data, response="y").terms(num_draws=1).mean[:, 0]
        assert np.corrcoef(found, f)[0, 1] > 0.95


def test_waves_of_a_surface_are_not_noise():
    """Two waves along each column ended at a noise that was all of the response, 33 nats below the surface."""
    rows, rng = 200, np.random.default_rng(260)
    a, b = rng.uniform(-1, 1, (2, rows))
    f = np.sin(6 * a) * np.cos(6 * b)
    with x64(False):
        fit = ngp.gam("y ~ te(a, b)", {"a": a, "b": b, "y": f + 0.3 * rng.normal(size=rows)})
        found = fit.terms(num_draws=1).mean[:, 0]
    assert np.corrcoef(found, f)[0, 1] > 0.9


def test_the_shape_of_gamma_data_is_as_certain_as_theory_says():
    """With known means the information about ``log a`` is ``a^2 N (trigamma(a) - 1 / a)``; a curve adds a little.

    Beside sites that stay it would be ``a^2 N trigamma(a)``, for a deviation of two fifths, and the fit takes hundreds
    of evaluations.
    """
    rng = np.random.default_rng(0)
    table = {"x": rng.uniform(size=400)}
    table["p"] = np.exp(np.sin(5 * table["x"])) * rng.gamma(3.0, size=400)
    found = own.collapsed(ngp.gam.model("p ~ s(x, num_inducing=8)", table, "gamma"), 200)
    assert found.is_flat
    shape, deviation = np.exp(found.location[-1]), np.sqrt((found.root @ found.root.T)[-1, -1])
    theory = 1 / (shape * np.sqrt(400 * (polygamma(1, shape) - 1 / shape)))
    assert abs(shape - 3.0) < 3 * theory * shape
    assert 0.97 < deviation / theory < 1.1


def test_a_likelihood_with_a_number_for_each_row_is_that_of_all_rows(monkeypatch):
    likelihood = ngp.likelihoods.Gaussian(jnp.linspace(0.2, 0.5, 30))
    model = ngp.gam.model("y ~ linear(x)", DATA, likelihood)
    whole = own.collapsed(model, 200)
    monkeypatch.setattr(own, "MANY_ROWS", 20)
    again = own.collapsed(model, 200)
    for one, other in zip(whole[:3], again[:3], strict=True):  # how many steps that takes rounding may decide
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3 * np.abs(one).max())
    np.testing.assert_allclose(again.losses[-1], whole.losses[-1], atol=1e-3)
    assert len(again.losses) < 20  # a step that moves nothing is not halved: there were 56


@pytest.mark.parametrize(("rows", "shape", "seed"), [(50, 4.0, 1), (50, 50.0, 0)])
def test_the_mode_of_positive_data_is_found_where_whole_site_steps_overflow(rows, shape, seed):
    """Ends at a mode: slopes at sites that follow are zero there, and curves are within the noise of the truth."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, rows)
    data = {"x": x, "y": rng.gamma(shape, np.exp(np.sin(x)) / shape)}
    model = ngp.gam.model("y ~ s(x)", data, "gamma")
    found = own.collapsed(model, 500)
    assert found.is_flat
    assert np.isfinite(found.losses).all()
    assert found.losses.max() < found.losses[0] + own.WALL
    bound = Bound(BoundParts(model), Data.of(model))
    bound.fit_pseudo_data(found.location)
    slopes = found.root.T @ bound.with_settled_pseudo_data(found.location, 1e-6)[1]
    assert np.abs(slopes).max() < 0.1
    mean = bound.last.marginals[0]
    assert np.std(mean - np.sin(x)) < 4 / np.sqrt(shape * rows / 10)  # f is the logarithm of the mean over the shape


@pytest.mark.long
@pytest.mark.parametrize("formula", ["y ~ s(x, num_inducing=6) + linear(z)", "y ~ te(x, z, num_inducing=6)"])
def test_many_rows_start_with_tables_or_some_of_them(monkeypatch, formula):
    """The mode of all rows, to the same bound, and pseudo-data of all: tables for the first, 20 rows for the second."""
    model = ngp.gam.model(formula, DATA)
    whole = own.collapsed(model, 200)
    monkeypatch.setattr(own, "MANY_ROWS", 20)
    some = own.collapsed(model, 200)
    assert abs(some.losses[-1] - whole.losses[-1]) < 0.1
    np.testing.assert_allclose(some.location, whole.location, atol=0.2)
    np.testing.assert_allclose(some.shift, whole.shift, rtol=0.2, atol=0.2 * np.abs(whole.shift).max())
