"""Rows to predict outside of those of the fit: there most curves return to their mean, which is no forecast."""

import warnings

import numpy as np

from numpyro_gp.additive.columns import Column
from numpyro_gp.gam.model.model import Model
from numpyro_gp.gam.model.term_kernels import SMOOTH
from numpyro_gp.gam.table.layout import ReadTerm

# How far beyond the ends of a column a row may lie, in ranges of it: of a random split some rows always do.
NEAR = 0.05
# How far gaps of a series may be from whole multiples of the least one.
EVEN = 1e-3


def _returning(model: Model, part: ReadTerm) -> list[int]:
    """Columns outside of which a term returns to its mean: not of a circle, a line, a trend or levels.

    Nor of a column of which a line or a trend stands beside it, as the warning advises: to that it returns.
    """
    if part.term.kind not in SMOOTH or part.term.cyclic:
        return []
    goes_on = {other.columns[0] for other in model.layout.read_terms if other.term.kind in ("linear", "trend")}
    return [at for at in part.columns if not model.layout.columns[at].is_category and at not in goes_on]


def warn_outside(model: Model, X: np.ndarray, stacklevel: int) -> None:
    """One warning of encoded rows ``(N, D)`` outside of those of the fit: each term and each column once.

    ``warnings.filterwarnings("ignore", "Terms return to their mean")`` silences it: the first words are always these.
    """
    readers: dict[int, list[ReadTerm]] = {}
    for part in model.layout.read_terms:
        for at in _returning(model, part):
            readers.setdefault(at, []).append(part)
    said, columns, times = [], [], []
    parts: dict[str, ReadTerm] = {}
    for at, own in readers.items():
        low, high, column = model.rows.X[:, at].min(), model.rows.X[:, at].max(), model.layout.columns[at]
        beyond = np.maximum(X[:, at] - high, low - X[:, at])
        if rows := int((beyond > NEAR * (high - low)).sum()):
            furthest = float(column.decode(X[int(np.argmax(beyond)), at]))
            ends = f"beyond {_written(column, column.low)} to {_written(column, column.high)}"
            said.append(f"{rows} of {len(X)} rows have {column.name} up to {_written(column, furthest)}, {ends}")
            columns.append(column.name)
            times.append(column.is_date or _is_series(model.rows.X[:, at]))
            parts |= {part.name: part for part in own}
    if said:
        text = "Terms return to their mean outside of the rows of the fit, which is no forecast: "
        text += f"{', '.join(parts)}. {'; '.join(said)}."
        is_curve = any(len(part.columns) == 1 for part in parts.values())
        line = f"linear({columns[0]}) beside the {'curve' if is_curve else 'surface'}"
        if is_curve and times[0]:
            text += f" Write trend({columns[0]}) for a series over time, or {line}."
        else:
            text += f" Take what is predicted there for a guess, as its variance says, or write {line}, which goes on."
        warnings.warn(text, UserWarning, stacklevel=stacklevel)


def _is_series(x: np.ndarray) -> bool:
    """Whether values stand in order, none of them twice, at whole multiples of a step, as those of a series do."""
    gaps = np.diff(x)
    if not len(gaps) or gaps.min() <= 0:
        return False
    steps = gaps / gaps.min()
    return bool(np.abs(steps - np.round(steps)).max() < EVEN)


def _written(column: Column, value: float) -> str:
    """A number, or a date, as people write it."""
    if not column.is_date:
        return f"{value:.6g}"
    return str(np.datetime64(0, "D") + np.timedelta64(round(value), "D"))
