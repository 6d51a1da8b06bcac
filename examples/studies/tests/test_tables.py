"""Tables of the examples: what is written, and standard errors."""

import csv

import numpy as np

from examples.tools.tables import direction, half_width, judged, listed, mean_and_error, read, save, told, with_error

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


def test_a_difference_is_seen_by_a_t_test_and_not_by_two_errors():
    """Of three values t at 95 % is 4.303: means of 4 and of 5 errors (0.577 each) differ; ten values need 2.262."""
    around = np.array([-1.0, 0.0, 1.0])  # an error of 1 / sqrt(3)
    assert [direction(around + k / np.sqrt(3)) for k in (4, 5, -5)] == [0, 1, -1]
    ten = np.tile([-1.0, 1.0], 5)  # an error of 1 / 3
    assert [direction(ten + k / 3) for k in (2.2, 2.3)] == [0, 1]
    np.testing.assert_allclose(half_width(0.5, 3), 0.5 * 4.302653, rtol=1e-6)
    assert np.isnan(half_width(np.nan, 1))
    assert direction([5.0]) == direction([5.0, 5.0]) == 0
    assert judged(around + 5 / np.sqrt(3), 1) == "**2.9 ± 0.6** (3)"
    assert judged(iter(around)) == "0.000 ± 0.577 (3)"


def test_sets_are_listed_by_what_is_seen_of_them():
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "none",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert told({"a": 1, "b": 0, "c": -1, "d": 1}) == "ahead on a and d, behind on c, not seen on b"
    assert told({"b": 0}) == "ahead on none, not seen on b"
