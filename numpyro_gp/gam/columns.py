"""Columns of data as they come, as numbers: from dictionaries, structured arrays, pandas and polars tables.

Neither pandas nor polars is imported: what both have, columns by name with ``to_numpy``, is enough.
"""

import dataclasses
import re
from typing import Any

import numpy as np

from numpyro_gp.checks import fail

FUNCTIONS = {"log": np.log, "log1p": np.log1p, "exp": np.exp, "sqrt": np.sqrt}
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
        known = {level: code for code, level in enumerate(self.levels)}
        some, place = distinct(values)
        codes: np.ndarray = np.array([known.get(plain(value), len(known)) for value in some], float)[place]
        return codes

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
    """A level as it is compared: whole numbers and truth values by their text would differ from table to table."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def names_of(data: Any) -> list[str]:
    """Names of the columns of a table."""
    if getattr(getattr(data, "dtype", None), "names", None):
        return list(data.dtype.names)
    if hasattr(data, "keys") and hasattr(data, "__getitem__"):
        return [str(name) for name in data.keys()]  # noqa: SIM118  (of a pandas table, its columns)
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return [str(name) for name in data.columns]
    cure = 'Pass {"age": ages, "dose": doses}, or a table of pandas or polars.'
    fail("data", "a dictionary of columns or a table", f"a {type(data).__name__}", cure, TypeError)


def count_rows(data: Any) -> int:
    """Rows of a table, by its first column."""
    names = names_of(data)
    return len(column_values(data, names[0])) if names else 0


def column_values(data: Any, expression: str) -> np.ndarray:
    """A column by its name, or a function of one: ``log(age)``."""
    names = names_of(data)
    if expression in names:
        column = data[expression]
        values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
        if values.ndim != 1:
            cure = "Pass one value for each row."
            fail(f"column {expression!r}", "of shape (N,)", f"shape {values.shape}", cure)
        return values
    call = re.fullmatch(r"(\w+)\((.*)\)", expression)
    if call and call[1] in FUNCTIONS:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: np.ndarray = FUNCTIONS[call[1]](as_numbers(call[2], column_values(data, call[2])))
        return found
    if call:
        fail("a column", f"a name or one of {sorted(FUNCTIONS)} of one", repr(expression), "Add it to the data.")
    fail("a column", f"one of {names}", repr(expression), "Check the spelling.")


def is_missing(values: np.ndarray) -> np.ndarray:
    """Where values are NaN, None, NaT or ``pandas.NA``."""
    if values.dtype.kind in "fmM":
        found: np.ndarray = np.isnan(values)
        return found
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    # NaN, NaT and NA are those that do not equal themselves, or whose comparison is no truth value.
    return np.array([value is None or _differs(value) for value in values], bool)


def _differs(value: Any) -> bool:
    try:
        return bool(value != value)
    except TypeError:
        return True


def is_numeric(values: np.ndarray) -> bool:
    """Whether values are measurements rather than names: numbers and dates."""
    return values.dtype.kind in "fiumM" or (values.dtype.kind == "O" and as_dates(values) is not None)


def as_dates(values: np.ndarray) -> np.ndarray | None:
    """Objects of Python that are dates, or numbers, as arrays of them."""
    missing = is_missing(values)
    known = values[~missing].tolist()
    if known and all(isinstance(value, (int, float, np.number)) and not isinstance(value, bool) for value in known):
        return np.array([np.nan if lost else float(value) for value, lost in zip(values, missing, strict=True)])
    if known and all(hasattr(value, "isoformat") for value in known):
        days = [np.datetime64("NaT") if lost else value for value, lost in zip(values, missing, strict=True)]
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
        cure = f"Take factor({name}) or re({name}) for a category."
        fail(f"column {name!r}", "numbers", f"{values[:1].tolist()[0]!r} and others" if len(values) else "none", cure)
    return values.astype(float)


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
    is_date = values.dtype.kind == "M" or (values.dtype.kind == "O" and hasattr(values[0], "isoformat"))
    return Column(name, None, mean, spread, float(x.min()), float(x.max()), is_date)


def category_column(name: str, values: np.ndarray, role: str) -> Column:
    """How a category is encoded; a measurement is refused."""
    levels = sorted({plain(value) for value in distinct(values)[0]}, key=lambda level: (str(type(level)), level))
    if values.dtype.kind in ("fiuM" if role == "by" else "fM") and len(levels) > MOST_LEVELS:
        cure = f"Cut it into groups, or take te(x, {name}) for an effect that varies with it."
        fail(f"{role} {name!r}", f"a category of at most {MOST_LEVELS} levels", f"{len(levels)} numbers", cure)
    if len(levels) < 2:
        fail(f"{role} {name!r}", "one that varies", f"{levels[0]!r} in every row", "Leave its term out.")
    return Column(name, tuple(levels))
