"""Coverage where data are censored or inputs noisy, in the rows that are kept."""

import csv
from pathlib import Path

import pytest
from scipy.stats import binom

from examples.studies.calibration import partial_data

RESULTS = Path(__file__).parents[1] / "calibration"


def counts(name):
    """Intervals that held the truth, of how many, ``{(way, quantity): (held, all)}``."""
    rows = list(csv.DictReader((RESULTS / f"{name}.csv").read_text().splitlines()))
    ways = {row["way"] for row in rows}
    names = [key for key in rows[0] if key.endswith("_covered")]
    every = {way: [row for row in rows if row["way"] == way] for way in ways}
    return {(way, key): (sum(int(row[key]) for row in own), len(own)) for way, own in every.items() for key in names}


@pytest.mark.parametrize(("name", "right", "wrong"), [("censored", "censored", None), ("noisy", "noisy", "noise")])
def test_stored_rows_cover_at_the_nominal_rate(name, right, wrong):
    """Level 1e-3 for each of five quantities; and hardly ever where the study's end is taken for an event.

    Of inputs that are taken for exact the noise alone is missed by so much.
    """
    for (way, key), (held, number) in counts(f"{name}_coverage").items():
        assert number == 100
        low, high = binom.ppf([5e-4, 1 - 5e-4], number, partial_data.LEVEL)
        if way == right:
            assert low <= held <= high, (way, key, held)
        elif wrong is None or key.startswith(wrong):
            assert held < low, (way, key, held)
