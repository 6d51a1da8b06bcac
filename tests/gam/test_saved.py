"""Fits in files: another process has the same numbers, and damage is refused in words."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from tests.gam.test_result import DATA, of_draws

RNG = np.random.default_rng(1)
DAYS = np.datetime64("2024-01-01") + np.arange(40)
TABLE = DATA | {"day": DAYS, "weekday": np.arange(40) % 2 == 0, "y": np.sin(6 * DATA["x"]) + 0.1 * RNG.normal(size=40)}
NEW = {"x": [0.2, 0.9], "g": ["a", "new"], "e": [1.0, 2.0], "day": DAYS[[3, 30]], "weekday": [True, False]}
TERMS = (
    ngp.gam.s("x", lengthscale=dist.LogNormal(0.5, 0.5), kernel="Matern32", num_inducing=6)
    + ngp.gam.linear("day")
    + ngp.gam.re("g")
    + ngp.gam.factor("weekday")
)


def same(fit, again):
    """All numbers are equal, bit for bit."""
    for one, other in zip(fit.terms(NEW, num_draws=3), again.terms(NEW, num_draws=3), strict=True):
        np.testing.assert_array_equal(one, other)
    first, second = (own.predict(NEW, num_samples=3) for own in (fit, again))
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.variance, second.variance)


def test_a_fit_comes_back_with_the_same_numbers(tmp_path):
    """Dates, booleans, text, a prior, a kernel of another class, and rows with their weights."""
    fit = ngp.gam(TERMS, TABLE, response="y", weights="e", key=jax.random.key(3))
    fit.save(tmp_path / "fit.npz")
    again = ngp.gam.load(tmp_path / "fit.npz")
    assert repr(again) == repr(fit)
    assert again.model.layout.columns == fit.model.layout.columns
    assert (again.notes, again.steps) == (fit.notes, fit.steps)
    np.testing.assert_array_equal(jax.random.key_data(again.key), jax.random.key_data(fit.key))
    np.testing.assert_array_equal(again.model.rows.weights, fit.model.rows.weights)
    np.testing.assert_array_equal(again.result.losses, fit.result.losses)
    same(fit, again)
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "fit.npz").read_bytes()

    low, middle, high = fit.quantiles(NEW)
    assert np.all((low < middle) & (middle < high))
    moments, prediction = fit.terms(NEW), fit.predict(NEW)
    total = moments.mean[:, :-1].sum(axis=1) + fit.intercept
    np.testing.assert_allclose(total, prediction.function_mean, rtol=1e-5)


def test_a_fit_in_single_precision_keeps_its_digits(tmp_path):
    """Parameters of the default fit are double whatever JAX is, and another process of either precision may read them."""
    with jax.enable_x64(False):
        fit = ngp.gam("y ~ linear(x)", TABLE)
        fit.save(tmp_path / "fit.npz")
        again = ngp.gam.load(tmp_path / "fit.npz")
        np.testing.assert_array_equal(fit.terms(NEW, num_draws=2).mean, again.terms(NEW, num_draws=2).mean)
        for name, value in fit._in_double.items():
            assert value.dtype == again._in_double[name].dtype == np.float64
            np.testing.assert_array_equal(value, again._in_double[name])
    assert ngp.gam.load(tmp_path / "fit.npz").result.params["auto_loc"].dtype == np.float64


def test_a_fit_of_draws_and_one_of_a_likelihood_without_a_name(tmp_path):
    fit, _ = of_draws(num=5)
    fit.save(tmp_path / "draws.npz")
    again = ngp.gam.load(tmp_path / "draws.npz")
    same(fit, again)
    assert again.posterior.kind == "mcmc"
    np.testing.assert_array_equal(again.posterior.samples["f"], fit.posterior.samples["f"])

    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match="of JAX must be that of the fit, float64, but got float3"),
    ):
        ngp.gam.load(tmp_path / "draws.npz")

    own = ngp.gam("n ~ linear(x)", DATA, ngp.likelihoods.Poisson())
    own.save(tmp_path / "own.npz")
    with pytest.raises(
        ValueError, match=r"family must be that of the fit, Poisson, but got None\. A file holds no func"
    ):
        ngp.gam.load(tmp_path / "own.npz")
    with pytest.raises(ValueError, match="family must be that of the fit, Poisson, but got 'gaussian'"):
        ngp.gam.load(tmp_path / "own.npz", "gaussian")
    same(own, ngp.gam.load(tmp_path / "own.npz", ngp.likelihoods.Poisson()))


def test_what_is_no_file_of_a_fit_is_refused_and_damage_is_found(tmp_path):
    path = tmp_path / "fit.npz"
    with pytest.raises(ValueError, match=r"path must be a file written by fit\.save of ngp\.gam"):
        ngp.gam.load(tmp_path / "missing.npz")
    fit, _ = of_draws(num=2)
    fit.posterior.save(path)
    with pytest.raises(
        ValueError, match=r"path must be a file of format 'numpyro_gp gam 1'.*Read a posterior with ngp\.P"
    ):
        ngp.gam.load(path)
    fit.save(path)
    whole = path.read_bytes()
    for at in range(200, len(whole), len(whole) // 12):
        path.write_bytes(whole[:at] + bytes([255 - whole[at]]) + whole[at + 1 :])
        try:
            same(fit, ngp.gam.load(path))
        except ValueError as error:
            assert "path must be a file written by fit.save of ngp.gam, but got" in str(error)  # noqa: PT017
    with pytest.raises(ValueError, match="path must be a file in a folder that exists"):
        fit.save(tmp_path / "no" / "fit.npz")
