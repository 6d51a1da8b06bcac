"""The next rows of a series: their times, by the step of the rows of the fit, and what a fit says of them."""

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from numpyro_gp.additive.columns import COLUMN_FUNCTIONS, Column, as_moments, frame_of, keys_of
from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_count, check_level, fail
from numpyro_gp.gam.answers.predictions import EVEN, check_levels
from numpyro_gp.gam.model.model import Model
from numpyro_gp.gam.table.terms import TIME
from numpyro_gp.plots import style
from numpyro_gp.plots.style import Figure
from numpyro_gp.posterior import Prediction

# Days over which a series of working days has seen a weekend, and times that a figure shows for each of a forecast.
FORTNIGHT, SHOWN = 14, 4
# Times that differ by less of their range are one time, rounded.
SAME_TIME = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Forecast:
    """What `Fit.forecast` returns: new data at the next rows of a series.

    Attributes
    ----------
    time, response : str
        Columns of the table, as the formula names them.
    times : array (N,)
        Numbers, or dates where the column has dates.
    prediction : Prediction
        All that `Fit.predict` says of these rows.
    past : pair of array
        Times and responses of the rows of the fit.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> data = {"month": np.arange(30.0), "y": 2 * np.arange(30.0)}
    >>> forecast = ngp.gam("y ~ trend(month)", data).forecast(3)
    >>> forecast.times.tolist(), forecast.mean.round().tolist()
    ([30.0, 31.0, 32.0], [60.0, 62.0, 64.0])
    """

    time: str
    response: str
    times: np.ndarray
    prediction: Prediction
    past: tuple[np.ndarray, np.ndarray]

    @property
    def mean(self) -> np.ndarray:
        """Means of new data ``(N,)``."""
        return np.asarray(self.prediction.mean)

    @property
    def variance(self) -> np.ndarray:
        """Variances of new data ``(N,)``."""
        return np.asarray(self.prediction.variance)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations of new data ``(N,)``."""
        return np.sqrt(self.variance)

    def quantiles(self, levels: float | Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of new data ``(levels, N)``."""
        return np.asarray(self.prediction.quantiles(check_levels(levels)))

    def band(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Ends ``(N,), (N,)`` of the interval that holds each new datum with a probability."""
        tail = 0.5 * (1 - check_level(level))
        low, high = self.quantiles([tail, 1 - tail])
        return low, high

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """Log density ``(N,)`` of what came."""
        return np.asarray(self.prediction.log_density(y))

    def to_frame(self, level: float = 0.9) -> Any:
        """A table of pandas: the times, mean, sd, median, and the ends of the band."""
        low, high = self.band(level)
        numbers = {"mean": self.mean, "sd": self.sd, "median": self.quantiles(0.5)[0], "low": low, "high": high}
        return frame_of({self.time: self.times} | numbers)

    def plot(
        self, *, level: float = 0.9, rows: int | None = None, path: str | os.PathLike[str] | None = None
    ) -> "Figure":
        """Draw the last rows, the median of the next ones, and bands of new data: of a half, and of the level.

        Parameters
        ----------
        level : float
        rows : int, optional
            Times before the forecast; four for each of its own.
        path : optional
            File to write the figure to.
        """
        import matplotlib.pyplot as plt

        tail = 0.5 * (1 - check_level(level))
        shown = check_count("rows", SHOWN * len(self.times) if rows is None else rows)
        low, lower, middle, upper, high = self.quantiles([tail, 0.25, 0.5, 0.75, 1 - tail])
        times, y = self.past
        is_late = times >= np.unique(times)[-shown:][0]
        figure = plt.figure(figsize=(7.0, 3.4), layout="constrained")
        ax, color = figure.subplots(), style.COLOURS[0]
        ahead, before = (style.vector("times", one) for one in (self.times, times[is_late]))
        style.band(ax, ahead, (low, high), color, 0.2, label=f"{100 * level:g} % of new data")
        style.band(ax, ahead, (lower, upper), color, 0.35, label="50 %")
        ax.plot(ahead, middle, color=color, lw=1.8, label="median")
        ax.plot(before, y[is_late], ".", color=style.INK, ms=4, label="rows of the fit")
        if style.is_date(self.times):
            style.date_ticks(ax.xaxis)
        figure.legend(frameon=False, fontsize="small", loc="outside upper center", ncols=4)
        style.finish(ax, "", self.time, self.response)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def next_rows(model: Model, steps: int, data: Any) -> tuple[str, dict[str, Any], np.ndarray]:
    """The name of the column of time, a table of the next rows, and the times of the rows of the fit."""
    check_count("steps", steps)
    columns, rows = model.layout.columns, "Ask fit.predict with rows of your own."
    found = {part.columns[0] for part in model.layout.read_terms if part.term.kind in TIME}
    if len(found) != 1:
        names = [columns[at].name for at in sorted(found)]
        cure = rows if names else f"Write trend(t) in the formula, of the column of time. {rows}"
        fail("the formula of a forecast", "one with trend, season or cycle, of one column", f"{names or 'none'}", cure)
    at = found.pop()
    column = columns[at]
    past = column.decode(model.rows.X[:, at])
    if column.is_date:  # days since 1970: dates to the millisecond, and days where all are whole
        moments = as_moments(past, "ms")
        past = moments.astype("M8[D]")
        past = past if np.all(past == moments) else moments
    given = {} if data is None else {name: data[key] for name, key in keys_of(data).items()}
    if column.name in given:
        cure = f"Leave it out, or ask fit.predict for these rows: they follow from those of the fit, by {steps} steps."
        fail("data of a forecast", "the other columns alone", f"the column of time, {column.name!r}", cure)
    table = {column.name: next_times(column, past, steps)}
    table |= {name: np.repeat(np.asarray(x), steps) if np.ndim(x) == 0 else x for name, x in given.items()}
    missing = []
    for number, one in enumerate(columns):
        name = one.name  # of a function of a column the table must have that column
        while name not in table and (call := re.fullmatch(r"(\w+)\((.*)\)", name)) and call[1] in COLUMN_FUNCTIONS:
            name = call[2]
        if name not in table and name not in missing and number != model.layout.censored:
            missing.append(name)
    if missing:
        each = ", ".join(f'"{name}": ...' for name in missing)
        cure = f"Pass what they will be: fit.forecast({steps}, {{{each}}}), a value for each row or one for all."
        fail("other columns of a forecast", f"known for the next rows: {missing}", f"{list(given)}", cure)
    return column.name, table, past


def next_times(column: Column, past: np.ndarray, steps: int) -> np.ndarray:
    """The next times of a column of numbers or dates, by the step of its rows; some times may be missing among these.

    Dates that are at one day of their months, or at their ends, go on by months: quarters and years are some of them.
    Days of the week that have no row in four weeks, or two of them in two, have none.
    """
    times, ahead = np.unique(past), np.arange(1, steps + 1)
    if not column.is_date:
        times = times[np.append(True, np.diff(times) > SAME_TIME * np.ptp(times))]  # 0.3 and 3 * 0.1 are one time
        many, _ = _step(column, np.diff(times), times)
        exact = times[-1] + (times[-1] - times[0]) / many * ahead
        digits = max(12, 5 + int(np.log10(max(np.abs(exact).max() * many / np.ptp(times), 1))))  # some behind a step
        return np.array([float(f"{time:.{digits}g}") for time in exact])  # 30 for 30.000000000000004
    days = times.astype("M8[D]")
    months, clock = days.astype("M8[M]"), times - days
    place = (days - months.astype("M8[D]")).astype(int)
    is_end = bool(np.all((days + 1).astype("M8[M]") > months))
    if np.all(clock == clock[0]) and (is_end or np.all(place == place[0])) and np.all(months[1:] > months[:-1]):
        _, step = _step(column, np.diff(months).astype(int), times)
        first = months[-1] + (int(step) * ahead).astype("m8[M]")
        starts, ends = (one.astype("M8[D]") for one in (first, first + 1))
        return ends - 1 + clock[0] if is_end else np.minimum(starts + place[0], ends - 1) + clock[0]
    gaps = np.diff(times)
    one_day, span = gaps.min() == np.timedelta64(1, "D"), int((days[-1] - days[0]).astype(int))
    is_open = np.bincount((days.astype(int) + 3) % 7, minlength=7) > 0  # the first of 1970 was a Thursday
    if one_day and span >= FORTNIGHT and span * np.sum(~is_open) >= 2 * FORTNIGHT and np.all(clock == clock[0]):
        return np.busday_offset(days[-1], ahead, roll="forward", weekmask=is_open) + clock[0]
    _step(column, gaps / gaps.min(), times)
    return times[-1] + gaps.min() * ahead


def _step(column: Column, gaps: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """How many steps there are from the first time to the last, and one of them; gaps are whole numbers of it."""
    step = float(gaps.min())
    counts = np.round(gaps / step)
    if np.abs(gaps / step - counts).max() > EVEN:
        moves = np.diff(times)
        cure = f'Ask fit.predict with rows of your own: {{"{column.name}": [...]}}.'
        fail(f"steps of {column.name!r}", "equal in a forecast", f"steps of {moves.min()} to {moves.max()}", cure)
    return float(counts.sum()), step
