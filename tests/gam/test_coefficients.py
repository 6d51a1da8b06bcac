"""Coefficients: those of the closed form of a linear mixed model at each draw, in the units of the data."""

import builtins
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.answers.coefficients import Coefficient
from tests.gam.known import fit_of
from tests.precision import x64

RNG = np.random.default_rng(0)
SITES, KINDS = np.array(["east", "north", "west"]), np.array(["a", "b", "c"])
DATA = {
    "dose": 40 + 7 * RNG.normal(size=60),
    "hour": np.arange(60) % 24,
    "site": RNG.choice(SITES, 60),
    "kind": RNG.choice(KINDS, 60, p=[0.2, 0.5, 0.3]),
}
DATA["y"] = 3 - 0.2 * DATA["dose"] + 1.5 * (DATA["site"] == "west") + 0.5 * RNG.normal(size=60)
DATA["n"] = RNG.poisson(np.exp(0.1 * (DATA["dose"] - 40) + (DATA["kind"] == "a")))
NOISE = 0.5


def closed_form(fit, design, prior_of):
    """Moments ``(S, K)`` of all coefficients ``y - c = D b + e``, ``b ~ N(0, V)``, with ``V`` of each draw's scales.

    Behind them those of the last two less the one before both.
    """
    model, found = fit.model, []
    for scales in fit._draws().scales:
        prior = prior_of(scales)
        gain = np.linalg.solve(design @ prior @ design.T + NOISE**2 * np.eye(len(design)), design @ prior).T
        of_all = np.vstack([np.eye(len(prior)), np.eye(len(prior))[-2:] - np.eye(len(prior))[-3]])
        variance = np.diagonal(of_all @ (prior - gain @ design @ prior) @ of_all.T)
        found.append((of_all @ gain @ (model.rows.y - model.start.constant), variance))
    means, variances = map(np.array, zip(*found, strict=True))
    means[:, 0] += model.start.constant
    return means, variances


def check_rows(rows, means, variances, digits):
    """Of mixtures over draws: mean, standard deviation, and the ends of 80 %."""
    for row, mean, variance in zip(rows, means.T, variances.T, strict=True):
        wanted = mean.mean(), np.sqrt(variance.mean() + mean.var())
        np.testing.assert_allclose((row.estimate, row.sd), wanted, rtol=digits, atol=digits)
        shares = [stats.norm.cdf(end, mean, np.sqrt(variance)).mean() for end in (row.low, row.high)]
        np.testing.assert_allclose(shares, (0.1, 0.9), atol=10 * digits)


@pytest.mark.parametrize("is_double", [True, False])
def test_slopes_levels_and_the_intercept_are_those_of_the_mixed_model_in_closed_form(is_double):
    """Also that of a factor, whose levels are independent but for their average over the rows, which is zero."""
    with x64(is_double):
        formula = "y ~ linear(dose) + re(site) + re(site, by=dose) + factor(kind)"
        fit = ngp.gam(formula, DATA, ngp.likelihoods.Gaussian(NOISE))
        table = fit.coefficients(0.8)
    x, sd = DATA["dose"] - DATA["dose"].mean(), DATA["dose"].std()
    sites, kinds = (np.asarray(DATA[n][:, None] == all_, float) for n, all_ in (("site", SITES), ("kind", KINDS)))
    p = kinds.mean(axis=0)
    around = np.eye(3) - np.outer(p, p) / (p @ p)

    def prior_of(scales):
        alone = [scales[4], scales[0] / sd, *[scales[1]] * 3, *[scales[2] / sd] * 3, *[0] * 3]
        prior = np.diag(np.square(alone))
        prior[8:, 8:] = scales[3] ** 2 * around
        return prior

    design = np.hstack([np.ones((60, 1)), x[:, None], sites, sites * x[:, None], kinds])
    rows = [table["intercept"], table["linear(dose)"]]
    rows += [table[name, site] for name in ("re(site)", "re(site, by=dose)") for site in SITES]
    rows += [table["factor(kind)", kind] for kind in (*KINDS, *(f"{kind} - {KINDS[0]}" for kind in KINDS[1:]))]
    check_rows(rows, *closed_form(fit, design, prior_of), 1e-6 if is_double else 1e-4)
    assert all(np.isnan(row.ratio) for row in table)  # the link is the identity
    scales = fit._draws().scales
    for name, own in (("sd of re(site)", scales[:, 1]), ("sd of re(site, by=dose)", scales[:, 2] / sd)):
        row = table[name]
        wanted = own.mean(), own.std(), *np.quantile(own, (0.1, 0.9))
        np.testing.assert_allclose((row.estimate, row.sd, row.low, row.high), wanted, rtol=1e-12)


def test_units_do_not_move_what_a_slope_is_and_a_measure_moves_the_intercept_alone():
    """A dose in other units from another zero, and a line that is zero at the middle of the range."""
    fit = ngp.gam("n ~ linear(dose)", DATA, "poisson").coefficients()
    other = ngp.gam("n ~ linear(dose)", DATA | {"dose": 1e6 - DATA["dose"] / 1000}, "poisson").coefficients()
    first, second = fit["linear(dose)"], other["linear(dose)"]
    np.testing.assert_allclose((second.estimate, second.sd), (-1000 * first.estimate, 1000 * first.sd), rtol=1e-4)
    np.testing.assert_allclose((second.low, second.high), (-1000 * first.high, -1000 * first.low), rtol=1e-2)
    uniform = ngp.gam("n ~ linear(dose)", DATA, "poisson", measure="uniform").coefficients()
    np.testing.assert_allclose(uniform["linear(dose)"][2:4], first[2:4], rtol=0.05)
    away = 0.5 * (DATA["dose"].min() + DATA["dose"].max()) - DATA["dose"].mean()
    wanted = fit["intercept"].estimate + away * first.estimate
    np.testing.assert_allclose(uniform["intercept"].estimate, wanted, rtol=0.05)


def test_levels_of_a_factor_beside_a_trend_differ_at_the_noise_of_each_draw():
    """Two levels average to zero over the rows, so that the second less the first is a multiple of either."""
    rng = np.random.default_rng(4)
    kinds = rng.choice(KINDS[:2], 24)
    y = np.cumsum(0.3 * rng.normal(size=24)) + (kinds == "b") + 0.5 * rng.normal(size=24)
    table = ngp.gam("y ~ trend(t) + factor(kind)", {"t": np.arange(24), "kind": kinds, "y": y}).coefficients()
    one, less = table["kind", "b"], table["kind", "b - a"]
    np.testing.assert_allclose(np.array(less[2:6]) / one[2:6], 1 / np.mean(kinds == "a"), rtol=1e-6)


def test_ratios_are_exponentials_where_the_link_has_them():
    for response, family, word in (("n", "poisson", "rate ratio"), ("b", "bernoulli", "odds ratio")):
        data = DATA | {"b": np.where(DATA["n"] > 1, "many", "few")}
        table = fit_of(
            ngp.gam.model(f"{response} ~ linear(dose) + re(site)", data, family),
            getattr(ngp.likelihoods, family.capitalize())(),
        ).coefficients()
        row = table["linear(dose)"]
        np.testing.assert_allclose(row[6:], np.exp([row.estimate, row.low, row.high]), rtol=1e-12)
        assert np.isnan([table["intercept"].ratio, table["sd of re(site)"].ratio_high]).all()
        assert word in str(table).splitlines()[0]


@pytest.mark.long
def test_draws_of_a_chain_are_the_coefficients_themselves():
    """A line of scale 0.2 is ``0.2 v`` in standard deviations of its column; levels ``0.2 v``."""
    model, keys = ngp.gam.model("n ~ linear(dose) + re(site)", DATA, "poisson"), jax.random.split(jax.random.key(1))
    v = np.asarray(jax.random.normal(keys[0], (40, 5)))
    posterior = ngp.Posterior.from_mcmc(model, {"f_scale": jnp.full((40, 2), 0.2), "f": jnp.asarray(v)})
    table = ngp.gam.Fit(model, posterior, None, None, "nuts", 40, (), keys[1]).coefficients(0.5)
    draws = {
        ("intercept", ""): model.start.constant + 3 * model.start.size * v[:, 4],
        ("linear(dose)", ""): 0.2 * v[:, 0] / DATA["dose"].std(),
        ("re(site)", "north"): 0.2 * v[:, 2],
    }
    for name, own in draws.items():
        row = table[name]
        np.testing.assert_allclose((row.estimate, row.sd), (own.mean(), own.std()), rtol=1e-5)
        assert (own <= row.low).sum() in range(9, 12)
        assert (own >= row.high).sum() in range(9, 12)


def test_lengthscales_are_in_the_units_of_their_columns():
    """Those of the draws are 1: a standard deviation, and a radian of the day."""
    model = ngp.gam.model("n ~ s(dose) + s(hour, cyclic=True) + te(dose, hour)", DATA, "poisson")
    table = fit_of(model, ngp.likelihoods.Poisson()).coefficients()
    wanted = {"s(dose)": DATA["dose"].std(), "s(hour)": 24 / (2 * np.pi)}
    wanted |= {("te(dose, hour)", "dose"): DATA["dose"].std(), ("te(dose, hour)", "hour"): DATA["hour"].std()}
    for name, length in wanted.items():
        term, *level = name if isinstance(name, tuple) else (name,)
        np.testing.assert_allclose(table[f"lengthscale of {term}", *level].estimate, length, rtol=1e-12)


@pytest.mark.long
def test_terms_of_time_have_a_memory_and_a_period_in_the_units_of_their_column():
    series = {"month": np.arange(48.0), "y": np.sin(np.arange(48.0) / 3) + 0.1 * RNG.normal(size=48)}
    fit = ngp.gam("y ~ trend(month) + season(month, period=12) + cycle(month)", series)
    names, lengths = [row.term for row in fit.coefficients()], fit._draws().lengths
    season, cycle = "season(month, period=12)", "cycle(month)"
    assert names == ["intercept", f"memory of {season}", f"memory of {cycle}", f"period of {cycle}"]
    found = [row.estimate for row in fit.coefficients()][1:]
    np.testing.assert_allclose(found, lengths[:, 3:].mean(axis=0) * series["month"].std(), rtol=1e-12)


def test_a_table_prints_in_columns_and_makes_a_frame(monkeypatch):
    pandas = pytest.importorskip("pandas")
    rows = (
        Coefficient("linear(dose)", "", -0.25, 0.1, -0.4, -0.1, 0.78, 0.67, 0.9),
        Coefficient("re(site)", "west", 1.0, 0.5, 0.2, 1.8, 2.7, 1.2, 6.0),
        Coefficient("sd of re(site)", "", 0.7, 0.3, 0.3, 1.2),
    )
    table = ngp.gam.Coefficients(rows, 0.9, "odds ratio")
    assert str(table).splitlines() == [
        "term            level  estimate  sd   5 %   95 %  odds ratio",
        "linear(dose)           -0.25     0.1  -0.4  -0.1  0.78 (0.67 to 0.9)",
        "re(site)        west   1         0.5  0.2   1.8   2.7 (1.2 to 6)",
        "sd of re(site)         0.7       0.3  0.3   1.2",
    ]
    assert (len(table), list(table)[1], table["re(site)"]) == (3, rows[1], rows[1])
    assert table["dose"] is table["linear(dose)"]  # as a formula has it
    frame = table.to_frame()
    pandas.testing.assert_frame_equal(frame, pandas.DataFrame(list(rows)))
    assert ngp.gam.Coefficients(rows, 0.9).to_frame().columns.tolist() == frame.columns[:6].tolist()

    def without_pandas(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError
        return imported(name, *args, **kwargs)

    imported = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(ImportError, match="pandas must be installed for to_frame, but got no such package"):
        table.to_frame()


def test_a_row_that_is_not_there_is_named():
    rows = tuple(Coefficient("re(site)", level, 1.0, 0.5, 0.2, 1.8) for level in (1, 2))
    table = ngp.gam.Coefficients(rows, 0.9)
    for name, words in (
        ("s(x)", r"one of \['re\(site\)'\], but got 's\(x\)'"),
        (("re(site)", 3), r"one of \[1, 2\], but got \('re\(site\)', 3\)"),
        ("re(site)", r"Write table\['re\(site\)', 1\]"),
    ):
        with pytest.raises(KeyError, match=words):
            table[name]


def test_a_column_in_huge_units_has_rate_ratios_beyond_floats_without_a_warning():
    """A slope of some 10^5 per unit: its exponential is infinite."""
    data = {"x": 1e-6 * DATA["dose"], "n": DATA["n"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ngp.gam("n ~ x", data, "poisson").coefficients()["x"]
    assert found.estimate > 1e4
    assert found.ratio == np.inf
