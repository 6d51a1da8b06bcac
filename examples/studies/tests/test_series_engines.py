"""Forecasts of one model by three engines: the page has the table of the rows, and the engines agree."""

import numpy as np
import pytest

from examples.studies.series import series_engines as own
from examples.tools.guide_figures import GUIDE
from examples.tools.tables import read

ROWS = read(own.ROWS, own.NUMBERS)


def test_the_table_of_the_page_is_that_of_the_rows():
    assert own.table(ROWS) in (GUIDE / "papers/series.md").read_text()


def test_engines_agree():
    """Means within a tenth of a standard deviation of NUTS's, and spreads within a tenth, as the page says."""
    assert [(row["series"], row["engine"]) for row in ROWS] == [
        (name, one) for name in own.SERIES for one in own.ENGINES
    ]
    for row in ROWS:
        assert row["difference of means"] < 0.1, row
        assert 0.9 < row["ratio of sds"] < 1.1, row


@pytest.mark.parametrize("name", list(own.SERIES))
def test_rows_are_short_and_the_last_tenth_is_held_out(name):
    _, (t, y), (new, wanted) = own.data(name)
    assert len(y) + len(wanted) <= 150
    assert len(new) == round(0.1 * (len(y) + len(wanted)))
    assert t[-1] < new[0]
    assert np.isfinite(y).all()
