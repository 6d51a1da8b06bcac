"""Columns of data as they come, as numbers: from dictionaries, structured arrays, pandas and polars tables.

Neither pandas nor polars is imported: what both have, columns by name with ``to_numpy``, is enough.
"""

import dataclasses
import datetime
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from unicodedata import normalize

import numpy as np

from numpyro_gp.checks import fail

COLUMN_FUNCTIONS = {"log": np.log, "log1p": np.log1p, "exp": np.exp, "sqrt": np.sqrt}
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
# Numbers of so few values may name levels; more are taken for a measurement.
MOST_LEVELS = 50


@dataclasses.dataclass(frozen=True)
class Column:
    """How one column becomes numbers: a measurement in standard deviations from its mean, or a category in codes.

    Attributes
    ----------
    name : str
    levels : tuple, optional
        Of a category, in order.
    shift, scale : float
        Mean and standard deviation of a number.
    low, high : float
        Ends of the range of a number.
    is_date : bool
        Numbers are days since 1970.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ngp.gam.Column("age", None, 50.0, 10.0).encode(np.array([40.0, 60.0])).tolist()
    [-1.0, 1.0]
    """

    name: str
    levels: tuple[Any, ...] | None = None
    shift: float = 0.0
    scale: float = 1.0
    low: float = 0.0
    high: float = 1.0
    is_date: bool = False

    @property
    def is_category(self) -> bool:
        """Whether it has levels."""
        return self.levels is not None

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Numbers ``(N,)``; a level that is not known gets the code behind the last."""
        if self.levels is None:
            return (as_numbers(self.name, values) - self.shift) / self.scale
        known, codes = {level: code for code, level in enumerate(self.levels)}, list[int]()
        some, place = distinct(values)
        for value in map(plain, some):
            code = known.get(value, len(known))
            if code == len(known) and isinstance(value, float):  # it or a level may be rounded: 0.1 is one level
                with np.errstate(over="ignore"):
                    own = np.float32(value)
                    same = (level for level in known if isinstance(level, float) and np.float32(level) == own)
                    code = next((known[level] for level in same if float(own) in (level, value)), code)
            codes.append(code)
        return np.array(codes, float)[place]

    def decode(self, coded: np.ndarray) -> np.ndarray:
        """Numbers in the units of the data."""
        return coded * self.scale + self.shift


def distinct(values: np.ndarray) -> tuple[np.ndarray, Any]:
    """The different values and which of them each row is; objects, which may have no order, as they are."""
    if values.dtype.kind == "O":
        return values, slice(None)
    some, place = np.unique(values, return_inverse=True)
    return some, place.reshape(-1)


def plain(value: Any) -> Any:
    """A level as it is compared: one value is one level, whatever its type is in another table.

    Whole numbers are integers, bytes are text, and dates those of Python: of a day, or of a day and a time in UTC.
    """
    if isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.astype(f"{value.dtype.kind}8[us]").item()  # NumPy gives integers for some of its units
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime.datetime):
        value = _naive(value)
        return value.date() if value.time() == datetime.time() else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _naive(value: Any) -> object:
    """A date of Python, in UTC where it has a time zone; of pandas' time stamps, that of Python."""
    value = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    has_zone = getattr(value, "tzinfo", None) is not None
    return value.astimezone(datetime.UTC).replace(tzinfo=None) if has_zone else value


def keys_of(data: Any) -> Mapping[str, object]:
    """Columns of a table by their names as text, with what the table calls them: pandas has names that are numbers."""
    if getattr(getattr(data, "dtype", None), "names", None):
        return {name: name for name in data.dtype.names}
    if not hasattr(data, "__getitem__") or not (hasattr(data, "keys") or hasattr(data, "columns")):
        cure = 'Pass {"age": ages, "dose": doses}, or a table of pandas or polars.'
        if isinstance(data, (str, os.PathLike)):
            cure = f"Read the file first: pandas.read_csv({os.fspath(data)!r})."
        fail("data", "a dictionary of columns or a table", f"a {type(data).__name__}", cure, TypeError)
    by_text: dict[str, object] = {}
    for name in data.keys() if hasattr(data, "keys") else data.columns:  # the keys of a pandas table are its columns
        if (text := str(name)) in by_text and by_text[text] != name:
            cure = "Give one of them another name."
            fail("names of columns", "different as text", f"{by_text[text]!r} and {name!r}", cure)
        by_text[text] = name
    return by_text


def check_order(data: Any, **others: object) -> None:
    """Refuse columns of pandas that have the same labels in another order: rows are taken as they stand."""
    given = {**(data if isinstance(data, Mapping) else {"data": data}), **others}
    labels = {name: x.index for name, x in given.items() if hasattr(x, "index") and hasattr(x, "to_numpy")}
    for name, own in labels.items():
        first, one = next(iter(labels.items()))
        if len(own) == len(one) and not own.equals(one) and own.isin(one).all() and one.isin(own).all():
            required = f"in the order of {first!r}, whose labels it has"
            cure = f"Pass {name}.loc[{first}.index], or {name}.to_numpy() where the rows are in order as they stand."
            fail(name, required, "another order", cure)


def column_values(data: Any, expression: str, reader: str = "") -> np.ndarray:
    """A column by its name, or a function of one: ``log(age)``; what has no value is NaN, NaT or None.

    ``reader`` is the term that reads it, for an error to name.
    """
    keys = keys_of(data)
    if expression not in keys:  # Python reads names of a formula in this form: the micro sign as the letter mu
        expression = next((name for name in keys if normalize("NFKC", name) == expression), expression)
    if expression in keys:
        values = as_array(data[keys[expression]])
        if values.ndim != 1:
            cure = "Pass one value for each row" + (f": [{values}]." if not values.ndim else ".")
            fail(f"column {expression!r}", "of shape (N,)", f"shape {values.shape}", cure)
        return values
    call = re.fullmatch(r"(\w+)\((.*)\)", expression)
    if call and call[1] in COLUMN_FUNCTIONS:
        given = column_values(data, call[2], reader or expression)
        if are_dates(given):
            cure = f"Make a column of numbers first, such as the days since the first of {call[2]}."
            fail(f"column {call[2]!r}", f"of numbers, as {expression} reads them", "dates", cure)
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = as_numbers(call[2], given)
            found: np.ndarray = COLUMN_FUNCTIONS[call[1]](inner)
        if (bad := np.isnan(found) & ~np.isnan(inner)).any():  # not a missing value, which is left out
            got = f"{call[2]} = {inner[bad][0]:.6g}, {bad.sum()} of {len(bad)} rows"
            fail(expression, "of values that have one", got, f"Leave these rows out, or write {call[2]} itself.")
        return found
    if call and call[1] == "C":
        cure = f"Write factor({call[2]}) for the levels of a category, or re({call[2]})."
        fail("a term", "one of gam's", repr(expression), cure)
    if call:
        cure = f"Write s({call[2]}) for a curve, or make a column of its values, and name that."
        fail("a column", f"a name or one of {sorted(COLUMN_FUNCTIONS)} of one", repr(expression), cure)
    reads = f", which {reader} reads" if reader and reader != expression else ""
    cure = "Add it to the data, or correct its name in the formula."
    fail("data", f"a table with the column {expression!r}{reads}", f"the columns {list(keys)}", cure)


def as_moments(days: np.ndarray, unit: Literal["ms", "us"]) -> np.ndarray:
    """Dates of days since 1970, which columns of dates are encoded as, rounded to a unit."""
    return np.datetime64(0, unit) + np.round(days * (np.timedelta64(1, "D") / np.timedelta64(1, unit))).astype(
        f"m8[{unit}]"
    )


def frame_of(named: Mapping[str, object]) -> Any:
    """A table of pandas with these columns."""
    try:
        import pandas
    except ImportError:
        cure = "Install it: pip install pandas. Or read the values themselves, which need none."
        fail("pandas", "installed for to_frame", "no such package", cure, ImportError)
    return pandas.DataFrame(named)


def as_array(column: object) -> np.ndarray:
    """Values of a column; those under the mask of a masked array are missing."""
    mask = np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else None
    values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if isinstance(column, (list, tuple)) and values.dtype.kind == "U" and not all(isinstance(x, str) for x in column):
        values = np.array(column, object)  # of ["a", nan] NumPy makes the text "nan"
    if mask is None or not mask.any():
        return values
    if values.dtype.kind in "fmM":
        none: Any = np.array("nan" if values.dtype.kind == "f" else "NaT", values.dtype)
    else:
        values, none = values.astype(float if values.dtype.kind in "iu" else object), None
    return np.where(mask, none, values).astype(values.dtype)


def is_category(data: Any, expression: str) -> bool:
    """Whether a table says of a column that it has levels, as pandas does, whatever these are."""
    keys = keys_of(data)
    return expression in keys and hasattr(getattr(data[keys[expression]], "dtype", None), "categories")


def order_of(data: Any, expression: str) -> tuple[Any, ...]:
    """Levels of a column in the order that a table declares, as ordered categories of pandas do; else none."""
    keys = keys_of(data)
    dtype = getattr(data[keys[expression]], "dtype", None) if expression in keys else None
    return tuple(map(plain, dtype.categories)) if dtype is not None and getattr(dtype, "ordered", False) else ()


def is_missing(values: np.ndarray) -> np.ndarray:
    """Where values are NaN, None, NaT or ``pandas.NA``."""
    if values.dtype.kind in "fmM":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    missing = np.zeros(len(values), bool)
    for at, value in enumerate(values):
        # NaN, NaT and NA are those that do not equal themselves, or whose comparison is no truth value.
        try:
            missing[at] = value is None or bool(value != value)
        except TypeError:
            missing[at] = True
    return missing


def is_numeric(values: np.ndarray) -> bool:
    """Whether values are measurements rather than names: numbers and dates."""
    return values.dtype.kind in "fiumM" or (values.dtype.kind == "O" and as_dates(values) is not None)


def are_dates(values: np.ndarray) -> bool:
    """Whether values are dates, of NumPy or of Python."""
    if values.dtype.kind != "O":
        return values.dtype.kind == "M"
    known = values[~is_missing(values)]
    return len(known) > 0 and isinstance(known[0], datetime.date)


def as_dates(values: np.ndarray) -> np.ndarray | None:
    """Objects of Python that are dates, or numbers, as arrays of them."""
    missing = is_missing(values)
    known = values[~missing].tolist()
    if known and all(isinstance(value, numbers.Number) and not isinstance(value, (bool, complex)) for value in known):
        return np.array([np.nan if lost else float(value) for value, lost in zip(values, missing, strict=True)])
    if known and all(isinstance(value, datetime.date) for value in known):
        days = [np.datetime64("NaT") if lost else _naive(value) for value, lost in zip(values, missing, strict=True)]
        return np.array(days, "datetime64[us]")
    return None


def as_numbers(name: str, values: np.ndarray) -> np.ndarray:
    """Numbers ``(N,)``: booleans as 0 and 1, dates as days since 1970."""
    if values.dtype.kind == "O" and (dates := as_dates(values)) is not None:
        values = dates
    if values.dtype.kind == "M":
        days = (values - np.datetime64(0, "D")) / np.timedelta64(1, "D")
        return np.asarray(days, float)
    if values.dtype.kind not in "fiub":
        present = values[~is_missing(values)]
        odd = np.array([not stands_for_number(value) for value in present], bool)
        if odd.any() and not odd.all():
            cure = f'Make it missing: data["{name}"] = pandas.to_numeric(data["{name}"], errors="coerce").'
            fail(f"column {name!r}", "numbers", f"{present[odd][:1].tolist()[0]!r} among numbers", cure)
        got, value = (f"{present[:1].tolist()[0]!r} and others", present[0]) if len(present) else ("none", None)
        written = f'data["{name}"]'
        cure = f"Take factor({name}) or re({name}) for a category, s(x, by={name}) for a curve of x at each level."
        if isinstance(value, datetime.time):
            cure = "Make hours of the times of day: t.hour + t.minute / 60."
        elif isinstance(value, (datetime.timedelta, np.timedelta64)):
            cure = f'Make days of the durations: {written} = {written} / np.timedelta64(1, "D").'
        elif hasattr(value, "to_timestamp"):  # a period of pandas
            cure = f"Make dates of the periods: {written} = pandas.PeriodIndex({written}).to_timestamp()."
        elif isinstance(value, str) and stands_for_number(value):
            cure = f"Make numbers of the text: {written} = np.array({written}, float)."
        elif isinstance(value, str) and re.match(r"\s*\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4}|$)", value):
            cure = f"Make dates of the text: {written} = pandas.to_datetime({written})."
        fail(f"column {name!r}", "numbers", got, cure)
    return values.astype(float)


def stands_for_number(value: object) -> bool:
    """Whether a value is a number, or text that stands for one."""
    if isinstance(value, str):
        return NUMBER.fullmatch(value) is not None
    return isinstance(value, numbers.Number) and not isinstance(value, (bool, complex))


def number_column(name: str, values: np.ndarray, weights: np.ndarray) -> Column:
    """How a column of numbers is encoded, from the rows of the fit."""
    x = as_numbers(name, values)
    if not np.isfinite(x).all():
        cure = "Leave these rows out, or transform another column."
        fail(f"column {name!r}", "finite", f"{x[~np.isfinite(x)][0]}", cure)
    if x.min() == x.max():
        fail(f"column {name!r}", "one that varies", f"{x[0]:.6g} in every row", "Leave its term out.")
    mean = float(np.average(x, weights=weights))
    spread = float(np.sqrt(np.average((x - mean) ** 2, weights=weights)))
    if not 0 < spread < np.inf:
        cure = "Give it in other units."
        fail(f"column {name!r}", "of values whose squares are numbers", f"{x.min():.3g} to {x.max():.3g}", cure)
    return Column(name, None, mean, spread, float(x.min()), float(x.max()), are_dates(values))


def category_column(name: str, values: np.ndarray, role: str, order: Sequence[Any] = ()) -> Column:
    """How a category is encoded, its levels sorted or in a declared ``order``; a measurement is refused."""
    known = {plain(value) for value in distinct(values)[0]}

    def by(level: Any) -> tuple[str, Any]:
        """Sort those of one type by their values, dates and times together, and all numbers."""
        kind = str(int if type(level) is float else type(level))
        return ("date", level.isoformat()) if isinstance(level, datetime.date) else (kind, level)

    levels = [level for level in order if level in known] or sorted(known, key=by)
    # Whole numbers are names, also where a table has made floats of them because some are missing.
    is_whole = role != "by" and all(isinstance(level, int) for level in levels)
    is_measured = values.dtype.kind in ("fiuM" if role == "by" else "fM") and not is_whole
    if is_measured and len(levels) > MOST_LEVELS:
        cure = f"Cut it into groups, or take te(x, {name}) for an effect that varies with it."
        cure = cure if role == "by" else f"Cut it into groups, or take s({name}) for a curve of it."
        fail(f"{role} {name!r}", f"a category of at most {MOST_LEVELS} levels", f"{len(levels)} numbers", cure)
    if len(levels) < 2:
        cure = "Look at the column: there is nothing to explain." if role == "response" else "Leave its term out."
        fail(f"{role} {name!r}", "one that varies", f"{levels[0]!r} in every row", cure)
    return Column(name, tuple(levels))


# --------------------------------------------------------------------------------------
# Rows at which terms are shown and inducing inputs stand: the points of grids, in NumPy.


def grid_points(axes: Sequence[np.ndarray]) -> np.ndarray:
    """The points ``(G, P)`` of a grid, the last axis fastest; of no axes one point without numbers."""
    if not axes:
        return np.zeros((1, 0))
    return np.stack([mesh.ravel() for mesh in np.meshgrid(*axes, indexing="ij")], axis=1)


def size_of_axis(size: int, count: int) -> int:
    """Points of each of ``count`` axes where a curve has ``size``: a surface has fewer on each."""
    return size if count == 1 else max(2, round(size / 2.5))
