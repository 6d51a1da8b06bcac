"""Fits in files: another process has the same numbers, and damage is refused in words."""

import copy
import dataclasses
import json
import pickle
from pathlib import Path

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
TERMS = ngp.gam.s("x", lengthscale=dist.LogNormal(0.5, 0.5), kernel="Matern32", num_inducing=6) + ngp.gam.re("g")
TERMS = TERMS + ngp.gam.linear("day") + ngp.gam.factor("weekday")
# Rows of the file that was written when the format was new.
OLD_FORMULA = "y ~ s(x, num_inducing=3, kernel=Matern32) + trend(t) + re(g)"
OLD = {
    "x": (np.arange(10) * 7 % 10) / 10,
    "t": np.datetime64("2024-01-01") + np.arange(10),
    "g": np.array(list("aabbaabbab")),
    "y": np.array([1.0, 2.0, 0.5, 2.5, 3.0, 2.0, 4.0, 3.5, 5.0, 4.5]),
}


def same(fit, again):
    """All numbers are equal, bit for bit."""
    for one, other in zip(fit.terms(NEW, num_draws=3), again.terms(NEW, num_draws=3), strict=True):
        np.testing.assert_array_equal(one, other)
    first, second = (own.predict(NEW, num_samples=3) for own in (fit, again))
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.variance, second.variance)


@pytest.mark.long
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
        pickled = pickle.loads(pickle.dumps(again))  # which what a file cannot hold is advised to be
        assert pickled.steps == fit.steps
        for name, value in fit._in_double.items():
            assert value.dtype == again._in_double[name].dtype == np.float64
            np.testing.assert_array_equal(value, again._in_double[name])
            np.testing.assert_array_equal(value, pickled._in_double[name])
    assert ngp.gam.load(tmp_path / "fit.npz").result.params["auto_loc"].dtype == np.float64


@pytest.mark.long
def test_a_copy_of_a_fit_keeps_its_digits_and_one_of_other_parameters_has_these():
    """Of every way to copy; `dataclasses.replace` left the fields behind that were none."""
    with jax.enable_x64(False):
        fit = ngp.gam("y ~ s(x)", TABLE)
        wanted = fit.terms(NEW, num_draws=2).mean
        pickled = pickle.loads(pickle.dumps(fit))
        for again in (dataclasses.replace(fit), dataclasses.replace(fit, notes=()), copy.copy(fit), pickled):
            np.testing.assert_array_equal(again.terms(NEW, num_draws=2).mean, wanted)
        params = {name: np.asarray(value) for name, value in fit.result.params.items()}
        moved = params | {"f/ngp:natural_shift": 2 * params["f/ngp:natural_shift"]}
        other = dataclasses.replace(fit, result=fit.result._replace(params=moved))
        curve = [one.terms(NEW, num_draws=2).mean[:, 0] for one in (fit, other)]
        np.testing.assert_allclose(curve[1], 2 * curve[0], rtol=1e-3, atol=1e-5)


@pytest.mark.long
def test_a_fit_of_draws_and_one_of_a_likelihood_without_a_name(tmp_path):
    fit, _ = of_draws(num=5)
    fit.save(tmp_path / "draws.npz")
    again = ngp.gam.load(tmp_path / "draws.npz")
    same(fit, again)
    assert again.posterior.kind == "mcmc"
    np.testing.assert_array_equal(again.posterior.samples["f"], fit.posterior.samples["f"])

    refused = pytest.raises(ValueError, match="of JAX must be that of the fit, float64, but got float3")
    with jax.enable_x64(False), refused:
        ngp.gam.load(tmp_path / "draws.npz")

    own = ngp.gam("n ~ linear(x)", DATA, ngp.likelihoods.Poisson())
    own.save(tmp_path / "own.npz")
    for family, words in ((None, r"None\. A file holds no func"), ("gaussian", "'gaussian'")):
        with pytest.raises(ValueError, match="family must be that of the fit, Poisson, but got " + words):
            ngp.gam.load(tmp_path / "own.npz", family)
    same(own, ngp.gam.load(tmp_path / "own.npz", ngp.likelihoods.Poisson()))


def test_what_is_no_file_of_a_fit_is_refused_and_damage_is_found(tmp_path):
    path = tmp_path / "fit.npz"
    with pytest.raises(ValueError, match=r"path must be a file written by fit\.save of ngp\.gam"):
        ngp.gam.load(tmp_path / "missing.npz")
    fit, _ = of_draws(num=2)
    fit.posterior.save(path)
    with pytest.raises(ValueError, match=r"must be a file of format 'numpyro_gp gam 1'.*Read a posterior with ngp\.P"):
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


@pytest.mark.long
def test_a_file_of_the_first_format_is_read_whatever_code_is_called_now():
    """``fit_of_format_1.npz`` was written when the format was new; a model of the same rows says the same at its parameters."""
    old = ngp.gam.load(Path(__file__).parent / "fit_of_format_1.npz")
    model = ngp.gam.model(OLD_FORMULA, OLD)
    fit = ngp.gam.Fit(model, old.posterior, old.guide, old.result, "svi", 3, (), old.key)
    assert old.model.terms == fit.model.terms
    assert old.model.layout == fit.model.layout
    new = {"x": [0.3, 0.8], "t": OLD["t"][[2, 7]], "g": ["a", "new"]}
    wanted, found = fit.terms(new, num_draws=3), old.terms(new, num_draws=3)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=0.02)
    np.testing.assert_allclose(found.scale, wanted.scale, rtol=0.1)


def test_a_file_of_another_format_is_refused_with_the_cure(tmp_path):
    stored = dict(np.load(Path(__file__).parent / "fit_of_format_1.npz"))
    header = json.loads(str(stored["header"]))
    cure = r".*Load it with the version of numpyro_gp that wrote it, or fit anew"
    later = header | {"format": "numpyro_gp gam 2", "content": None}
    more = header | {"content": {"dict": [*header["content"]["dict"], ["seed", 1]]}}
    for changed, words in [
        (later, "format in a file of a fit must be 'numpyro_gp gam 1', but got 'numpyro_gp gam 2'"),
        (more, r"parts in a file of a fit must be model, .*, but got \['seed'\] more or less"),
    ]:
        np.savez(tmp_path / "fit.npz", **stored | {"header": np.asarray(json.dumps(changed))})
        with pytest.raises(ValueError, match=words + cure):
            ngp.gam.load(tmp_path / "fit.npz")
