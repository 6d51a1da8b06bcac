"""Predictions of a series from its rows: at each draw those of a dense Gaussian process with the library's kernels."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.answers import draws
from numpyro_gp.gam.answers import exact_rows as own
from numpyro_gp.gam.answers.draws import Dense
from numpyro_gp.gam.answers.effects import components_at
from numpyro_gp.gam.answers.predictions import latent
from numpyro_gp.gam.model.model import offset_at, places_of_lengths
from numpyro_gp.gam.model.term_kernels import count_lengthscales
from tests.gam.known import kernel_of_term

RNG = np.random.default_rng(6)
T = np.delete(np.arange(42.0), [7, 8])
DATA = {"t": T, "g": np.array(list("abcd"))[np.arange(40) % 4], "x": RNG.uniform(size=40)}
DATA["y"] = 5 + 0.1 * T + np.cumsum(0.2 * RNG.normal(size=40)) + np.cos(np.pi * T / 6) + 0.3 * RNG.normal(size=40)
NEW = {"t": [44.0, 7.0, 20.0], "g": ["a", "other", "a"], "x": [0.3, 0.5, DATA["x"][18]]}
FORMULA = "y ~ trend(t) + season(t, period=12) + cycle(t) + re(g) + s(x)"


@pytest.fixture(scope="module")
def fit():
    twice = {name: np.concatenate([column, column[:5]]) for name, column in DATA.items()}
    return ngp.gam(FORMULA, twice | {"y": twice["y"] + 0.01 * np.arange(45)}, weights=1 + np.arange(45) % 3)


def dense(draws, X):
    """Mean and variance ``(S, C + 1, N)`` of each component and of ``f``, from all rows as they stand."""
    model, rows, found = draws.model, draws.model.rows, []
    every, count = np.concatenate([rows.X, X]), len(rows.y)
    lengths = np.append(draws.lengths, np.ones((draws.size, 1)), axis=1)[:, places_of_lengths(model)]
    for scales, numbers, noise in zip(draws.scales, lengths, np.asarray(draws.likelihood.scale)):
        matrices = []
        for part, scale, each in zip(model.layout.read_terms, scales, numbers):
            given = list(map(jnp.asarray, each[: count_lengthscales(part)]))
            matrices.append(np.asarray(kernel_of_term(model, part, jnp.asarray(scale**2), given).matrix(every)))
        matrices.append(np.full((len(every),) * 2, scales[-1] ** 2))
        of_rows = sum(matrices)[:count, :count] + np.diag(noise**2 / rows.mass)
        at = [(K[count:, :count], np.diagonal(K)[count:]) for K in (*matrices, sum(matrices))]
        solved = np.linalg.solve(of_rows, (rows.y - offset_at(model, rows.X))[:, None])[:, 0]
        means = [cross @ solved for cross, _ in at]
        variances = [prior - np.sum(cross * np.linalg.solve(of_rows, cross.T).T, axis=1) for cross, prior in at]
        found.append((means, variances))
    means, variances = map(np.array, zip(*found))
    return means, variances


@pytest.mark.long
def test_predictions_are_those_of_the_dense_process_at_each_draw(fit):
    """With weights and repeated rows, at a new time, at one that was missing, and at a row of the fit."""
    draws, X = fit._draws(3), fit.model.layout.encode(NEW)
    means, variances = dense(draws, X)
    mean, variance = latent(draws, X)
    np.testing.assert_allclose(mean - offset_at(fit.model, X), means[:, -1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(variance, variances[:, -1], rtol=1e-4)
    for number, (mean, variance) in enumerate(components_at(draws, X)):
        np.testing.assert_allclose(mean, means[number, :-1], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(variance, variances[number, :-1], rtol=1e-4, atol=1e-8)


def test_terms_add_up_to_a_prediction_and_a_row_that_misses_a_value_is_nan(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lost = NEW | {"x": [0.3, None, 0.5]}
        found, terms = fit.predict(lost, num_samples=4), fit.terms(lost, num_draws=4)
    np.testing.assert_allclose(terms.mean.sum(axis=1), found.function_mean, rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(found.mean), [False, True, False])
    np.testing.assert_array_equal(np.isnan(terms.scale[:, 0]), [False, True, False])


def test_more_rows_than_are_looked_at_together_are_those_of_each(fit, monkeypatch):
    table = {"t": np.arange(10.0), "g": ["a"] * 10, "x": np.linspace(0.1, 0.9, 10)}
    wanted = fit.predict(table, num_samples=2)
    monkeypatch.setattr(draws, "NEW_ROWS_TOGETHER", 4)
    found = fit.predict(table, num_samples=2)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, wanted.variance, rtol=1e-7)


def test_rows_serve_a_series_of_few_with_gaussian_noise_whose_terms_are_no_points(fit, monkeypatch):
    draws = fit._draws(2)
    assert draws.exact is not None
    points = [Dense.point(np.zeros(sum(fit.model.sizes)))] * 2
    assert draws._replace(term_posteriors=points).exact is None
    assert not own.ExactRows.serve(ngp.gam.model("y ~ s(t)", DATA))
    assert not own.ExactRows.serve(ngp.gam.model("y ~ trend(t)", DATA | {"y": DATA["y"].round()}, "poisson"))
    assert not own.ExactRows.serve(ngp.gam.model("y ~ trend(t)", DATA, censored=T > 30))
    monkeypatch.setattr(own, "MOST_ROWS", 39)
    assert draws.exact is None


def test_rows_without_a_factor_have_the_nearest_one():
    """Of a line known at 60 rows without noise: by rounding their covariance has none."""
    model = ngp.gam.model("y ~ trend(t)", {"t": np.arange(60.0), "y": 2 * np.arange(60.0)})
    rows = own.ExactRows(model, np.array([[1e4, 1.0]]), np.array([[1e-9, 1e-9]]), np.zeros(1))
    rows.variances[:] = 0.0
    mean, variance = next(iter(rows.at(model.layout.encode({"t": [70.0]}), is_split=False)))
    np.testing.assert_allclose(mean + model.start.constant, 140.0, rtol=1e-3)
    assert 0 < variance[0] < 1.0


def test_curves_of_a_series_have_the_moments_that_its_rows_give():
    """Of few rows, whose noise varies from draw to draw; the functions drawn follow."""
    rng = np.random.default_rng(0)
    t, x = np.arange(24.0), rng.normal(size=24)
    y = np.cumsum(0.3 * rng.normal(size=24)) + 0.5 * rng.normal(size=24)
    fit = ngp.gam("y ~ trend(t) + linear(x)", {"t": t, "x": x, "y": y})
    effect = fit.effects()["trend(t)"]
    terms = fit.terms({"t": effect.axes[0], "x": np.zeros(len(effect.axes[0]))})
    np.testing.assert_allclose(effect.mean, terms.mean[:, 0], rtol=1e-6)
    np.testing.assert_allclose(effect.scale, terms.scale[:, 0], rtol=1e-6)
    np.testing.assert_allclose(effect.draws.std(axis=0)[-1], effect.scale[-1], rtol=0.15)
