"""Forecasts of twelve series beside other methods: the page has the table of the rows, and the rows are good enough."""

import numpy as np

from examples.studies.series import series_forecasts as own
from examples.tools.guide_figures import GUIDE
from examples.tools.tables import read

ROWS, PEERS = (read(path, own.NUMBERS) for path in (own.ROWS, own.PEERS))


def test_the_table_of_the_page_is_that_of_the_rows():
    assert own.table(ROWS, PEERS) in (GUIDE / "papers/series.md").read_text()


def test_every_series_has_its_rows_at_both_origins_and_they_are_good_enough():
    """0.10 nats behind the best of six methods chosen in hindsight, on average, and no series covered below 0.8."""
    series = own.series()
    assert {(row["series"], row["origin"]) for row in ROWS} == {(name, at) for name in series for at in "01"}
    density, coverage = own.means(ROWS + PEERS, own.NUMBERS[0]), own.means(ROWS, own.NUMBERS[1])
    best = {name: max(value for method, value in one.items() if method != own.GAM) for name, one in density.items()}
    gaps = {name: density[name][own.GAM] - best[name] for name in density}
    assert np.mean([gap for name, gap in gaps.items() if name not in own.NEW]) > -0.1
    assert min(one[own.GAM] for one in coverage.values()) > 0.8


def test_splits_are_the_last_two_tenths():
    t = np.arange(30.0)
    found = [(origin, one[0][-1], two[0].tolist()) for origin, one, two in own.splits(t, t)]
    assert found == [(0, 23.0, [24.0, 25.0, 26.0]), (1, 26.0, [27.0, 28.0, 29.0])]
