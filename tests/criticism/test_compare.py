"""The table of a comparison: its numbers against sums typed out, its text, and what it leaves out."""

import csv
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.criticism.compare import Comparison, compare, held_out_scores, loo_per_datum
from numpyro_gp.criticism.leave_one_out import psis_left_out
from numpyro_gp.likelihoods import Bernoulli, Gaussian, Poisson
from numpyro_gp.posterior import Prediction
from numpyro_gp.posterior.draws import TrainingDraws
from numpyro_gp.sites import Observation
from tests.fits import KEY, at_start, normal
from tests.oracles.problems import gram, regression

PROBLEM = regression(size=14, noise=0.3)
TEST, TRAIN = slice(0, None, 2), slice(1, None, 2)
X, Y = PROBLEM.X[TRAIN], PROBLEM.y[TRAIN]
X_TEST, Y_TEST = PROBLEM.X[TEST], PROBLEM.y[TEST]


def model(X, y=None, Z=PROBLEM.X[TRAIN]):
    noise = numpyro.sample("noise", dist.LogNormal(-0.7, 0.3))
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.2).expand([2]).to_event(1))
    f = ngp.gp("f", ngp.kernels.Matern32(1.3, lengthscale[:1]), Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), Gaussian(noise), obs=y)


RNG = np.random.default_rng(0)
DRAWS = {
    "f": jnp.asarray(0.05 * RNG.normal(size=(400, 7))),
    "noise": jnp.asarray(RNG.uniform(0.6, 0.9, 400)),
    "lengthscale": jnp.asarray(RNG.uniform(0.8, 1.2, (400, 2))),
}


class Particles:
    def particles(self, params):
        return params


@functools.cache
def posteriors():
    return {
        "SVI": at_start(model, None, X, Y),
        "NUTS": ngp.Posterior.from_mcmc(model, DRAWS),
        "SVGD": ngp.Posterior.from_stein(model, Particles(), jax.tree.map(lambda leaf: leaf[:20], DRAWS)),
    }


@functools.cache
def table():
    return compare(posteriors(), KEY, X_TEST, y=Y_TEST, train=(X, Y), seconds={"SVI": 1.5, "NUTS": 20.0})


@pytest.mark.long
def test_scores_are_those_of_the_prediction():
    """The log of the mean of densities, whose mean of logs would differ by 0.05 (`compare_scores_the_predictions`)."""
    prediction, row = posteriors()["NUTS"].predict(KEY, X_TEST), table()["NUTS"]
    mean, y, scale = np.asarray(prediction.mean), np.asarray(Y_TEST), np.sqrt(np.asarray(prediction.variance))
    assert row["RMSE"].value == pytest.approx(np.sqrt(np.mean((mean - y) ** 2)), rel=1e-9)
    density = np.asarray(prediction.log_density(Y_TEST))
    assert row["log density"].value == pytest.approx(density.mean(), rel=1e-9)
    assert row["log density"].error == pytest.approx(density.std(ddof=1) / np.sqrt(7), rel=1e-9)
    z = (y - mean) / scale
    gaussian = np.mean(scale * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5))
    assert row["CRPS"].value == pytest.approx(gaussian, abs=0.05)
    assert 0 <= row["coverage of 90%"].value <= 1


@pytest.mark.long
def test_hyper_parameters_time_chains_and_leave_one_out_where_it_is_valid():
    row = table()["NUTS"]
    assert row["noise"].value == pytest.approx(float(DRAWS["noise"].mean()))
    assert row["noise"].error == pytest.approx(float(DRAWS["noise"].std()))
    assert row["lengthscale[1]"].value == pytest.approx(float(DRAWS["lengthscale"][:, 1].mean()))
    assert row["seconds"].value == 20.0
    assert 200 < row["smallest ESS"].value <= 600, "independent draws"
    assert row["largest R-hat"].value == pytest.approx(1.0, abs=0.05)
    assert not {"smallest ESS"} & (set(table()["SVI"]) | set(table()["SVGD"]))
    assert math.isnan(table()["SVGD"]["seconds"].value)
    assert table()["SVI"]["noise"].error == 0.0
    assert "LOO per datum" not in table()["SVGD"]
    assert any("SVGD: particles are not independent draws" in note for note in table().notes)
    assert any("point estimates" in note for note in table().notes)
    few = compare({"NUTS": posteriors()["NUTS"]}, KEY, X_TEST, y=Y_TEST, train={"X": X, "y": Y}, max_parameters=1)
    assert "lengthscale[0]" not in few["NUTS"]
    assert any("too large for the table: ['lengthscale']" in note for note in few.notes)
    expected, reasons = loo_per_datum(posteriors()["NUTS"].draws(KEY, X, Y), None)
    assert (row["LOO per datum"], reasons) == (expected, [])


def test_unreliable_leave_one_out_is_shown_with_a_flag_and_its_reason():
    """Data far from what the draws say: importance sampling cannot undo them."""
    draws = DRAWS | {"f": 3 * normal(400, 7), "noise": jnp.full(400, 0.05)}
    data = ngp.Posterior.from_mcmc(model, draws).draws(KEY, X, Y)
    estimate, reasons = loo_per_datum(data, None)
    left = psis_left_out(np.asarray(data.log_likelihood["y"]))
    assert estimate.value == pytest.approx(left.pointwise.mean(), rel=1e-12)
    assert estimate.error == pytest.approx(left.pointwise.std() / np.sqrt(len(Y)), rel=1e-12)
    assert "LOO marked ! is not reliable: Pareto k is above" in reasons[0]
    shown = Comparison({"NUTS": {"LOO per datum": estimate}}, reasons)
    assert next(line for line in str(shown).splitlines() if line.startswith("LOO per datum")).endswith(" !")
    assert [record["flag"] for record in shown.records()] == [" !"]


def test_leave_one_out_of_equal_draws_is_right():
    """Terms of `gp_regression` at a mode are closed forms given all other data: each was flagged, k being infinite."""
    terms = np.broadcast_to([-0.3, -1.5, -2.0], (400, 3))
    draws = TrainingDraws({}, {"y": terms}, {}, {"y": np.zeros(3)}, {"y": ["data"]}, {}, ())
    estimate, remarks = loo_per_datum(draws, None)
    assert (estimate.flag, remarks) == ("", [])
    np.testing.assert_allclose(estimate.value, -3.8 / 3, rtol=1e-6)


def test_leave_one_out_that_is_no_number_is_flagged():
    data = {"a": RNG.normal(size=100)}, {"y": RNG.normal(size=(100, 3)) + np.array([0.0, 0.0, -np.inf])}
    terms = TrainingDraws(*data, {}, {"y": np.zeros(3)}, {"y": ["data"], "a": []}, {}, ())
    estimate, reasons = loo_per_datum(terms, None)
    assert str(estimate).endswith("!")
    assert not np.isfinite(estimate.value)
    assert reasons == ["LOO marked ! is no number: the log likelihood is not finite at 1 of 3 data."]


@pytest.mark.long
def test_text_and_files(tmp_path):
    lines = str(table()).splitlines()
    assert lines[0].split() == ["SVI", "NUTS", "SVGD"]
    assert any(line.startswith("log density") and "±" in line for line in lines)
    assert next(line for line in lines if line.startswith("LOO per datum")).endswith("-"), "no LOO of particles"
    table().to_csv(tmp_path / "table.csv")
    with open(tmp_path / "table.csv") as file:
        found = {(row["fit"], row["quantity"]): row["value"] for row in csv.DictReader(file)}
    assert float(found["NUTS", "RMSE"]) == table()["NUTS"]["RMSE"].value
    assert found["SVGD", "engine"] == "stein"
    assert repr(table()) == "Comparison(['SVI', 'NUTS', 'SVGD'])"


@pytest.mark.parametrize("outputs", [None, pytest.param(2, marks=pytest.mark.long)])
def test_classes_are_scored_as_classes(outputs):
    """Several labels of a row count one by one."""

    def classes(X, y=None):
        f = ngp.gp("f", PROBLEM.kernel, X_TEST[:3], outputs=outputs)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), Bernoulli("probit"), obs=y)

    posterior = ngp.Posterior.from_mcmc(classes, {"f": normal(*((5, 2, 3) if outputs else (5, 3)))})
    y = np.asarray(Y_TEST > 0).astype(int)
    y = np.stack([y, 1 - y], axis=1) if outputs else y
    row, probability = compare({"NUTS": posterior}, KEY, X_TEST, y=y)["NUTS"], posterior.predict(KEY, X_TEST).mean
    assert probability.shape == y.shape
    assert row["accuracy"].value == pytest.approx(np.mean((np.asarray(probability) > 0.5) == y))
    assert "RMSE" not in row
    assert outputs or "calibration error" in row


@pytest.mark.long
def test_models_that_hold_their_data_stand_beside_those_that_do_not():
    """With the noise fixed the exact process is a dense solve; predicting its own data would give another error."""

    def exact(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-0.7, 0.3))
        ngp.gp_regression("y", ngp.kernels.Matern32(1.3, 0.9), X, noise**2, obs=y)

    fits = {"exact": ngp.Posterior.from_mcmc(exact, {"noise": jnp.full(20, 0.3)}), "NUTS": posteriors()["NUTS"]}
    assert fits["exact"].holds_data(X, Y)
    assert not fits["NUTS"].holds_data(X, Y)
    both = compare(fits, KEY, X_TEST, y=Y_TEST, at=X_TEST, train=(X, Y))
    whole = gram(np.concatenate([X, X_TEST]), 1.3, 0.9)
    solved = np.linalg.solve(whole[:7, :7] + 0.09 * np.eye(7), np.stack([Y, *whole[7:, :7]], axis=1))
    mean, variance = whole[7:, :7] @ solved[:, 0], 1.39 - np.sum(whole[7:, :7] * solved[:, 1:].T, axis=1)
    error = np.asarray(Y_TEST) - mean
    assert both["exact"]["RMSE"].value == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)
    density = stats.norm(mean, np.sqrt(variance)).logpdf(Y_TEST).mean()
    assert both["exact"]["log density"].value == pytest.approx(density, rel=1e-6)
    named = compare({"exact": fits["exact"]}, KEY, y=Y_TEST, at=X_TEST, train={"X": X, "y": Y})
    assert named["exact"]["RMSE"] == both["exact"]["RMSE"]
    assert math.isnan(named["exact"]["LOO per datum"].value)
    assert named.notes[-1] == "exact: LOO needs 25 draws, and there are 20."
    assert both["NUTS"]["RMSE"] == table()["NUTS"]["RMSE"]


@pytest.mark.long
def test_a_fit_whose_data_have_no_mean_is_scored_by_all_else():
    """Student's t of df below one at one of four draws: the comparison ended with "impute missing values"."""

    def heavy(X, y=None):
        df = numpyro.sample("df", dist.LogNormal(0.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:2])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.StudentT(df, 0.3), obs=y)

    draws = {"df": jnp.array([0.9, 3.0, 4.0, 5.0]), "f": jnp.zeros((4, 2))}
    table = compare({"t": ngp.Posterior.from_mcmc(heavy, draws)}, KEY, X_TEST, y=Y_TEST)
    assert np.isnan(table["t"]["RMSE"].value)
    assert "t: no RMSE, since new data have no finite mean" in str(table)
    fitted = table["t"]
    assert all(np.isfinite(fitted[name].value) for name in ("log density", "CRPS", "coverage of 90%"))


@pytest.mark.long
def test_a_fit_whose_draws_or_densities_overflow_is_told_so():
    """Functions of sd 4000 under the Gamma likelihood: the comparison ended with "samples must be finite"."""

    def under(likelihood):
        def model(X, y=None):
            f = ngp.gp("f", ngp.kernels.RBF(4000.0**2, numpyro.sample("scale", dist.LogNormal(0.0, 1.0))), X[:2])
            with numpyro.plate("data", len(X)):
                ngp.observe("y", f(X), likelihood, obs=y)

        return ngp.Posterior.from_mcmc(model, draws)

    draws = {"scale": jnp.ones(4), "f": jnp.asarray([[1.0, -1.0], [-1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])}
    beyond = ngp.likelihoods.as_likelihood(lambda f: dist.Uniform(jnp.zeros_like(f), 0.05))
    posteriors = {"wide": under(ngp.likelihoods.Gamma(2.0)), "beyond": under(beyond)}
    table = compare(posteriors, KEY, X_TEST, y=jnp.abs(Y_TEST) + 0.1)
    assert all(np.isnan(table["wide"][name].value) for name in ("CRPS", "coverage of 90%", "calibration error"))
    assert "wide: no CRPS, coverage and calibration error: draws of new data are too large" in str(table)
    assert not np.isfinite(table["beyond"]["log density"].value)
    assert "beyond: some test data have a density that is zero" in str(table)


@pytest.mark.long
def test_counts_are_scored(rng):
    """By mid-ranks of ties the calibration error of a right prediction was 0.13, for any number of data."""

    def at(rate, size):
        normal = dist.Normal(jnp.full((1, size), np.log(rate)), jnp.full((1, size), 1e-6))
        return Prediction([Observation(normal, Poisson())], [size], KEY)

    # Of Poisson(7), 4 and 10 lie between the 5 % and 95 % quantiles, and outside of quarters.
    assert held_out_scores(at(7.0, 4), jnp.asarray([1, 4, 10, 14]))["coverage of 90%"].value == 0.5
    assert held_out_scores(at(0.4, 1000), rng.poisson(0.4, size=1000))["calibration error"].value < 0.04


def test_a_fit_in_place_of_its_posterior_is_refused():
    with pytest.raises(
        TypeError, match=r"posteriors\['a'\] must be a Posterior, but got an int. Pass fit.posterior\(\)"
    ):
        compare({"a": 3}, KEY, X_TEST, y=Y_TEST)
