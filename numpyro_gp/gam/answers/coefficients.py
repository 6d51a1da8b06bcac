"""Coefficients of a fit as a table: slopes and levels with intervals, standard deviations of groups, lengthscales.

Each is a parameter of the model, or one linear function of the terms at one row, so that its moments are those of the
joint posterior: no difference of a curve on a grid.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from numpyro_gp.additive.columns import frame_of
from numpyro_gp.checks import fail
from numpyro_gp.gam.answers.draws import Draws
from numpyro_gp.gam.answers.effects import components_at, side_by_side
from numpyro_gp.gam.answers.predictions import mixture_quantiles, over_draws
from numpyro_gp.gam.answers.summary import aligned
from numpyro_gp.gam.model.term_kernels import SMOOTH, count_lengthscales, mean_over

# What the exponential of a coefficient is, by the link.
RATIOS = {"logit": "odds ratio", "log": "rate ratio"}
INTERCEPT = "intercept"
# Parameters of terms of time that are in the units of their column, by their number.
OF_TIME: dict[str, dict[int, str]] = {"season": {1: "memory"}, "cycle": {0: "memory", 1: "period"}}


class Coefficient(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    term : str
        As it is written, "linear(dose)"; "intercept"; "sd of re(site)"; "lengthscale of s(age)".
    level : object
        Of a category, or two of a factor, "drug - none"; the column of one of the lengthscales of a surface; else "".
    estimate, sd, low, high : float
        Posterior mean and standard deviation, and the ends of the interval, on the scale of the link.
    ratio, ratio_low, ratio_high : float
        Their exponentials, where the link is a logit or a log; NaN of intercepts and of what is no effect.
    """

    term: str
    level: object
    estimate: float
    sd: float
    low: float
    high: float
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan


@dataclasses.dataclass(frozen=True)
class Coefficients:
    """What `Fit.coefficients` returns: rows by name, as text, and as a table of pandas.

    Attributes
    ----------
    rows : tuple of Coefficient
    interval : float
        What the intervals hold.
    ratio : str
        What the ratios are, "odds ratio" or "rate ratio"; empty where the link has none.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> from numpyro_gp.gam.answers.coefficients import Coefficient
    >>> rows = Coefficient("linear(dose)", "", 0.5, 0.1, 0.34, 0.66), Coefficient("re(site)", "west", 1, 0.2, 0.7, 1.3)
    >>> table = ngp.gam.Coefficients(rows, 0.9)
    >>> table["linear(dose)"].estimate, table["re(site)", "west"].high
    (0.5, 1.3)
    >>> print(table)
    term          level  estimate  sd   5 %   95 %
    linear(dose)         0.5       0.1  0.34  0.66
    re(site)      west   1         0.2  0.7   1.3
    """

    rows: tuple[Coefficient, ...]
    interval: float
    ratio: str = ""

    def __iter__(self) -> Iterator[Coefficient]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: object) -> Coefficient:
        """The row of a term, ``table["linear(dose)"]``, or of one of its levels, ``table["re(site)", "west"]``."""
        term, *level = name if isinstance(name, tuple) else (name,)
        of_class, colon, own = str(term).rpartition(": ")
        # A formula has the name of a column alone.
        words = term, f"{of_class}{colon}linear({own})", f"{of_class}{colon}factor({own})"
        of_term = [row for row in self.rows if row.term in words]
        found = [row for row in of_term if not level or row.level == level[0]]
        if len(found) != 1:
            known = [row.level for row in of_term] or list(dict.fromkeys(row.term for row in self.rows))
            cure = f"Write table[{term!r}, {known[0]!r}]." if of_term else "Name a term as the table does."
            fail(
                f"the {'level' if of_term else 'term'} of a coefficient", f"one of {known}", f"{name!r}", cure, KeyError
            )
        return found[0]

    def __str__(self) -> str:
        ends = [f"{100 * (0.5 + side * self.interval / 2):.3g} %" for side in (-1, 1)]
        lines = [["term", "level", "estimate", "sd", *ends, self.ratio]]
        for row in self.rows:
            ratio = f"{row.ratio:.4g} ({row.ratio_low:.4g} to {row.ratio_high:.4g})" * (row.ratio == row.ratio)
            numbers = (f"{value:.4g}" for value in (row.estimate, row.sd, row.low, row.high))
            lines.append([row.term, str(row.level), *numbers, ratio])
        return "\n".join(aligned(lines))

    __repr__ = __str__

    def to_frame(self) -> Any:
        """A table of pandas: term, level, estimate, sd, low, high and, where the link has them, the ratios."""
        names = Coefficient._fields if self.ratio else Coefficient._fields[:6]
        return frame_of({name: [getattr(row, name) for row in self.rows] for name in names})


def coefficients_of(draws: Draws, interval: float, has_levels: bool = True) -> Coefficients:
    """The table of a fit, from draws of its posterior; by itself with the levels of categories, which may be many."""
    model, result = draws.model, list[Coefficient]()
    parts, ends = model.layout.read_terms, np.array([0.5 - interval / 2, 0.5 + interval / 2])
    has_ratio = model.family.link in RATIOS
    # Rows at which a term has its coefficients as values, their levels, and how many units a row stands for: of a line
    # the row one standard deviation from where it is zero, of levels one each, where they are wanted.
    points: dict[str, tuple[np.ndarray, tuple[int, ...]]] = {}
    of_rows: dict[str, tuple[tuple[object, ...], float]] = {}
    for part in parts:
        columns, units = [model.layout.columns[at] for at in part.columns], 1.0
        levels: tuple[object, ...] = ()
        if part.term.kind == "linear":
            levels, units = ("",), columns[0].scale
            x = [[1 + mean_over(model.kernel_data.measures[part.columns[0]])]]
        elif part.term.kind in ("factor", "re"):
            levels = columns[0].levels or () if has_levels else ()
            units = columns[1].scale if part.term.by else 1.0
            x = [[code, 1.0][: len(columns)] for code in range(len(levels))]
        if levels:
            rows = np.zeros((len(levels), model.rows.X.shape[1]))
            rows[:, part.columns] = x
            points[part.name] = rows, part.columns
        of_rows[part.name] = levels, units
    X, places = side_by_side(points) if points else (model.rows.X[:1], {})
    means, variances = np.zeros((2, draws.size, len(parts) + 1, len(X)))
    for cut in draws.cuts(len(X)):
        for draw, found in enumerate(components_at(draws, X[cut])):
            means[draw, :, cut], variances[draw, :, cut] = found

    @np.errstate(over="ignore")  # ratios of a column in huge units
    def add_effect(name: str, levels: tuple[object, ...], mean: np.ndarray, variance: np.ndarray) -> None:
        """From moments ``(S, levels)``."""
        low, high = mixture_quantiles(mean, np.sqrt(variance), ends)
        estimate, spread = over_draws(mean, variance)
        numbers = np.stack([estimate, np.sqrt(spread), low, high])
        if has_ratio and name != INTERCEPT:
            numbers = np.concatenate([numbers, np.exp(numbers[[0, 2, 3]])])
        result.extend(Coefficient(name, level, *own) for level, own in zip(levels, numbers.T.tolist(), strict=True))

    def add_number(name: str, level: str, values: np.ndarray) -> None:
        """Of a hyper-parameter, from its draws ``(S,)``."""
        low, high = np.quantile(values, ends).tolist()
        result.append(Coefficient(name, level, float(values.mean()), float(values.std()), low, high))

    add_effect(INTERCEPT, ("",), means[:, -1, :1] + model.start.constant, variances[:, -1, :1])
    each = np.split(draws.lengths, np.cumsum([count_lengthscales(part) for part in parts], dtype=int), axis=1)
    for at, (part, lengths) in enumerate(zip(parts, each, strict=False)):  # nothing is behind the last
        columns, (levels, units) = [model.layout.columns[one] for one in part.columns], of_rows[part.name]
        if levels:
            seen = places[part.name]
            add_effect(part.name, levels, means[:, at, seen] / units, variances[:, at, seen] / units**2)
            if part.term.kind == "factor":  # each level less the first
                mean, variance = np.stack(list(components_at(draws, X[seen], less_first=True)), axis=1)[:, :, at, 1:]
                names = tuple(f"{level} - {levels[0]}" for level in levels[1:])
                add_effect(part.name, names, mean / units, variance / units**2)
        if part.term.kind == "re":
            add_number(f"sd of {part.name}", "", draws.scales[:, at] / units)
        elif part.term.kind in SMOOTH:
            circle = model.kernel_data.periods.get(part.name)  # of radius one: a radian of it is a unit
            units = 1.0 if circle is None else (circle[1] - circle[0]) / (2 * math.pi)
            for own, column in zip(lengths.T, columns, strict=False):
                name = column.name if len(lengths.T) > 1 else ""
                add_number(f"lengthscale of {part.name}", name, own * units * column.scale)
        else:
            for number, word in OF_TIME.get(part.term.kind, {}).items():
                add_number(f"{word} of {part.name}", "", lengths[:, number] * columns[0].scale)
    return Coefficients(tuple(result), interval, RATIOS.get(model.family.link, ""))
