"""Terms of a series: their matrices against the library's kernels and differences, priors in units, inducing inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.answers.effects import grid_of
from numpyro_gp.gam.model import column_kernels as own
from numpyro_gp.gam.model.families import Start
from numpyro_gp.gam.model.family import as_family
from numpyro_gp.gam.table.layout import TableRows
from numpyro_gp.kernels import Empirical
from numpyro_gp.starting.priors import scales_of
from tests.gam.known import kernel_of_term

RNG = np.random.default_rng(3)
Z, X = np.sort(RNG.uniform(-1.6, 1.6, 5)), np.append(RNG.uniform(-2, 2, 4), 2.5)
POINTS = Empirical(RNG.uniform(-1.7, 1.7, 7), RNG.dirichlet(np.ones(7)))
GIVEN = {"trend": POINTS, "cycle": POINTS, "season": (Empirical(-1.7 + 0.8 * np.arange(500) / 500), 0.8)}
LENGTHS = np.array([0.7, 1.4])


@jax.jit
def dense(kernel):
    rows, points = X[:, None], Z[:, None]
    return kernel.matrix(points), kernel.matrix(points, rows), kernel.diagonal(rows)


@pytest.mark.parametrize("kind", GIVEN)
def test_matrices_are_those_of_the_library_and_slopes_are_differences(kind):
    matrices, step = own.time_matrices(kind, GIVEN[kind], Z, X), 1e-6
    found = own.split_kernel(matrices(LENGTHS))
    kernel = own.time_kernel(kind, jnp.ones(()), jnp.asarray(LENGTHS), GIVEN[kind])
    for one, other in zip(found, dense(kernel), strict=True):
        np.testing.assert_allclose(one.value, other, rtol=1e-9, atol=1e-11)
    for slot in range(2):
        more, less = (own.split_kernel(matrices(LENGTHS + sign * step * np.eye(2)[slot])) for sign in (1, -1))
        for one, high, low in zip(found, more, less, strict=True):
            np.testing.assert_allclose(one.slopes[slot], (high.value - low.value) / (2 * step), rtol=1e-5, atol=1e-7)


def test_priors_are_those_of_the_starting_kernels_in_units_of_the_column():
    """Growth over 7 quarters at the medians: that of `ngp.starting.trend`, whose units are those of the data."""
    t = 1980 + 0.25 * np.arange(80)
    y = np.cumsum(RNG.normal(size=80)) + 5 * np.cos(2 * np.pi * t)
    model = ngp.gam.model("y ~ trend(t) + season(t, period=1) + cycle(t)", {"t": t, "y": y})
    scales = scales_of(t, y, (1.0,))
    part = model.layout.read_terms[0]
    prior = model.kernel_data.time_priors[part.name]
    ends = np.array([1995.0, 1996.75])
    encoded = jnp.asarray((ends - t.mean()) / t.std())[:, None]
    medians = jnp.asarray([prior.scale.median, *(one.median for one in prior.lengths)])
    whole = jax.jit(lambda m: kernel_of_term(model, part, m[0] ** 2, m[1:]).matrix(encoded))
    C = np.asarray(whole(medians))
    steps = (ends - t.mean()) / 0.25
    a, b = steps
    level, slope = 0.1 * scales.step, 0.01 * scales.step
    growth = (4 * scales.sd / 79 * 7) ** 2 + level**2 * 7
    growth += slope**2 * (a**3 / 3 + b**3 / 3 - a**2 * (3 * b - a) / 3)
    np.testing.assert_allclose(C[0, 0] + C[1, 1] - 2 * C[0, 1], growth, rtol=1e-6)
    season, cycle = (model.kernel_data.time_priors[one.name] for one in model.layout.read_terms[1:])
    np.testing.assert_allclose([one.median for one in season.lengths], [1.0, 30 / t.std()])
    np.testing.assert_allclose([one.median * t.std() for one in cycle.lengths], [19.75 / 5, 19.75 / 15])
    np.testing.assert_allclose([season.scale.median, cycle.scale.median], [0.7 * scales.rest, 0.5 * scales.rest])
    np.testing.assert_allclose(model.start.noise, 0.4 * scales.step)
    np.testing.assert_allclose(model.start_values[3:6], [prior.scale.median, *(one.median for one in prior.lengths)])


def rows_of(y, weights=None):
    return TableRows(np.zeros((len(y), 0)), np.asarray(y, float), weights, 0)


def test_weights_are_rows_in_the_scales_of_a_series():
    """Of weights 6 and 1 at each time the noise started at 0.363, with rows repeated at 0.204."""
    rng = np.random.default_rng(0)
    t, y, weights = np.repeat(np.arange(40.0), 2), rng.normal(size=80), np.tile([6.0, 1.0], 40)
    rows = np.repeat(np.arange(80), weights.astype(int))
    for family, values in (("gaussian", y), ("poisson", np.round(np.exp(y)) + 1)):
        given = (), as_family(family), Start()
        one = own.series_scales(t, rows_of(values, weights), *given, np.arange(80.0))
        other = own.series_scales(t[rows], rows_of(values[rows]), *given, np.arange(80.0)[rows])
        np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize("t", [[0.0, 1.0], [0.0, 1.0, 2.0, 2.0, 2.0]])
def test_a_series_has_four_times_or_more(t):
    """Two rows made the future certain: 1.499 to 1.501."""
    table = {"t": t, "y": np.arange(len(t)) * 1.0}
    with pytest.raises(ValueError, match=r"data\['t'\] must be of 4 different times or more .* write linear\(t\)"):
        ngp.gam("y ~ trend(t)", table)
    assert np.isfinite(ngp.gam("y ~ linear(t)", table).predict({"t": [1.5]}).mean).all()


@pytest.mark.parametrize(("form", "step"), [("%Y%m", "MS"), ("%Y%m%d", "D")])
def test_months_written_as_one_number_are_no_time(form, step):
    """202212 was followed by 202213, and years stood 89 months apart."""
    pandas = pytest.importorskip("pandas")
    dates = pandas.date_range("2022-11-01", periods=40, freq=step)
    table = {"t": dates.strftime(form).astype(int), "y": np.arange(40.0)}
    with pytest.raises(ValueError, match=rf"must be dates, or numbers that count time, but got .* format=\"{form}\""):
        ngp.gam("y ~ trend(t)", table)
    cured = pandas.to_datetime(table["t"].astype(int).astype(str), format=form)
    assert (cured == dates).all()


def test_scales_are_on_the_scale_of_the_link():
    t, counts = np.arange(50.0), RNG.poisson(np.exp(2 + 0.02 * np.arange(50.0)))
    zero = np.zeros(50)
    found = own.series_scales(t, rows_of(counts), (), as_family("poisson"), Start(2.0, 0.5, 1.0), zero)
    np.testing.assert_allclose(found.sd, np.log(np.maximum(counts, 0.5)).std(), rtol=1e-9)
    labels = own.series_scales(t, rows_of(t % 2), (), as_family("bernoulli"), Start(0.0, 1.5, 1.0), zero)
    assert (labels.gap, labels.count, labels.sd, labels.step) == (1.0, 49.0, 1.5, 0.75)
    # Of counts that are all the same steps say nothing: the size of f is that of the family, and no number is 0.
    same = own.series_scales(t, rows_of(np.full(50, 3.0)), (), as_family("poisson"), Start(1.1, 0.3, 1.0), zero)
    assert (same.gap, same.count, same.sd, same.step, same.rest) == (1.0, 49.0, 0.3, 0.15, 0.3)
    # Several rows of one time have one step: that of their means.
    both = np.repeat(t, 2)
    noisy = np.repeat(t**1.5, 2) + np.tile([-9.0, 9.0], 50)
    alike = own.series_scales(both, rows_of(noisy), (), as_family("gaussian"), Start(), np.zeros(100))
    np.testing.assert_allclose(alike.step, np.diff(t**1.5).std(), rtol=1e-5)


def test_inducing_inputs_are_rows_of_a_trend_and_phases_of_a_season():
    """And points stand for a measure: those of its quantiles."""
    table = {"t": np.arange(9.0) ** 2, "y": np.arange(9.0)}
    for measure, law in (("uniform", stats.uniform), ("gaussian", stats.norm)):
        data = ngp.gam.model("y ~ trend(t)", table, measure=measure).kernel_data
        (given,), own_measure = data.column_data(data.layout.read_terms[0]), data.measures[0]
        low, width = (
            (own_measure.low, own_measure.high - own_measure.low)
            if measure == "uniform"
            else (own_measure.mean, own_measure.sd)
        )
        points = np.asarray(given.points)
        np.testing.assert_allclose(law(low, width).cdf(points), (np.arange(len(points)) + 0.5) / len(points), rtol=1e-9)
    x = np.sort(RNG.uniform(-1.7, 1.7, 700))
    trend, season, cycle = ngp.gam.trend("t"), ngp.gam.season("t", period=12), ngp.gam.cycle("t")
    np.testing.assert_array_equal(own.time_inducing(trend, np.repeat(x[:90], 2), None), x[:90])
    some = own.time_inducing(trend, x, None)
    assert len(some) == 500
    assert {x[0], x[-1]} <= set(some) <= set(x)
    assert len(own.time_inducing(cycle, x, None)) == 150
    months = np.linspace(-1.7, 1.7, 480)
    points = own.time_inducing(season, months, 12 * (months[1] - months[0]))
    assert len(points) == 12 * 5
    assert np.all((points >= months[0]) & (points <= months[-1] + 1e-9))
    yearly = own.time_inducing(season, months, 300 * (months[1] - months[0]))
    assert len(yearly) <= 150
    np.testing.assert_array_equal(own.time_inducing(season, months[:30], 12 * (months[1] - months[0])), months[:30])


@pytest.mark.long
def test_a_model_of_a_series_can_be_traced_and_its_season_is_drawn_at_the_end():
    """Points of a circle are numbers where a model is traced, also those of a cyclic curve under another measure."""
    t = np.arange(60.0)
    data = {"t": t, "h": np.arange(60) % 12, "y": np.cos(np.pi * t / 6) + 0.1 * t}
    for formula, measure in (("y ~ season(t, period=12) + trend(t)", "gaussian"), ("y ~ s(h, cyclic=True)", "uniform")):
        model = ngp.gam.model(formula, data, measure=measure)
        jax.eval_shape(lambda X, model=model: numpyro.handlers.seed(model, 0)(X), model.arguments[0])
    model = ngp.gam.model("y ~ season(t, period=12) + cycle(t)", data)
    for part, low, count in zip(model.layout.read_terms, (59.0 - 12.0, 0.0), (80, 320), strict=True):
        (axis,), _ = grid_of(model, part, 80)
        drawn = model.layout.columns[0].decode(axis)
        np.testing.assert_allclose([drawn[0], drawn[-1], len(drawn)], [low, 59.0, count], atol=1e-9)
