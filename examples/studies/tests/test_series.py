"""Forecasts of series: the page has the tables of the rows, every run has its row, and the rows are good enough."""

import itertools

import numpy as np
import pytest

from examples.studies.series import line_series, series_engines, series_forecasts, series_origins
from examples.tools.guide_figures import GUIDE
from examples.tools.tables import read

PAGE = (GUIDE / "papers/series.md").read_text()
ENGINES = read(series_engines.ROWS, series_engines.NUMBERS)
FORECASTS, ORIGINS = (
    tuple(read(path, one.NUMBERS) for path in (one.ROWS, one.PEERS)) for one in (series_forecasts, series_origins)
)


def test_the_tables_of_the_page_are_those_of_the_rows():
    assert series_engines.table(ENGINES) in PAGE
    assert series_forecasts.table(*FORECASTS) in PAGE
    assert series_origins.table([*ORIGINS[0], *ORIGINS[1]]) in PAGE


def test_engines_agree():
    """Means within a tenth of a standard deviation of NUTS's, and spreads within a tenth, as the page says."""
    wanted = itertools.product(series_engines.SERIES, series_engines.ENGINES)
    assert [(row["series"], row["engine"]) for row in ENGINES] == list(wanted)
    for row in ENGINES:
        assert row["difference of means"] < 0.1, row
        assert 0.9 < row["ratio of sds"] < 1.1, row


def test_forecasts_are_good_enough():
    """0.10 nats behind the best of six methods chosen in hindsight, on average, and no series covered below 0.8."""
    own, (rows, peers) = series_forecasts, FORECASTS
    assert {(row["series"], row["origin"]) for row in rows} == {(name, at) for name in own.series() for at in "01"}
    density, coverage = own.means(rows + peers, own.NUMBERS[0]), own.means(rows, own.NUMBERS[1])
    best = {name: max(value for method, value in one.items() if method != own.GAM) for name, one in density.items()}
    gaps = {name: density[name][own.GAM] - best[name] for name in density}
    assert np.mean([gap for name, gap in gaps.items() if name not in own.NEW]) > -0.1
    assert min(one[own.GAM] for one in coverage.values()) > 0.8


def test_rows_on_a_line_are_there_and_their_likelihoods_are_those_of_tinygp():
    rows = read(line_series.ROWS, line_series.NUMBERS)
    assert [row["series"] for row in rows] == list(line_series.CASES)
    beside = [row for row in rows if np.isfinite(row["of tinygp"])]
    assert {row["series"].split(",")[0] for row in beside} == {"sunspots", "star"}
    for row in beside:
        assert abs(row["log likelihood"] / row["of tinygp"] - 1) < 1e-10, row
        assert abs(row["in single precision"] / row["of tinygp"] - 1) < 1e-5, row


@pytest.mark.parametrize("name", [name for name in line_series.CASES if "sensor" not in name])
def test_what_is_held_out_on_a_line_is_the_end_or_whole_days(name):
    t, y, error, is_held = line_series.data(name)
    assert np.all(np.diff(t) > 0)
    assert np.isfinite([t, y, error]).all()
    if "days" in name:
        starts, ends = t[np.flatnonzero(np.diff(is_held * 1.0) > 0) + 1], t[np.flatnonzero(np.diff(is_held * 1.0) < 0)]
        assert 5 < len(starts) <= 12
        assert is_held.mean() < 0.1
        assert np.all(ends - starts < 3)
    else:
        assert t[~is_held].max() < t[is_held].min()
        assert is_held.sum() in (30, len(t) // 10)


def test_every_series_has_its_rows_at_all_origins():
    for rows, methods in zip(ORIGINS, (("ngp.gam",), series_origins.METHODS), strict=True):
        found = {(row["series"], row["origin"], row["method"]) for row in rows}
        assert found == set(itertools.product(series_origins.series(), "01234", methods))


@pytest.mark.parametrize("name", list(series_engines.SERIES))
def test_rows_are_short_and_the_last_tenth_is_held_out(name):
    _, (t, y), (new, wanted) = series_engines.data(name)
    assert len(y) + len(wanted) <= 150
    assert len(new) == round(0.1 * (len(y) + len(wanted)))
    assert t[-1] < new[0]
    assert np.isfinite(y).all()


def test_splits_are_the_last_rows_in_their_order():
    t = np.arange(30.0)
    found = [(origin, one[0][-1], two[0].tolist()) for origin, one, two in series_forecasts.splits(t, t)]
    assert found == [(0, 23.0, [24.0, 25.0, 26.0]), (1, 26.0, [27.0, 28.0, 29.0])]
    found = [(origin, past[-1], ahead.tolist()) for origin, past, ahead in series_origins.splits(np.arange(60.0))]
    assert [origin for origin, *_ in found] == [0, 1, 2, 3, 4]
    assert found[0] == (0, 39.0, [40.0, 41.0, 42.0, 43.0])
    assert found[-1] == (4, 55.0, [56.0, 57.0, 58.0, 59.0])
