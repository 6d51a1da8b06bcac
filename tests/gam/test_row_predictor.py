"""A predictor of rows has the numbers of `fit.predict`, and no program of its own."""

import pickle

import jax
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.answers.draws import BlocksAndLowRank
from numpyro_gp.gam.answers.predictions import TableRowPredictor
from tests.compiling import counted
from tests.gam import known

RNG = np.random.default_rng(0)
N = 45
DATA = {name: RNG.normal(size=N) for name in "xz"} | {"g": np.array(list("abc") * 15), "h": np.arange(N) % 24}
DATA |= {"y": RNG.normal(size=N), "e": RNG.uniform(1, 2, N)}
NEW = {"x": [0.3, -2.0], "z": [1.0, 0.2], "g": ["a", "c"], "h": [3, 23], "e": [1.0, 2.0]}
TEXT = "y ~ s(x) + s(x, by=g, kernel=Matern12) + s(h, cyclic=True) + te(x, z) + ti(x, h) + re(g, by=z) + factor(g)"


def fit_of(model, likelihood):
    return known.fit_of(model, known.repeated(likelihood, 3), 3, is_dense=True)


def rows_of(table):
    """The second row of a table, as NumPy and pandas have it."""
    kinds = [(name, "U1" if name == "g" else float) for name in table]
    yield np.array(list(zip(*table.values(), strict=True)), kinds)[1]
    try:
        import pandas
    except ImportError:
        return
    yield pandas.DataFrame(table).iloc[1]


@pytest.mark.parametrize("measure", ["empirical", "uniform"])
def test_moments_and_quantiles_of_all_terms(measure):
    text = TEXT + " + x + offset(e)" if measure == "empirical" else "y ~ s(x) + s(z, kernel=RBF, by=g)"
    fit = fit_of(ngp.gam.model(text, DATA, measure=measure), ngp.likelihoods.Gaussian(0.3))
    predictor, wanted = fit.predictor(), fit.predict(NEW)
    found = predictor(NEW)
    for name in ("mean", "variance", "function_mean", "function_variance"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=2e-6, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(found.quantiles([0.1, 0.9]), wanted.quantiles([0.1, 0.9]), rtol=1e-5)
    np.testing.assert_allclose(found.interval(0.8), fit.interval(NEW, 0.8), rtol=1e-5)
    with counted() as programs:
        row = predictor({name: values[1] for name, values in NEW.items()})
        same = pickle.loads(pickle.dumps(predictor))({name: values[1] for name, values in NEW.items()})
    assert programs.count == 0
    np.testing.assert_array_equal(same.quantiles(), row.quantiles())
    np.testing.assert_allclose(row.mean[0], wanted.mean[1], rtol=1e-7)
    for one in rows_of(NEW):
        np.testing.assert_array_equal(predictor(one).mean, row.mean)
    with pytest.raises(ValueError, match=r"data must be a table with the column '[gz]'"):
        predictor({"x": 1.0})
    with pytest.raises(ValueError, match="levels must be one or more numbers between 0 and 1"):
        row.quantiles([1.0])


def test_a_predictor_in_single_precision_is_as_near_as_its_numbers():
    with jax.enable_x64(False):
        fit = ngp.gam("y ~ s(x) + factor(g)", DATA)
        found, wanted = fit.predictor(num_samples=10)(NEW), fit.predict(NEW, num_samples=10)
        for name in ("mean", "variance", "function_mean", "function_variance"):
            np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=2e-5, atol=1e-6, err_msg=name)


def test_an_interval_of_a_mean_is_that_of_the_fit_where_a_shape_is_in_it():
    fit = ngp.gam("e ~ s(x)", DATA, "gamma")
    np.testing.assert_allclose(fit.predictor()(NEW).interval(), fit.interval(NEW), rtol=1e-5)


def test_what_a_predictor_does_not_know_is_refused_with_the_cure():
    draws = fit_of(ngp.gam.model("y ~ x", DATA), ngp.likelihoods.Gaussian(0.3))._draws()
    low = BlocksAndLowRank(np.zeros(2), [np.ones((2, 1, 1))], np.zeros((2, 1)), draws.term_features.blocks)
    with pytest.raises(
        ValueError, match=r"one of low rank\. Take fit\.predict\(data\), which knows fits of many terms"
    ):
        TableRowPredictor(draws._replace(term_posteriors=[low] * 3))
    series = ngp.gam.model("y ~ trend(h)", {"h": np.arange(9.0), "y": np.arange(9) % 4})
    with pytest.raises(ValueError, match=r"must be curves, surfaces, lines and levels, but got trend\(h\)"):
        fit_of(series, ngp.likelihoods.Poisson()).predictor()


def test_a_student_without_a_mean_has_none_anywhere():
    """Its quantiles stay, and the summary says why the mean of new data is no number."""
    x = np.linspace(0.0, 1.0, 80)
    y = np.sin(6 * x) + 0.1 * np.cos(50 * x)
    y[::8] += 50.0
    fit = ngp.gam("y ~ s(x)", {"x": x, "y": y}, "student_t")
    found, wanted = fit.predictor()({"x": [0.5]}), fit.predict({"x": [0.5]})
    assert np.isnan([found.mean, found.variance, wanted.mean, wanted.variance]).all()
    assert np.isfinite(found.quantiles()).all()
    assert "New data have no mean in" in str(fit.summary(density=False, check=False))
