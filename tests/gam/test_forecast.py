"""Forecasts of the next rows: the exact process at those times, dates as numbers, calendars, refusals, and a figure."""

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.additive.columns import Column
from numpyro_gp.gam.answers import forecast as own

RNG = np.random.default_rng(4)
T = np.delete(np.arange(30.0), [8, 9])  # of which two are missing
DATA = {"t": T, "day": np.datetime64("2023-01-20") + T.astype(int), "x": RNG.normal(size=28)}
DATA["y"] = 0.3 * T + np.cumsum(0.5 * RNG.normal(size=28)) + 0.5 * RNG.normal(size=28)


@pytest.fixture(scope="module")
def fit():
    return ngp.gam("y ~ trend(t)", DATA)


def process(t, new, size, level, slope, line, of_rows, noise):
    """Mean and variance of data of a line, a walk and a smooth walk around their average, by the formulas on paper."""
    x, N = (np.append(t, new) - t.mean()) / t.std(), len(t)
    a, b = np.minimum(abs(x[:, None]), abs(x)), np.maximum(abs(x[:, None]), abs(x))
    is_beside = (x[:, None] >= 0) == (x >= 0)
    K = line**2 * (np.outer(x, x) + is_beside * (level**2 * a + slope**2 * a**2 * (3 * b - a) / 6))
    centring = np.eye(len(x))
    centring[:, :N] -= 1 / N
    K = centring @ K @ centring.T + (3 * size) ** 2  # and a constant of three sizes of the response
    solved = np.linalg.solve(K[:N, :N] + of_rows**2 * np.eye(N), K[:N, N:])
    mean = DATA["y"].mean() + solved.T @ (DATA["y"] - DATA["y"].mean())
    return mean, np.diagonal(K[N:, N:] - K[N:, :N] @ solved) + noise**2


def test_a_forecast_of_a_trend_is_that_of_the_exact_process(fit):
    """The equal mixture over draws of the hyper-parameters, each with its own noise."""
    forecast = fit.forecast(6, num_samples=4)
    np.testing.assert_array_equal(forecast.times, np.arange(30.0, 36.0))
    draws = fit._draws(4)
    size, every = (
        float(fit.model.start.size),
        zip(draws.lengths, draws.scales[:, 0], draws.values["noise"], strict=True),
    )
    found = [process(T, forecast.times, size, *own, line, noise, noise) for own, line, noise in every]
    means, variances = map(np.stack, zip(*found))
    np.testing.assert_allclose(forecast.mean, means.mean(0), rtol=1e-6)
    np.testing.assert_allclose(forecast.sd**2, variances.mean(0) + means.var(0), rtol=1e-6)
    np.testing.assert_allclose(forecast.variance, forecast.sd**2)
    low, high = forecast.band(0.8)
    for ends, share in ((low, 0.1), (high, 0.9)):
        below = stats.norm.cdf(ends, means, np.sqrt(variances)).mean(0)
        np.testing.assert_allclose(below, share, atol=2e-3)
    y = means.mean(0) + 0.3
    density = np.exp(stats.norm.logpdf(y, means, np.sqrt(variances))).mean(0)
    np.testing.assert_allclose(forecast.log_density(y), np.log(density), atol=5e-3)


def test_dates_are_numbers_of_days(fit):
    """From the table to the forecast, also as time stamps of pandas and in single precision."""
    pandas = pytest.importorskip("pandas")
    wanted = fit.forecast(5)
    stamps = pandas.DataFrame(DATA | {"day": pandas.to_datetime(DATA["day"])})
    with jax.enable_x64(False):
        rounded = ngp.gam("y ~ trend(day)", stamps).forecast(5)
    for found, rtol in ((ngp.gam("y ~ trend(day)", DATA).forecast(5), 1e-6), (rounded, 1e-4)):
        np.testing.assert_array_equal(found.times, np.datetime64("2023-02-19") + np.arange(5))
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=rtol)
        np.testing.assert_allclose(found.sd, wanted.sd, rtol=rtol)
    frame = rounded.to_frame(0.8)
    assert list(frame) == ["day", "mean", "sd", "median", "low", "high"]
    assert frame["day"].dtype.kind == "M"
    np.testing.assert_allclose(frame[["low", "high"]].T, rounded.band(0.8))


DAYS = np.arange("2023-01-02", "2023-03-04", dtype="M8[D]")
MONTHS = np.arange("2023-01", "2025-03", dtype="M8[M]")


@pytest.mark.parametrize(
    ("past", "wanted"),
    [
        (MONTHS.astype("M8[D]"), ["2025-03-01", "2025-04-01", "2025-05-01"]),
        (np.delete(MONTHS, [3, 4, 9]).astype("M8[D]") + 14, ["2025-03-15", "2025-04-15", "2025-05-15"]),
        (MONTHS[::3].astype("M8[D]"), ["2025-04-01", "2025-07-01", "2025-10-01"]),
        ((MONTHS + 1).astype("M8[D]") - 1, ["2025-03-31", "2025-04-30", "2025-05-31"]),
        (np.arange("2019", "2023", dtype="M8[Y]").astype("M8[D]"), ["2023-01-01", "2024-01-01", "2025-01-01"]),
        (DAYS, ["2023-03-04", "2023-03-05", "2023-03-06"]),
        (DAYS[::7], ["2023-03-06", "2023-03-13", "2023-03-20"]),
        (DAYS[np.is_busday(DAYS)], ["2023-03-06", "2023-03-07", "2023-03-08"]),
        (DAYS[np.is_busday(DAYS, "1111110")], ["2023-03-04", "2023-03-06", "2023-03-07"]),
        (DAYS[np.is_busday(DAYS)] - np.timedelta64(9, "h"), ["2023-03-05T15", "2023-03-06T15", "2023-03-07T15"]),
        (np.delete(DAYS[:22], [3, 10, 17]), ["2023-01-24", "2023-01-25", "2023-01-26"]),
        (
            np.arange("2023-01-01T00", "2023-01-03T00", 6, dtype="M8[h]"),
            ["2023-01-03T00", "2023-01-03T06", "2023-01-03T12"],
        ),
    ],
)
def test_dates_go_on_by_their_calendar(past, wanted):
    """Months, quarters, years, ends of months, days, weeks, hours, of days since 1970.

    Working days without weekends or Sundays, those of Tokyo in UTC, and days of which three Thursdays are missing.
    """
    model = ngp.gam.model("y ~ trend(d)", {"d": past, "y": np.arange(float(len(past)))})
    found = own.next_rows(model, 3, None)[1]["d"]
    np.testing.assert_array_equal(found, np.array(wanted, "M8[ms]"))


def test_numbers_go_on_by_their_step():
    quarters = np.arange(1959, 1972, 0.25)
    assert own.next_times(Column("t"), quarters[[*range(9), *range(12, 52)]], 2).tolist() == [1972.0, 1972.25]
    assert own.next_times(Column("t"), np.arange(7) * 0.1, 2).tolist() == [0.7, 0.8]
    twice = np.append(np.arange(40) * 0.1, np.linspace(0, 3.9, 40))  # of which some differ by their last digit
    assert own.next_times(Column("t"), twice, 2).tolist() == [4.0, 4.1]
    milliseconds = 1_700_000_000_003 + 4.0 * np.arange(60)  # since 1970, of 13 digits
    assert own.next_times(Column("t"), milliseconds, 2).tolist() == [1_700_000_000_243, 1_700_000_000_247]


def test_what_has_no_next_rows_is_refused_with_a_cure(fit):
    with pytest.raises(
        ValueError, match=r"must be equal .* got steps of 1.0 to 1.5. Ask fit.predict with rows of your"
    ):
        own.next_times(Column("t"), np.array([0, 1.0, 2.5, 4.0]), 3)
    with pytest.raises(ValueError, match=r"got none. Write trend\(t\) in the formula"):
        ngp.gam("y ~ linear(t)", DATA).forecast(3)
    with pytest.raises(ValueError, match=r"the column of time, 't'. Leave it out"):
        fit.forecast(3, {"t": [40.0, 41.0, 42.0]})
    with pytest.raises(ValueError, match=r"got \['t', 'x'\]. Ask fit.predict"):
        own.next_rows(ngp.gam.model("y ~ trend(t) + cycle(x)", DATA), 3, None)


def test_other_columns_are_passed_a_value_for_each_row_or_one_for_all():
    """One of them inside of a function; and functions of time itself are known."""
    table = DATA | {"e": np.exp(DATA["x"]), "t": T + 1}
    other = ngp.gam("y ~ trend(t) + linear(log(e)) + linear(log(t))", table)
    with pytest.raises(ValueError, match=r'next rows: \[\'e\'\], but got \[\]. Pass .* fit.forecast\(2, {"e": ...}\)'):
        other.forecast(2)
    one, each = other.forecast(2, {"e": 2.0}), other.forecast(2, {"e": [2.0, 2.0]})
    rows = other.predict({"t": [31.0, 32.0], "e": [2.0, 2.0]})
    for found in (one.mean, each.mean):
        np.testing.assert_allclose(found, rows.mean)


def test_the_figure_has_the_last_rows_the_median_and_two_bands(fit, tmp_path):
    forecast = fit.forecast(3)
    figure = forecast.plot(rows=5, path=tmp_path / "forecast.png")
    ax = figure.axes[0]
    median, rows = (line.get_xydata() for line in ax.lines)
    np.testing.assert_allclose(median, np.stack([forecast.times, forecast.quantiles(0.5)[0]], axis=1))
    np.testing.assert_allclose(rows, np.stack([T[-5:], DATA["y"][-5:]], axis=1))
    assert len(ax.collections) == 2
    assert (tmp_path / "forecast.png").exists()
    plt.close(figure)
    dated = ngp.gam.Forecast("day", "y", DATA["day"][:3], forecast.prediction, (DATA["day"], DATA["y"])).plot()
    assert len(dated.axes[0].lines[1].get_xdata()) == 12  # four for each row ahead
    plt.close(dated)
