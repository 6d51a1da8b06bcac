"""Tables of the examples: what is written, and standard errors."""

import csv

import numpy as np

from examples.tables import mean_and_error, read, save, with_error

ROWS = [{"set": "a", "score": 1.0}, {"set": "a", "score": 3.0}, {"set": "b", "score": 5.0}]


def test_rows_come_back(tmp_path):
    save(tmp_path / "t.csv", ROWS)
    with open(tmp_path / "t.csv") as file:
        assert [float(row["score"]) for row in csv.DictReader(file)] == [1.0, 3.0, 5.0]


def test_standard_error_of_the_mean():
    """Of 1 and 3: standard deviation sqrt(2), of their mean 1. A division by N in place of N - 1 makes 0.71."""
    found = mean_and_error(ROWS, ("set",), ("score",))
    np.testing.assert_allclose(found["a",]["score"], (2.0, 1.0))
    assert found["b",]["score"][0] == 5.0
    assert np.isnan(found["b",]["score"][1])


def test_numbers_are_read_as_numbers_and_no_file_as_no_rows(tmp_path):
    assert read(tmp_path / "t.csv") == []
    save(tmp_path / "t.csv", [{"set": "a", "split": 1, "score": 0.5, "steps": 3}])
    assert read(tmp_path / "t.csv", ("score",)) == [{"set": "a", "split": 1, "score": 0.5, "steps": "3"}]
    assert (with_error(1.0, 0.25), with_error(1.0, np.nan, 1)) == ("1.000 ± 0.250", "1.0")
