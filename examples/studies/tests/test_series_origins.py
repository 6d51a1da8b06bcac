"""Forecasts of eleven series from five origins beside three peers: the page has the table, and rows are good enough."""

import itertools

import numpy as np

from examples.studies.series import series_origins as own
from examples.tools.guide_figures import GUIDE
from examples.tools.tables import read

ROWS, PEERS = (read(path, own.NUMBERS) for path in (own.ROWS, own.PEERS))


def test_the_table_of_the_page_is_that_of_the_rows():
    assert own.table(ROWS + PEERS) in (GUIDE / "papers/series.md").read_text()


def test_every_series_has_its_rows_at_all_origins():
    for rows, methods in ((ROWS, ("ngp.gam",)), (PEERS, own.METHODS)):
        found = {(row["series"], row["origin"], row["method"]) for row in rows}
        assert found == set(itertools.product(own.series(), "01234", methods))


def test_splits_are_one_horizon_apart_and_end_with_the_rows():
    found = [(origin, past[-1], ahead.tolist()) for origin, past, ahead in own.splits(np.arange(60.0))]
    assert [origin for origin, *_ in found] == [0, 1, 2, 3, 4]
    assert found[0] == (0, 39.0, [40.0, 41.0, 42.0, 43.0])
    assert found[-1] == (4, 55.0, [56.0, 57.0, 58.0, 59.0])
