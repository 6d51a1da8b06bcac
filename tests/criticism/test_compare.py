"""The table of a comparison: its numbers against sums typed out, its text, and what it leaves out."""

import csv
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.criticism.compare import Comparison, Estimate, compare, leave_one_out, scores
from numpyro_gp.criticism.leave_one_out import loo
from numpyro_gp.likelihoods import Poisson
from numpyro_gp.posterior import Prediction
from numpyro_gp.posterior.arviz import arviz_container
from numpyro_gp.posterior.draws import TrainingDraws
from numpyro_gp.sites import Observation
from tests.compiling import counted
from tests.oracles.problems import gram, regression

PROBLEM = regression(size=14, noise=0.3)
TEST, TRAIN = slice(0, None, 2), slice(1, None, 2)
X, Y = PROBLEM.X[TRAIN], PROBLEM.y[TRAIN]
X_TEST, Y_TEST = PROBLEM.X[TEST], PROBLEM.y[TEST]
KEY = jax.random.key(0)


def model(X, y=None, Z=PROBLEM.X[TRAIN]):
    noise = numpyro.sample("noise", dist.LogNormal(-0.7, 0.3))
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.2).expand([2]).to_event(1))
    f = ngp.gp("f", ngp.kernels.Matern32(1.3, lengthscale[:1]), Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def mcmc_like(size=400):
    rng = np.random.default_rng(0)
    return {
        "f": jnp.asarray(0.05 * rng.normal(size=(size, 7))),
        "noise": jnp.asarray(rng.uniform(0.6, 0.9, size)),
        "lengthscale": jnp.asarray(rng.uniform(0.8, 1.2, (size, 2))),
    }


class Particles:
    def particles(self, params):
        return params


@pytest.fixture(scope="module")
def posteriors():
    guide = ngp.AutoGP(model)
    svi = SVI(model, guide, optax.adam(0.05), Trace_ELBO())
    state = svi.init(jax.random.key(0), X, Y)
    run = jax.jit(lambda s: jax.lax.fori_loop(0, 200, lambda _, t: svi.update(t, X, Y)[0], s))
    particles = jax.tree.map(lambda leaf: leaf[:20], mcmc_like())
    return {
        "SVI": ngp.Posterior.from_svi(model, guide, svi.get_params(run(state))),
        "NUTS": ngp.Posterior.from_mcmc(model, mcmc_like()),
        "SVGD": ngp.Posterior.from_stein(model, Particles(), particles),
    }


@pytest.fixture(scope="module")
def table(posteriors):
    return compare(posteriors, KEY, X_TEST, y=Y_TEST, train=(X, Y), seconds={"SVI": 1.5, "NUTS": 20.0})


@pytest.mark.long
def test_scores_are_those_of_the_prediction(posteriors, table):
    """Typed out for the draws: a mean of log densities instead of the log of the mean would differ by 0.05."""
    prediction = posteriors["NUTS"].predict(KEY, X_TEST)
    mean, y = np.asarray(prediction.mean), np.asarray(Y_TEST)
    row = table["NUTS"]
    assert row["RMSE"].value == pytest.approx(np.sqrt(np.mean((mean - y) ** 2)), rel=1e-9)
    density = np.asarray(prediction.log_density(Y_TEST))
    assert row["log density"].value == pytest.approx(density.mean(), rel=1e-9)
    assert row["log density"].error == pytest.approx(density.std(ddof=1) / np.sqrt(7), rel=1e-9)
    scale = np.sqrt(np.asarray(prediction.variance))
    z = (y - mean) / scale
    gaussian = np.mean(scale * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5))
    assert row["CRPS"].value == pytest.approx(gaussian, abs=0.05)
    assert 0 <= row["coverage of 90%"].value <= 1


@pytest.mark.long
def test_the_second_comparison_compiles_nothing(posteriors):
    """Three engines, LOO and hyper-parameters with another key: more than a hundred programs the first time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables = [compare(posteriors, KEY, X_TEST, y=Y_TEST, train=(X, Y), num_samples=30)]
        with counted() as programs:
            tables.append(compare(posteriors, jax.random.key(1), X_TEST, y=Y_TEST, train=(X, Y), num_samples=30))
    assert programs.count == 0
    assert str(tables[0]) != str(tables[1])


@pytest.mark.long
def test_hyper_parameters_time_and_chains(table):
    draws = mcmc_like()
    row = table["NUTS"]
    assert row["noise"].value == pytest.approx(float(draws["noise"].mean()))
    assert row["noise"].error == pytest.approx(float(draws["noise"].std()))
    assert row["lengthscale[1]"].value == pytest.approx(float(draws["lengthscale"][:, 1].mean()))
    assert row["seconds"].value == 20.0
    assert 200 < row["smallest ESS"].value <= 600, "independent draws"
    assert row["largest R-hat"].value == pytest.approx(1.0, abs=0.05)
    assert "smallest ESS" not in table["SVI"]
    assert "smallest ESS" not in table["SVGD"]
    assert math.isnan(table["SVGD"]["seconds"].value)
    assert table["SVI"]["noise"].error == 0.0


@pytest.mark.long
def test_leave_one_out_stands_where_it_is_valid(posteriors, table):
    assert "LOO per datum" not in table["SVGD"]
    assert any("SVGD: particles are not independent draws" in note for note in table.notes)
    assert any("point estimates" in note for note in table.notes)
    data = posteriors["NUTS"].to_arviz(KEY, X, Y)
    expected, reasons = leave_one_out(data, None)
    assert table["NUTS"]["LOO per datum"] == expected
    assert not reasons


def test_unreliable_leave_one_out_is_shown_with_a_flag_and_its_reason():
    """Data far from what the draws say: importance sampling cannot undo them."""
    rng = np.random.default_rng(0)
    draws = mcmc_like() | {"f": jnp.asarray(3.0 * rng.normal(size=(400, 7))), "noise": jnp.full(400, 0.05)}
    posterior = ngp.Posterior.from_mcmc(model, draws)
    data = posterior.to_arviz(KEY, X, Y)
    estimate, reasons = leave_one_out(data, None)
    assert estimate.value == pytest.approx(loo(data).elpd / len(Y), rel=1e-12)
    assert "LOO marked ! is not reliable: Pareto k is above" in reasons[0]
    shown = Comparison({"NUTS": {"LOO per datum": estimate}}, reasons)
    assert next(line for line in str(shown).splitlines() if line.startswith("LOO per datum")).endswith(" !")
    assert [record["flag"] for record in shown.records()] == [" !"]


def test_leave_one_out_that_is_no_number_is_flagged():
    rng = np.random.default_rng(0)
    data = {"a": rng.normal(size=100)}, {"y": rng.normal(size=(100, 3)) + np.array([0.0, 0.0, -np.inf])}
    terms = TrainingDraws(*data, {}, {"y": np.zeros(3)}, {"y": ["data"], "a": []}, {}, ())
    estimate, reasons = leave_one_out(arviz_container("mcmc", terms, {}, {}, 1), None)
    assert str(estimate).endswith("!")
    assert not np.isfinite(estimate.value)
    assert reasons == ["LOO marked ! is no number: the log likelihood is not finite at 1 of 3 data."]


@pytest.mark.long
def test_text_and_files(table, tmp_path):
    text = str(table)
    lines = text.splitlines()
    assert lines[0].split() == ["SVI", "NUTS", "SVGD"]
    assert any(line.startswith("log density") and "±" in line for line in lines)
    noise = next(line for line in lines if line.startswith("LOO per datum"))
    assert noise.endswith("-"), "no LOO of particles"
    path = tmp_path / "table.csv"
    table.to_csv(path)
    with open(path) as file:
        rows = list(csv.DictReader(file))
    found = {(row["fit"], row["quantity"]): row["value"] for row in rows}
    assert float(found["NUTS", "RMSE"]) == table["NUTS"]["RMSE"].value
    assert found["SVGD", "engine"] == "stein"
    assert repr(table) == "Comparison(['SVI', 'NUTS', 'SVGD'])"


def test_classes_are_scored_as_classes():
    def classes(X, y=None):
        f = ngp.gp("f", PROBLEM.kernel, X_TEST[:3])
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Bernoulli("probit"), obs=y)

    posterior = ngp.Posterior.from_mcmc(classes, {"f": jnp.ones((5, 3))})
    labels = (Y_TEST > 0).astype(int)
    row = compare({"NUTS": posterior}, KEY, X_TEST, y=labels)["NUTS"]
    probability = np.asarray(posterior.predict(KEY, X_TEST).mean)
    assert row["accuracy"].value == pytest.approx(np.mean((probability > 0.5) == np.asarray(labels)))
    assert "RMSE" not in row
    assert "calibration error" in row


@pytest.mark.long
def test_several_labels_of_a_row_count_one_by_one():
    def labels(X, y=None):
        f = ngp.gp("f", PROBLEM.kernel, X_TEST[:3], outputs=2)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Bernoulli(), obs=y)

    posterior = ngp.Posterior.from_mcmc(labels, {"f": jnp.asarray(np.random.default_rng(0).normal(size=(5, 2, 3)))})
    y = np.stack([Y_TEST > 0, Y_TEST < 0.5], axis=1).astype(int)
    row = compare({"NUTS": posterior}, KEY, X_TEST, y=y)["NUTS"]
    probability = np.asarray(posterior.predict(KEY, X_TEST).mean)
    assert probability.shape == y.shape
    assert row["accuracy"].value == pytest.approx(np.mean((probability > 0.5) == y))


@pytest.mark.long
def test_large_parameters_are_left_out(posteriors):
    table = compare({"NUTS": posteriors["NUTS"]}, KEY, X_TEST, y=Y_TEST, train={"X": X, "y": Y}, max_parameters=1)
    assert "lengthscale[0]" not in table["NUTS"]
    assert any("too large for the table: ['lengthscale']" in note for note in table.notes)


@pytest.mark.long
def test_models_that_hold_their_data_stand_beside_those_that_do_not(posteriors):
    """With the noise fixed the exact process is a dense solve; predicting its own data would give another error."""

    def exact(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-0.7, 0.3))
        ngp.gp_regression("y", ngp.kernels.Matern32(1.3, 0.9), X, noise**2, obs=y)

    fits = {"exact": ngp.Posterior.from_mcmc(exact, {"noise": jnp.full(20, 0.3)}), "NUTS": posteriors["NUTS"]}
    assert fits["exact"].holds_data(X, Y)
    assert not fits["NUTS"].holds_data(X, Y)
    table = compare(fits, KEY, X_TEST, y=Y_TEST, at=X_TEST, train=(X, Y))
    whole = gram(np.concatenate([X, X_TEST]), 1.3, 0.9)
    solved = np.linalg.solve(whole[:7, :7] + 0.09 * np.eye(7), np.stack([Y, *whole[7:, :7]], axis=1))
    mean, variance = whole[7:, :7] @ solved[:, 0], 1.39 - np.sum(whole[7:, :7] * solved[:, 1:].T, axis=1)
    error = np.asarray(Y_TEST) - mean
    assert table["exact"]["RMSE"].value == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)
    density = stats.norm(mean, np.sqrt(variance)).logpdf(Y_TEST).mean()
    assert table["exact"]["log density"].value == pytest.approx(density, rel=1e-6)
    named = compare({"exact": fits["exact"]}, KEY, y=Y_TEST, at=X_TEST, train={"X": X, "y": Y})
    assert named["exact"]["RMSE"] == table["exact"]["RMSE"]
    assert math.isnan(named["exact"]["LOO per datum"].value)
    assert named.notes[-1] == "exact: LOO needs 25 draws, and there are 20."
    alone = compare({"NUTS": posteriors["NUTS"]}, KEY, X_TEST, y=Y_TEST)
    assert table["NUTS"]["RMSE"] == alone["NUTS"]["RMSE"]


def test_estimates_print():
    assert str(Estimate(1.23456)) == "1.235"
    assert str(Estimate(1.23456, 0.1)) == "1.235 ± 0.100"
    assert str(Estimate(math.nan)) == "-"
    assert Comparison({"a": {"x": Estimate(1.0)}, "b": {"z": Estimate(2.0)}}, ["n", "n"]).notes == ["n"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: compare({}, KEY, X_TEST, y=Y_TEST), TypeError, "posteriors must be a dictionary of posteriors by name"),
        (lambda p: compare({"a": 3}, KEY, X_TEST, y=Y_TEST), TypeError, "posteriors must be made of ngp.Posterior.*'a': 'int'"),
        (lambda p: compare(p, KEY, X_TEST, y=Y_TEST, seconds={"HMC": 1.0}), ValueError, r"seconds must be about the fits.*\['HMC'\]"),
        (lambda p: compare({"NUTS": p["NUTS"]}, KEY, X_TEST, y=Y_TEST[:, None]), ValueError, r"y must be of shape \(7,\)"),
        (lambda p: compare(p, KEY, X_TEST, y=Y_TEST, at=X_TEST), ValueError, "train must be given with at"),
    ],
)  # fmt: skip
def test_bad_input(posteriors, call, error, message):
    with pytest.raises(error, match=message):
        call(posteriors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": X}, "train must be a tuple of the arguments of the fit, or a dictionary of them by name, but got"),
        ({"train": "y"}, "train must be a tuple of the arguments of the fit"),
        ({"y": "y"}, "y must be an array of real numbers, but got a str"),
        ({"y": None}, "y must be an array of real numbers, but got None"),
        ({"seconds": {"a": "x"}}, "seconds must be a dictionary of numbers by name of the fit, but got {'a': 'x'}"),
        ({"seconds": {"a": None}}, "seconds must be a dictionary of numbers"),
        ({"seconds": 3.0}, "seconds must be a dictionary of numbers"),
    ],
)
def test_arguments_of_another_kind(options, message):
    posterior = ngp.Posterior.from_mcmc(model, mcmc_like(2))
    with pytest.raises(TypeError, match=message):
        compare({"a": posterior}, KEY, X_TEST, **{"y": Y_TEST, **options})


@pytest.mark.long
def test_counts_are_scored():
    """Draws of counts are whole numbers: the 5 % and 95 % quantiles of Poisson(1) are 0 and 3."""
    normal = dist.Normal(jnp.zeros((1, 4)), jnp.full((1, 4), 1e-3))
    prediction = Prediction([Observation(normal, Poisson())], [4], jax.random.key(0))
    found = scores(prediction, jnp.asarray([0, 3, 4, 1]))
    assert found["coverage of 90%"].value == 0.75


@pytest.mark.long
def test_a_right_prediction_of_counts_is_calibrated(rng):
    """By mid-ranks of ties its error was 0.13, for any number of data."""
    normal = dist.Normal(jnp.full((1, 1000), np.log(0.4)), jnp.full((1, 1000), 1e-6))
    prediction = Prediction([Observation(normal, Poisson())], [1000], jax.random.key(0))
    assert scores(prediction, rng.poisson(0.4, size=1000))["calibration error"].value < 0.04
