"""Rows to predict outside of those of the fit: there most curves return to their mean, which is no forecast."""

import warnings
from typing import NamedTuple

import numpy as np

from numpyro_gp.additive.columns import Column
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.table_layout import ReadTerm
from numpyro_gp.gam.term_kernels import SMOOTH

# How far beyond the ends of a column a row may lie, in ranges of it: of a random split some rows always do.
NEAR = 0.05


class Outside(NamedTuple):
    """A column of some terms that has rows outside: how many, and the value furthest out, in the units of the data."""

    terms: tuple[str, ...]
    column: Column
    rows: int
    furthest: float


def outside(model: Model, X: np.ndarray) -> list[Outside]:
    """Columns of curves and surfaces in which encoded rows ``(N, D)`` lie outside of those of the fit."""
    readers: dict[int, list[str]] = {}
    for part in model.layout.read_terms:
        for at in _returning(model, part):
            readers.setdefault(at, []).append(part.name)
    found = []
    for at, names in readers.items():
        low, high = float(model.rows.X[:, at].min()), float(model.rows.X[:, at].max())
        beyond = np.maximum(X[:, at] - high, low - X[:, at])
        is_far = beyond > NEAR * (high - low)
        if is_far.any():
            column = model.layout.columns[at]
            furthest = float(column.decode(X[int(np.argmax(beyond)), at]))
            found.append(Outside(tuple(names), column, int(is_far.sum()), furthest))
    return found


def _returning(model: Model, part: ReadTerm) -> list[int]:
    """Columns outside of which a term returns to its mean: not of a circle, a line, a trend or levels.

    Nor of a column of which a line or a trend stands beside it, as the warning advises: to that it returns.
    """
    if part.term.kind not in SMOOTH or part.term.cyclic:
        return []
    goes_on = {other.columns[0] for other in model.layout.read_terms if other.term.kind in ("linear", "trend")}
    return [at for at in part.columns if not model.layout.columns[at].is_category and at not in goes_on]


def warn_outside(model: Model, X: np.ndarray, stacklevel: int) -> None:
    """One warning for all rows and all terms, if there is something to say: each term and each column once.

    ``warnings.filterwarnings("ignore", "Terms return to their mean")`` silences it: the first words are always these.
    """
    found, said = outside(model, X), []
    for _, column, rows, furthest in found:
        low, high, at = (_written(column, one) for one in (column.low, column.high, furthest))
        said.append(f"{rows} of {len(X)} rows have {column.name} up to {at}, beyond {low} to {high}")
    if found:
        terms, name = dict.fromkeys(term for one in found for term in one.terms), found[0].column.name
        text = "Terms return to their mean outside of the rows of the fit, which is no forecast: "
        text += f"{', '.join(terms)}. {'; '.join(said)}."
        is_curve = any(len(part.columns) == 1 for part in model.layout.read_terms if part.name in terms)
        of_series = f"trend({name}) for a series over time, or " if is_curve else ""
        text += f" Write {of_series}linear({name}) beside the {'curve' if is_curve else 'surface'}."
        warnings.warn(text, UserWarning, stacklevel=stacklevel)


def _written(column: Column, value: float) -> str:
    """A number, or a date, as people write it."""
    if not column.is_date:
        return f"{value:.6g}"
    return str(np.datetime64(0, "D") + np.timedelta64(round(value), "D"))
