"""Which rows a summary looks at, and what it says of its checks; numbers are in test_variance_shares, test_row_densities."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism import leave_one_out as row_evidence
from numpyro_gp.gam.answers import effects as variance_shares
from numpyro_gp.gam.answers import row_densities
from numpyro_gp.gam.answers import summary as report
from numpyro_gp.gam.answers.summary import checked, facts_of, report_on_rows
from tests.gam.known import draws_of, log_density, repeated

RNG = np.random.default_rng(0)
DATA = {"x": RNG.uniform(size=60), "n": RNG.poisson(3.0, 60)}


@pytest.mark.parametrize("module", ["summary", "shares", "verdict"])
def test_units_that_alternate_are_all_looked_at(module, monkeypatch):
    """Of a panel sorted by time every other row was looked at: one unit of two, whose share was 0.00 for 0.7."""
    who, rng = np.arange(240) % 2, np.random.default_rng(0)
    y = 2.0 * who + 0.3 * rng.normal(size=240)
    fit = ngp.gam("y ~ factor(who) + re(g)", {"who": who, "g": np.arange(240) // 24, "y": y})
    limits = {"summary": [(report, "MOST_ROWS")], "shares": [(variance_shares, "MOST_ROWS")]}
    for owner, name in limits.get(module, [(row_densities, "LOOKED_AT"), (row_evidence, "ROWS")]):
        monkeypatch.setattr(owner, name, 120)
    found = fit.summary()
    assert found.rows[0].share > 0.9
    assert found.rows[0].negligible == 0
    assert found.facts["deviance explained"] > 0.9
    assert found.notes == ()
    assert found.facts["log density, left out"].endswith("of 120 of them") == (module == "summary")


@pytest.mark.long
def test_a_summary_of_a_chain_looks_at_its_chains():
    """Two halves of one chain in different places: R-hat is far from one."""
    model = ngp.gam.model("n ~ linear(x)", DATA, "poisson")
    scales = np.concatenate([np.full(50, 0.5), np.full(50, 2.0)])[:, None] + 0.01 * RNG.normal(size=(100, 1))
    posterior = ngp.Posterior.from_mcmc(model, {"f_scale": scales, "f": 0.1 * RNG.normal(size=(100, 2))})
    fit = ngp.gam.Fit(model, posterior, None, None, "nuts", 100, (), jax.random.key(0))
    found = fit.summary()
    assert found.facts["checks of the fit"] == "noise, inducing inputs, residuals, calibration, chains"
    assert any("R-hat of f_scale" in note for note in found.notes)


def test_calibration_is_not_judged_by_weights_of_few_draws():
    """Counts near nine million know more of f than 24 inducing inputs leave: few draws are likely without a row."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 100)
    data = {"x": x, "y": rng.poisson(np.exp(16 + np.sin(x)))}
    said = str(ngp.gam("y ~ s(x)", data, "poisson").summary())
    assert "rows. Give curves more, as num_inducing=48" in said
    assert "calibration" not in said
    few = str(ngp.gam("y ~ s(x)", {"x": x, "y": rng.poisson(np.exp(1 + np.sin(x)))}, "poisson").summary())
    assert "residuals, calibration" in few


@pytest.mark.parametrize(
    ("kind", "name"), [(ngp.likelihoods.Gaussian, "gaussian"), (ngp.likelihoods.NegativeBinomial, "negative_binomial")]
)
def test_some_rows_have_the_numbers_of_these_rows(kind, name, monkeypatch):
    """Log densities at ``f``, by SciPy, of some rows; and the checks of a verdict run."""
    monkeypatch.setattr(report, "MOST_ROWS", 20)
    each = np.linspace(0.5, 3.0, 60)
    likelihood = kind(jnp.asarray(each))
    model = ngp.gam.model("n ~ linear(x)", DATA, likelihood)
    draws = draws_of(model, repeated(likelihood, 40), 40)
    found = report_on_rows(draws, 0.9, np.random.default_rng(0))
    wanted = log_density(name, model.rows.y[found.places], found.at.f, each[found.places])
    np.testing.assert_allclose(found.densities.log_density, wanted, rtol=1e-5)
    assert np.isfinite(facts_of(draws, found, True)[0]["deviance explained"])
    words, _ = checked(draws, found, None, False, np.random.default_rng(0))
    assert words.startswith("noise, inducing inputs, residuals")


def test_rows_that_no_weights_leave_out_are_counted_beside_the_density():
    """Two amounts far out, in groups of three rows: a note of its own stood below six of eight tables."""
    rng = np.random.default_rng(0)
    data = {"x": rng.uniform(size=40), "g": np.arange(40) % 12, "y": rng.gamma(1.0, size=40)}
    data["y"][[3, 5]] = 1e-6, 300
    found = ngp.gam("y ~ s(x) + re(g)", data, "gamma").summary(check=False)
    assert re.fullmatch(r"-\d\.\d{4} per row \(unreliable for \d+ rows\)", found.facts["log density, left out"])
    assert found.notes == ()


def test_a_column_of_the_first_seed_is_not_that_of_the_ties():
    """The first column of `default_rng(0)` broke ties of labels in its own order: "residuals are correlated, 0.91"."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=200)
    fit = ngp.gam("y ~ linear(x)", {"x": x, "y": x + 0.3 * rng.normal(size=200) > 0.5}, "bernoulli")
    assert not any("correlated" in note for note in fit.summary(density=False).notes)
