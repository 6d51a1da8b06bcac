"""Columns of dictionaries and tables: kinds, missing values, dates, levels."""

import datetime
import decimal
import fractions
import re

import numpy as np
import pytest

from numpyro_gp.additive import columns


class Series:
    """A column of polars: no array, but with ``to_numpy``."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return np.asarray(self.values)


class Frame:
    """A table of polars: columns by name, and no keys."""

    columns = ("a", "b")

    def __getitem__(self, name):
        return Series({"a": [1, 2], "b": ["x", "y"]}[name])


DAY = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")


def test_tables_of_every_kind():
    pandas = pytest.importorskip("pandas")
    plain, record = {"a": [1, 2], "b": ["x", "y"]}, np.array([(1, "x"), (2, "y")], dtype=[("a", int), ("b", "U1")])
    for data in (plain, Frame(), record, pandas.DataFrame(plain)):
        assert list(columns.keys_of(data)) == ["a", "b"]
        assert columns.column_values(data, "a").tolist() == [1, 2]
        assert [str(level) for level in columns.column_values(data, "b")] == ["x", "y"]
        np.testing.assert_allclose(columns.column_values(data, "log(a)"), np.log([1, 2]))


def test_missing_values_of_every_kind():
    pandas = pytest.importorskip("pandas")
    objects = np.array(["a", None, float("nan"), pandas.NA, pandas.NaT], object)
    for values, wanted in (
        (np.array([1.0, np.nan]), [False, True]),
        (objects, [False, True, True, True, True]),
        (np.array(["2020-01-01", "NaT"], "datetime64[D]"), [False, True]),
        (np.array(["a", "nan"]), [False, False]),
    ):
        assert columns.is_missing(values).tolist() == wanted


def test_numbers_booleans_and_dates():
    days = np.array(["1970-01-02T12:00", "1970-01-03"], "datetime64[m]")
    python = np.array([datetime.date(1970, 1, 2), datetime.date(1970, 1, 5)], object)
    for values, wanted in (
        (np.array([True, False]), [1.0, 0.0]),
        (days, [1.5, 2.0]),
        (python, [1.0, 4.0]),
        (np.array([1, 2.5], object), [1.0, 2.5]),
    ):
        assert columns.as_numbers("a", values).tolist() == wanted
    found = columns.number_column("a", days, np.ones(2))
    assert found.is_date
    assert found.encode(days).tolist() == [-1.0, 1.0]
    assert columns.number_column("a", python, np.ones(2)).is_date
    assert not columns.number_column("a", np.array([1, 2.5], object), np.ones(2)).is_date
    np.testing.assert_allclose(found.decode(found.encode(days)), [1.5, 2.0])
    weighted = columns.number_column("a", np.array([0.0, 3.0]), np.array([2.0, 1.0]))
    assert (weighted.shift, weighted.scale) == (1.0, np.sqrt(2.0))


def test_levels_and_codes():
    found = columns.category_column("a", np.array(["b", "a", "b"]), "category")
    assert found.levels == ("a", "b")
    assert found.encode(np.array(["b", "z", "a"])).tolist() == [1.0, 2.0, 0.0]
    assert len(columns.category_column("a", np.arange(60.0), "category").levels) == 60  # whole numbers are names
    # Of a response with the levels 1 and 1.5 the larger one is 1.
    assert columns.category_column("a", np.array([2.0, 1.5, 1.0, 0.5]), "category").levels == (0.5, 1, 1.5, 2)
    whole = columns.category_column("a", np.array([2.0, 1.0]), "category")
    assert whole.encode(np.array([1, 2])).tolist() == [0.0, 1.0]  # whole numbers are levels whatever their type


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: columns.column_values({"a": [1]}, "b"), r"data must be a table with the column 'b', but got the columns \['a'\]"),
        (lambda: columns.column_values({"a": [1]}, "sin(a)"), "a column must be a name or one of"),
        (lambda: columns.column_values({"a": 3.0}, "a"), r"but got shape \(\). Pass one value for each row: \[3\.0\]\."),
        (lambda: columns.column_values({"a": [[1]]}, "a"), r"column 'a' must be of shape \(N,\)"),
        # The logarithm of a missing value is missing.
        (lambda: columns.column_values({"a": [np.nan, -2.0, 3.0, 0.0]}, "log(a)"), r"log\(a\) must be of values that have one, but got a = -2, 1 of 4 rows"),
        (lambda: columns.keys_of("my.csv"), r"but got a str\. Read the file first: pandas\.read_csv\('my\.csv'\)"),
        (lambda: columns.keys_of(3), "data must be a dictionary of columns or a table, but got an int"),
        (lambda: columns.as_numbers("a", np.array(["x"])), r"column 'a' must be numbers.*factor\(a\)"),
        (lambda: columns.number_column("a", np.ones(3), np.ones(3)), "column 'a' must be one that varies, but got 1 in every row"),
        (lambda: columns.number_column("a", np.array([1.0, np.inf]), np.ones(2)), "column 'a' must be finite"),
        (lambda: columns.category_column("a", np.arange(1000), "by"), "by 'a' must be a category of at most 50 levels, but got 1000 numbers"),
        (lambda: columns.category_column("a", np.arange(60.0) / 7, "category"), r"60 numbers. Cut it into groups, or take s\(a\)"),
        (lambda: columns.category_column("a", np.array(["x"]), "category"), "category 'a' must be one that varies"),
        (lambda: columns.column_values({"day": DAY}, "log(day)"), r"column 'day' must be of numbers, as log\(day\) reads them, but got dates"),
        (lambda: columns.number_column("a", 1e-200 * np.arange(3.0), np.ones(3)), "must be of values whose squares are numbers"),
        (lambda: columns.column_values({1: np.ones(2), "1": np.zeros(2)}, "1"), "names of columns must be different as text, but got 1 and '1'"),
        (lambda: columns.as_numbers("a", np.array([datetime.time(3)], object)), r"but got datetime.time.*Make hours of the times of day"),
    ],
)  # fmt: skip
def test_refusals(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_objects_that_are_numbers_or_dates():
    """No warning of NumPy's either, which makes UTC of a time zone."""
    prices = np.array([decimal.Decimal("1.5"), fractions.Fraction(1, 4), 2], object)
    assert columns.as_numbers("a", prices).tolist() == [1.5, 0.25, 2.0]
    east = datetime.timezone(datetime.timedelta(hours=6))
    times = np.array([datetime.datetime(1970, 1, 2, 6, tzinfo=east), datetime.datetime(1970, 1, 3)], object)
    assert columns.as_numbers("a", times).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("single", [list, tuple])
def test_what_is_missing_among_text_is_no_text(single):
    """NumPy makes ``"nan"`` of it, and ``"1"`` of a number, which would be levels."""
    values = columns.as_array(single(["a", float("nan"), None, "b", 1]))
    assert columns.is_missing(values).tolist() == [False, True, True, False, False]
    assert columns.category_column("g", values[[0, 3, 4]], "category").levels == (1, "a", "b")
    assert columns.as_array(single(["a", "b"])).dtype.kind == "U"


def test_what_stands_for_a_number_is_refused_with_the_cure():
    """Each cure is applied to the column that was refused; that of pandas' periods is as pandas has it."""

    class Period:
        def to_timestamp(self):
            return datetime.datetime(1970, 1, 2)

    days = np.array([2, 3]).astype("timedelta64[D]").astype("timedelta64[ns]")
    texts = {"number": np.array(["1.5", "-2e3"]), "date": np.array(["1970-01-02", "1970-01-04"], object)}
    coerced = 'data["t"] = pandas.to_numeric(data["t"], errors="coerce").'
    for values, cure in [
        (days, 'Make days of the durations: data["t"] = data["t"] / np.timedelta64(1, "D").'),
        (texts["number"], 'Make numbers of the text: data["t"] = np.array(data["t"], float).'),
        (texts["date"], 'Make dates of the text: data["t"] = pandas.to_datetime(data["t"]).'),
        (np.array(["2/1/1970 10:00"]), "Make dates of the text"),
        (
            np.array([None, Period()], object),
            'Make dates of the periods: data["t"] = pandas.PeriodIndex(data["t"]).to_timestamp().',
        ),
        (np.array([0.5, None, "n/a", 1], object), "'n/a' among numbers. Make it missing: " + coerced),
        (np.array(["n/a", "0.5"]), "'n/a' among numbers. Make it missing: " + coerced),
        (np.array([True, 0.5], object), "True among numbers. Make"),
        (np.array([None, "west"], object), "others. Take factor(t) or re(t) for a category, s(x, by=t) for"),
        (np.array(["12 Main Street"]), "Take factor(t)"),
    ]:
        with pytest.raises(ValueError, match=re.escape(cure)):
            columns.as_numbers("t", values)
    assert columns.as_numbers("t", days / np.timedelta64(1, "D")).tolist() == [2.0, 3.0]
    assert columns.as_numbers("t", np.array(texts["number"], float)).tolist() == [1.5, -2000.0]
    pandas = pytest.importorskip("pandas")
    mixed = columns.as_array(pandas.to_numeric(pandas.Series([0.5, None, "n/a", 1]), errors="coerce"))
    np.testing.assert_array_equal(columns.as_numbers("t", mixed), [0.5, np.nan, np.nan, 1])
    assert columns.as_numbers("t", columns.as_array(pandas.to_datetime(texts["date"]))).tolist() == [1.0, 3.0]


def test_a_level_is_one_in_either_precision_and_as_bytes():
    """Else it is new, and a random effect says of it what its prior says."""
    doses = np.array([0.1, 0.2, 0.7, 1.0])
    for fitted, new in [(doses, doses.astype(np.float32)), (doses.astype(np.float32), doses)]:
        assert columns.category_column("dose", fitted, "category").encode(new).tolist() == [0, 1, 2, 3]
    close = np.array([0.1, 0.1 + 1e-12])  # two levels, and a third that is none of them
    found = columns.category_column("dose", close, "category")
    assert found.encode(np.array([*close, 0.1 + 2e-12, 1e300])).tolist() == [0, 1, 2, 2]
    text = columns.category_column("g", np.array([b"a", b"b"]), "category")
    assert (text.levels, text.encode(np.array(["b", "a"])).tolist()) == (("a", "b"), [1, 0])
