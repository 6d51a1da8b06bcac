"""Censored responses in a formula: probabilities by SciPy and closed forms, a Tobit regression, words, and answers."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats

import numpyro_gp as ngp
from numpyro_gp.gam.answers.predictions import latent
from numpyro_gp.gam.model.censoring import TAILS, said_of
from numpyro_gp.gam.model.families import NAMED
from numpyro_gp.gam.search.bound import BoundParts, Data
from tests.gam.known import LAWS
from tests.likelihoods.grids import expected
from tests.precision import x64

RNG = np.random.default_rng(3)
NUMBERS = {"gaussian": (0.7,), "student_t": (3.0, 0.7), "gamma": (2.5,), "exponential": ()}
ROWS = 300
X = RNG.normal(size=ROWS)
WHOLE, BOUND = 2 + 1.5 * X + 0.8 * RNG.normal(size=ROWS), RNG.normal(3.0, 1.0, ROWS)
DATA = {"x": X, "t": np.minimum(WHOLE, BOUND), "cens": WHOLE > BOUND, "dead": (WHOLE <= BOUND).astype(int)}
NEW = {"x": [0.0, 1.0, 2.0]}


def fit(censored="cens", family="gaussian", formula="t ~ linear(x)", data=DATA, **options):
    return ngp.gam(formula, data, family, censored=censored, **options)


def test_far_tails_neither_underflow_nor_lose_their_slope():
    """By closed forms: of two degrees of freedom, and of whole shapes; the hazard of a normal is ``t + 1 / t - ..``."""
    one = np.ones(1)
    log, slope = TAILS[ngp.likelihoods.Gaussian].at(1, 1e4 * one, 0 * one, one)
    np.testing.assert_allclose(log, -0.5e8 - np.log(1e4 * np.sqrt(2 * np.pi)) - 1e-8, rtol=1e-14)
    np.testing.assert_allclose(slope - 1e4, 1e-4, rtol=1e-7)
    t = 1e12 * one  # a power of t: P(T > t) = p(t) t / df
    log, slope = TAILS[ngp.likelihoods.StudentT].at(1, t, 0 * one, 40.0, 1.0)
    np.testing.assert_allclose(log, stats.t(40).logpdf(t) + np.log(t / 40), rtol=1e-14)
    np.testing.assert_allclose(slope, 40 / t, rtol=1e-12)
    log, slope = TAILS[NAMED["gamma"].kind].at(1, 1000.0 * one, 0 * one, 3.0)  # Q(3, x) = e^-x (1 + x + x^2 / 2)
    np.testing.assert_allclose(log, -3000 + np.log(1 + 3000 + 4.5e6), rtol=1e-14)
    np.testing.assert_allclose(slope, 0.5 * 3000**3 / (1 + 3000 + 4.5e6), rtol=1e-12)
    log, slope = TAILS[NAMED["gamma"].kind].at(-1, 1e-300 * one, 0 * one, 3.0)  # P(3, x) = x^3 / 6
    np.testing.assert_allclose(log, 3 * np.log(3e-300) - np.log(6), rtol=1e-14)
    np.testing.assert_allclose(slope, 3.0, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("family", NUMBERS)
def test_the_value_is_the_integral_and_slopes_are_differences(family):
    """Of rows of all sides, narrow and wide; and all of them are those of the library's own `Censored`."""
    y, sides = np.array([0.6, 1.4, 0.9, 2.2, 0.3]), np.array([1.0, 0.0, -1.0, 1.0, -1.0])
    mean, weights = np.array([0.3, -0.5, 0.8, 0.1, -0.2]), RNG.uniform(0.5, 2, 5)
    variance = np.array([0.4, 0.3, 1e-3, 2.0 if family in ("gaussian", "student_t") else 0.3, 0.4])
    model = ngp.gam.model("y ~ linear(x)", {"x": np.arange(5.0), "y": y}, family, censored=sides)
    parts, data = BoundParts(model), Data.of(model)._replace(weights=weights)
    assert not parts.vector_layout.is_exact
    numbers = [np.exp(0.3)] * (len(parts.vector_layout.places) - 1)
    given = [0.3 * np.ones(len(parts.evaluator.start)), data, mean, variance]

    def log_known(f):
        law = LAWS[family](f, *numbers)
        log = np.where(sides > 0, law.logsf(y), np.where(sides < 0, law.logcdf(y), law.logpdf(y)))
        return np.maximum(log, -1e4)  # SciPy's probability is zero 10 standard deviations of f away

    found = parts.density(*given)
    np.testing.assert_allclose(found.value, weights @ expected(log_known, mean, variance), rtol=1e-6)
    for at, slopes in ((0, found.of_free), (2, found.of_mean), (3, found.of_variance)):
        moved = []
        for move in 1e-5 * np.eye(len(given[at])):
            up, down = ([*given[:at], given[at] + sign * move, *given[at + 1 :]] for sign in (1, -1))
            moved.append((parts.density(*up).value - parts.density(*down).value) / 2e-5)
        np.testing.assert_allclose(slopes, moved, rtol=1e-5, atol=1e-6)
    if family == "student_t":  # takes 20 seconds to compile
        return
    for one, other in zip(found, parts.compiled_density(*given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def tobit(y, cens):
    """Intercept, slope and logarithm of the noise that are likeliest, and their standard deviations."""

    def loss(p):
        law = stats.norm(p[0] + p[1] * X, np.exp(p[2]))
        return -np.sum(np.where(cens, law.logsf(y), law.logpdf(y)))

    found = optimize.minimize(loss, [0.0, 0.0, 0.0])
    return found.x, np.sqrt(np.diag(found.hess_inv))


def test_a_tobit_regression_is_that_of_maximum_likelihood_and_without_it_slopes_are_biased():
    """In single precision too. By simulation the slope is 1.5, and that of rows taken as they are is below 1.1."""
    likeliest, spread = tobit(DATA["t"], DATA["cens"])
    for is_double in (True, False):
        with x64(is_double):
            table = {name: x.astype(np.float64 if is_double else np.float32) for name, x in DATA.items()}
            found, naive = fit(data=table), ngp.gam("t ~ linear(x)", table)
            own = found.coefficients()["linear(x)"]
            zero, one = np.asarray(found.predict({"x": [0.0, 1.0]}).mean, float)
            np.testing.assert_allclose([zero, one - zero], likeliest[:2], atol=0.15 * spread[:2].min())
            np.testing.assert_allclose(own.sd, spread[1], rtol=0.1)
            noise = np.log(float(str(found.summary(check=False, density=False).facts["noise"]).split()[0]))
            np.testing.assert_allclose(noise, likeliest[2], atol=0.5 * spread[2])
            assert abs(own.estimate - 1.5) < 2 * own.sd
            assert naive.coefficients()["linear(x)"].estimate < 1.1


def test_words_for_sides_are_the_same_fit():
    """Booleans, numbers and text; an array beside the table; and a column of events, negated."""
    cens, like = DATA["cens"], fit()
    words = np.where(cens, "right", "none")
    for data, censored in (
        (DATA | {"cens": cens.astype(float)}, "cens"),
        (DATA | {"cens": words}, "cens"),
        (DATA, cens),
        (DATA, "not dead"),
        (DATA | {"not dead": cens}, "not dead"),
        (DATA | {"alive": ["none" if one else "right" for one in cens]}, "not alive"),
        ({"x": X, "t": -DATA["t"], "cens": np.where(cens, "left", "none")}, "cens"),
        ({"x": X, "t": -DATA["t"], "cens": -cens.astype(int)}, "cens"),
    ):
        sign = np.sign(np.mean(np.asarray(data["t"])))
        found = fit(censored, data=data)
        np.testing.assert_allclose(sign * found.predict(NEW).mean, like.predict(NEW).mean, rtol=1e-6)


def test_rows_with_missing_sides_are_left_out_and_a_weight_counts_copies():
    cens = DATA["cens"].astype(object)
    cens[:9] = None
    found = fit(data=DATA | {"cens": cens})
    assert found.model.rows.left_out == 9
    assert found.model.rows.reasons == (("without cens", 9),)
    some = {name: column[9:] for name, column in DATA.items()}
    np.testing.assert_allclose(found.predict(NEW).mean, fit(data=some).predict(NEW).mean, rtol=1e-12)
    weights = 1 + np.arange(ROWS) % 3
    twice = {name: np.repeat(column, weights) for name, column in DATA.items()}
    wanted, got = fit(data=twice), fit(weights=weights)
    np.testing.assert_allclose(got.predict(NEW).mean, wanted.predict(NEW).mean, rtol=1e-6)
    np.testing.assert_allclose(got.result.losses[-1], wanted.result.losses[-1], rtol=1e-9)


@pytest.mark.long
def test_predictions_are_of_the_response_itself_and_densities_of_what_is_known_of_it(tmp_path):
    """A table of new rows may leave the column out; a row that misses it in a table with the column is NaN."""
    found, y, sides = fit(), np.array([2.0, 3.0, 4.0]), ["right", "none", "left"]
    plain, told = found.predict(NEW), found.predict(NEW | {"cens": sides})
    for name in ("mean", "variance", "function_mean"):
        np.testing.assert_allclose(getattr(plain, name), getattr(told, name), rtol=1e-6)
    np.testing.assert_allclose(plain.quantiles([0.05, 0.5]), told.quantiles([0.05, 0.5]), rtol=1e-9)
    np.testing.assert_allclose(found.quantiles(NEW, [0.5])[0], plain.mean, rtol=1e-3)
    np.testing.assert_allclose(found.predictor()(NEW).mean, plain.mean, rtol=1e-6)
    mean, variance = latent(found._draws(), found.model.layout.encode(NEW))
    law = stats.norm(mean, np.sqrt(variance + np.asarray(found._draws().likelihood.scale)[:, None] ** 2))
    each = [law.sf(y)[:, 0], law.pdf(y)[:, 1], law.cdf(y)[:, 2]]
    np.testing.assert_allclose(told.log_density(y), np.log(np.mean(each, axis=1)), rtol=1e-6)
    np.testing.assert_allclose(plain.log_density(y), np.log(law.pdf(y).mean(axis=0)), rtol=1e-6)
    with pytest.warns(UserWarning, match="Rows with missing values are predicted as NaN: 1 of 3"):
        lost = found.predict(NEW | {"cens": np.array([True, None, False])}).mean
    np.testing.assert_array_equal(np.isnan(lost), [False, True, False])
    found.save(tmp_path / "fit.npz")
    again = ngp.gam.load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(again.predict(NEW | {"cens": sides}).log_density(y), told.log_density(y))
    assert str(again.summary()) == str(found.summary())


def test_new_rows_without_a_column_that_is_negated_are_observed():
    y = np.array([2.0, 3.0, 4.0])
    found = fit("not dead").predict(NEW)
    np.testing.assert_array_equal(found.log_density(y), fit().predict(NEW).log_density(y))
    assert not np.array_equal(found.log_density(y), fit("not dead").predict(NEW | {"dead": [0, 0, 0]}).log_density(y))


def test_the_model_for_every_engine_scores_what_is_known():
    model = ngp.gam.model("t ~ linear(x)", DATA, censored="cens")
    values = {"f_scale": np.ones(1), "noise": np.array(0.9), "f": np.array([0.3, -0.2])}
    seeded = numpyro.handlers.seed(numpyro.handlers.substitute(model, values), 0)
    trace = numpyro.handlers.trace(seeded).get_trace(*model.arguments)
    site = trace["y"]
    f = np.asarray(site["fn"].mean_latent)
    law = stats.norm(f, 0.9)
    wanted = np.where(DATA["cens"], law.logsf(DATA["t"]), law.logpdf(DATA["t"]))
    np.testing.assert_allclose(site["fn"].log_prob(site["value"]), wanted, rtol=1e-6, atol=1e-6)


def test_the_summary_counts_censored_rows_and_leaves_them_out_of_residuals():
    found = fit()
    count = int(DATA["cens"].sum())
    facts = found.summary().facts
    assert facts["censored"] == f"{count} of 300 rows: their response is known to be greater"
    assert "deviance explained" not in facts
    assert said_of(np.array([1.0, -1, -1, 0])).endswith("greater; 2 of 4 rows: their response is known to be smaller")
    left, weights = found.residuals()
    np.testing.assert_array_equal(np.isnan(left), DATA["cens"])
    np.testing.assert_array_equal(weights, ~DATA["cens"])
    assert len(found._points(found._draws(), residuals=True)["linear(x)"].residuals) == 300 - count


def test_a_column_of_events_that_is_not_negated_is_asked_for():
    few = np.arange(ROWS) < 20
    for data, censored, cure in (
        ({"x": X, "t": WHOLE, "e": ~few}, "e", 'write censored="not e"'),
        ({"x": X, "t": WHOLE, "e": few}, "not e", 'write censored="e"'),
        ({"x": X, "t": WHOLE}, ~few, "negate what is passed as censored"),
    ):
        note = f"280 of 300 rows are censored: if they are those that are observed, {cure}"
        assert note in fit(censored, data=data, num_steps=1).notes
    assert not any("are censored" in note for note in fit(num_steps=1).notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"family": "poisson"},
            "family must be one of .*'gaussian', 'student_t', 'gamma', 'exponential'.* but got poisson",
        ),
        ({"family": "beta"}, "family must be one of .*, or a likelihood of continuous responses, beside censored="),
        (
            {"family": ngp.likelihoods.Poisson()},
            "a likelihood of continuous responses, beside censored=, but got Poisson",
        ),
        ({"censored": "gone"}, "a table with the column 'gone', which censored reads"),
        ({"censored": "not gone"}, "a table with the column 'gone', which censored reads"),
        (
            {"censored": np.ones((ROWS, 1))},
            r"censored must be the name of a column, or one value for each row, but got",
        ),
        ({"censored": np.ones(3)}, "columns must be of one length"),
        (
            {"censored": 0 * X + 2},
            "censored.* must be true, 1 or 'right' where the response is known to be greater.*but got 2",
        ),
        (
            {"censored": "word"},
            r"or 'left' where it is known to be smaller, but got 'yes'. Compare: .* == 'yes', if 'yes' says",
        ),
        ({"censored": "not side"}, "false, 0 or 'none' where it is observed, but got 'left'"),
        ({"censored": "all"}, 'rows must be observed.*all 300 of them censored. If .*write censored="not all"'),
    ],
)
def test_what_is_no_censoring_is_refused(options, message):
    data = DATA | {
        "word": ["no", "yes"] * (ROWS // 2),
        "side": ["left"] * ROWS,
        "all": [True] * ROWS,
        "t": abs(DATA["t"]).round(),
    }
    with pytest.raises((ValueError, TypeError), match=message):
        fit(data=data, **options)


@pytest.mark.long
def test_a_likelihood_of_the_users_own_is_censored_too():
    """Weibull times, against the likeliest slope by SciPy; and chains start from the default fit."""

    def weibull():
        shape = numpyro.sample("shape", dist.LogNormal(0.0, 1.0))
        return lambda f: dist.Weibull(jax.numpy.exp(f), shape)

    rng, x = np.random.default_rng(0), X[:100]
    times, end = np.exp(1 + 0.5 * x) * rng.weibull(1.5, 100), rng.uniform(1, 8, 100)
    data = {"x": x, "t": np.minimum(times, end), "dead": times <= end}

    def loss(p):
        law = stats.weibull_min(np.exp(p[2]), scale=np.exp(p[0] + p[1] * x))
        return -np.sum(np.where(data["dead"], law.logpdf(data["t"]), law.logsf(data["t"])))

    wanted = optimize.minimize(loss, [0.0, 0.0, 0.0]).x
    for options in ({}, {"engine": "nuts", "num_steps": 100}):
        found = fit("not dead", weibull, data=data, **options)
        own = found.coefficients()["linear(x)"]
        assert abs(own.estimate - wanted[1]) < 0.4 * own.sd
        assert found.predict(NEW).mean.shape == (3,)


def test_a_series_is_forecast_without_a_column_of_censoring():
    """Beside a level of 3, above which nothing was read."""
    t = np.arange(60.0)
    data = {"t": t, "y": np.minimum(0.06 * t + 0.2 * np.sin(t), 3.0), "high": 0.06 * t + 0.2 * np.sin(t) > 3.0}
    ahead = fit("high", formula="y ~ trend(t)", data=data).forecast(5)
    assert ahead.times[0] == 60.0
    assert np.all(ahead.mean > 3.0)
    assert ngp.gam("y ~ trend(t)", data).forecast(5).mean[0] < 3.2


@pytest.mark.parametrize("family", NUMBERS)
def test_tails_are_those_of_scipy_and_slopes_their_differences(family):
    f, y, numbers = np.linspace(-2.0, 3.0, 11), np.array(1.3), NUMBERS[family]
    tail, move = TAILS[NAMED[family].kind].at, 1e-6
    for side in (1, -1):
        law = [LAWS[family](one, *numbers) for one in (f, f + move, f - move)]
        wanted, up, down = (one.logsf(y) if side > 0 else one.logcdf(y) for one in law)
        log, slope = tail(side, y, f, *numbers)
        np.testing.assert_allclose(log, wanted, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(side * slope, (up - down) / (2 * move), rtol=1e-6, atol=1e-9)
