"""Kernels of one column with the slope in their lengthscale, in NumPy: the same formulas as `kernels.ZeroMean`.

A fit evaluates some thirty rows by a thousand a few dozen times: less work than compiling a program of it. With
``kappa`` the correlation, ``d = kappa - 1``, ``a(x)`` its average over a measure and ``b`` the average of that,
``k(x, y) = d(x - y) - (a(x) + a(y) + a(x) a(y) - b) / (1 + b)`` (mathematics.md section 2.4).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from numpyro_gp import kernels
from numpyro_gp.additive.columns import Column
from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.gam.model.families import Prior, Start
from numpyro_gp.gam.model.family import Family
from numpyro_gp.gam.table.layout import TableRows
from numpyro_gp.gam.table.terms import Term
from numpyro_gp.kernels import RBF, Empirical, Gaussian, Kernel, Matern32, Matern52, Uniform, ZeroMean, profiles
from numpyro_gp.kernels.measures import Measure, legendre
from numpyro_gp.kernels.profiles import (
    RATES,
    double_mean,
    integral,
    integrated_walk,
    less_average,
    of_average,
    over_normal,
)
from numpyro_gp.kernels.zero_mean import CLOSED_FORM_BELOW, NODES
from numpyro_gp.starting import priors as series


@dataclass(frozen=True)
class Sloped:
    """Values ``(...)`` and their slopes ``(P, ...)`` in the lengthscales of a term."""

    value: np.ndarray
    slopes: np.ndarray

    def __add__(self, other: "Sloped") -> "Sloped":
        return Sloped(self.value + other.value, self.slopes + other.slopes)

    def __mul__(self, other: "Sloped") -> "Sloped":
        return Sloped(self.value * other.value, self.slopes * other.value + self.value * other.slopes)

    def at(self, place: int, count: int) -> "Sloped":
        """With its one slope, if it has one, as that in lengthscale ``place`` of ``count``."""
        if not len(self.slopes):
            return self
        slopes = np.zeros((count, *self.value.shape))
        slopes[place] = self.slopes[0]
        return Sloped(self.value, slopes)


def without_slopes(value: np.ndarray, count: int) -> Sloped:
    """What no lengthscale moves."""
    return Sloped(value, np.zeros((count, *value.shape)))


# A kernel as a function of the lengthscales ``(P,)`` of its term: at inducing inputs ``(M,)`` and rows ``(U,)`` one
# matrix ``(M + 1, M + U)``, of inducing inputs and all places, whose last row has the variances at all places. Those of
# sums and products of kernels are sums and products.
MatrixFunction = Callable[[np.ndarray], Sloped]


def split_kernel(kernel: Sloped) -> tuple[Sloped, Sloped, Sloped]:
    """``k(Z, Z) (M, M)``, ``k(Z, X) (M, U)`` and the variances at the rows ``(U,)``."""
    M = len(kernel.value) - 1
    gram, cross, diagonal = (
        Sloped(kernel.value[at], kernel.slopes[:, *at]) for at in (np.s_[:M, :M], np.s_[:M, M:], np.s_[M, M:])
    )
    return gram, cross, diagonal


def deviations(kind: type, gaps: np.ndarray, lengthscale: float | np.ndarray, is_sloped: bool = True) -> Sloped:
    """``kappa - 1`` at gaps of zero or more, with its slope in the lengthscale, or without any in half of the time."""
    z = gaps * (RATES[kind] / lengthscale)
    if kind is RBF:
        z *= z
    d, last = profiles.deviation_of(kind, z, np)
    if not is_sloped:
        return without_slopes(d, 0)
    z *= last
    return Sloped(d, ((z + last) / (3 * lengthscale) if kind is Matern52 else z / lengthscale)[None])


# ``a`` at points ``(N,)``, and ``b``.
MeasureAverages = tuple[Sloped, Sloped]


def averages_over(kind: type, measure: Measure, lengthscale: float, x: np.ndarray) -> MeasureAverages:
    """Of an interval or a normal distribution."""
    if isinstance(measure, Gaussian):
        mean, sd = float(measure.mean), float(measure.sd)
        ratio, total, squares = (sd / lengthscale) ** 2, lengthscale**2 + sd**2, (x - mean) ** 2
        a, b = over_normal(x, lengthscale, mean, sd, np)
        a_slope = (a + 1) * (ratio / (1 + ratio) / lengthscale + squares * lengthscale / total**2)
        b_slope = (b + 1) * 2 * ratio / (1 + 2 * ratio) / lengthscale
        return Sloped(a, a_slope[None]), Sloped(b, np.array([b_slope]))
    assert isinstance(measure, Uniform)
    low, length = float(measure.low), float(measure.high) - float(measure.low)
    x, l = (x - low) / length, lengthscale / length  # of [0, 1]
    if l >= CLOSED_FORM_BELOW:  # by quadrature of the deviation on both sides of x
        nodes, weights = legendre(NODES)
        sides = [(ends, deviations(kind, np.abs(ends)[:, None] * nodes, l)) for ends in (x, 1 - x)]
        left, right = (Sloped(ends * (d.value @ weights), ends * (d.slopes @ weights)) for ends, d in sides)
        d, double = deviations(kind, nodes, l), 2 * weights * (1 - nodes)
        a, b = left + right, Sloped(d.value @ double, d.slopes @ double)
    else:  # in closed form: int_0^x kappa(u / l) du is odd in x

        def part(ends: np.ndarray) -> Sloped:
            u = np.abs(ends) / l
            value = np.sign(ends) * integral(kind, u, np)
            return Sloped(l * value, (value - np.sign(ends) * u * (1 + deviations(kind, u, 1.0, False).value))[None])

        both, whole = part(x) + part(1 - x), part(np.ones(())).value
        mean = double_mean(kind, np.asarray(l), np)
        a, b = Sloped(both.value - 1, both.slopes), Sloped(mean - 1, np.array([2 * (mean - whole) / l]))
    return Sloped(a.value, a.slopes / length), Sloped(b.value, b.slopes / length)


def distances(x: Any, columns: np.ndarray, period: float | None) -> np.ndarray:
    """Between values of a column, along a chord where they lie on a circle."""
    straight: np.ndarray = np.abs(x - columns)
    return straight if period is None else np.abs(2 * np.sin(math.pi * straight / period))


class Curve:
    """The kernel of a curve at inducing inputs ``(M,)`` and rows ``(U,)``, for any lengthscale.

    ``given`` is a measure, or a measure and a period.

    Attributes
    ----------
    kind : type
        Of the correlation; `RBF` of chords for a period.
    measure : Empirical, Uniform or Gaussian
        Over what curves average to zero.
    period : float, optional
    columns : array (Q + M + U,)
        Points of an empirical measure that have a weight (of others none), inducing inputs and rows.
    weights : array (Q,)
    gaps : array (Q + M, Q + M + U)
    is_sloped : bool
        Whether matrices have slopes.
    """

    def __init__(self, kind: type, given: Any, Z: np.ndarray, X: np.ndarray, is_sloped: bool = True) -> None:
        self.measure, self.period = given if isinstance(given, tuple) else (given, None)
        self.kind, points, weights = kind if self.period is None else RBF, np.zeros(0), np.zeros(0)
        if isinstance(self.measure, Empirical):
            points, weights = np.asarray(self.measure.points, float), np.asarray(self.measure.weights, float)
            points, weights = points[weights > 0], weights[weights > 0]
        else:
            ZeroMean(kind(1.0, 1.0), self.measure)  # refuses what has no closed form
        self.columns, self.weights, self.is_sloped = np.concatenate([points, Z, X]), weights, is_sloped
        self.gaps = distances(self.columns[: len(points) + len(Z), None], self.columns, self.period)

    def average(self, lengthscale: float, d: Sloped) -> MeasureAverages:
        """Of inducing inputs and rows, from what `deviations` says of all gaps."""
        count = len(self.weights)
        if not count:
            a, b = averages_over(self.kind, self.measure, lengthscale, self.columns)
            return Sloped(a.value, a.slopes[: len(d.slopes)]), Sloped(b.value, b.slopes[: len(d.slopes)])
        value, slopes = self.weights @ d.value[:count], self.weights @ d.slopes[:, :count]
        b = Sloped(self.weights @ value[:count], slopes[:, :count] @ self.weights)
        return Sloped(value[count:], slopes[:, count:]), b

    def __call__(self, lengthscale: float) -> Sloped:
        d, count = deviations(self.kind, self.gaps, lengthscale, self.is_sloped), len(self.weights)
        (a, b), size = self.average(lengthscale, d), len(d.value) - count

        def taken_off(x: Sloped, y: Sloped) -> Sloped:
            value = of_average(x.value, y.value, b.value)
            of_b = b.slopes.reshape(-1, *(1,) * value.ndim) * (1 + value)
            return Sloped(value, (x.slopes * (1 + y.value) + y.slopes * (1 + x.value) - of_b) / (1 + b.value))

        off = taken_off(Sloped(a.value[:size, None], a.slopes[:, :size, None]), Sloped(a.value, a.slopes[:, None]))
        alone = taken_off(a, a)
        value = np.vstack([d.value[count:, count:] - off.value, -alone.value])
        return Sloped(value, np.concatenate([d.slopes[:, count:, count:] - off.slopes, -alone.slopes[:, None]], axis=1))


# --------------------------------------------------------------------------------------
# Terms of a series, `trend`, `season` and `cycle`: kernels of one column of time with two parameters each.
#
# The kernel of each has unit variance where its scale is one, so that a fit has a scale and two numbers of every
# term, as of a surface: of a trend how much level and slope wander beside its line, of a season its shape and its
# memory, of a cycle its memory and its period. Their priors follow from the rows (`ngp.starting.trend` has the same
# ones).


# Inducing inputs: of a trend, which is rough, one for each different time up to so many; of a cycle; of a season, some
# phases at some times. What is rougher than its inputs the bound takes for noise.
OF_TREND, OF_CYCLE, OF_SEASON, PHASES, LEAST_TIMES = 500, 150, 150, 24, 4
# Different times of which a series has scales, as `starting.trend` wants them.
FEWEST_TIMES = 4
# The spread of the logarithm of a straight line's standard deviation, which is as good as known.
OF_LINE = 0.5


class TimePrior(NamedTuple):
    """Priors of the standard deviation of a term and of its two parameters, for encoded times."""

    scale: Prior
    lengths: tuple[Prior, Prior]


def check_times(column: Column, times: np.ndarray, terms: dict[str, Term]) -> None:
    """Refuse too few times, and dates that are written as one number."""
    if (count := len(np.unique(times))) < FEWEST_TIMES:  # of a straight line through all the future would be known
        cure = f"Give rows of more times, or write linear({column.name}) in place of these terms."
        required = f"of {FEWEST_TIMES} different times or more beside {', '.join(terms)}"
        fail(f"data[{column.name!r}]", required, count, cure)
    for form, days in () if column.is_date else (("%Y%m", 1), ("%Y%m%d", 100)):  # 202312 is followed by 202401
        year, month, day = times // (100 * days), times // days % 100, times % days
        looks = (year >= 1800) & (year < 2200) & (month >= 1) & (month <= 12) & (day <= 31) & (times % 1 == 0)
        if looks.all():
            written = f'pandas.to_datetime(data["{column.name}"].astype(int).astype(str), format="{form}")'
            got, required = f"{times.max():.0f}: year and month as one number", "dates, or numbers that count time"
            fail(f"data[{column.name!r}]", required, got, f'Write data["{column.name}"] = {written}.')


def time_priors(terms: dict[str, Term], column: Column, scales: series.Scales) -> dict[str, TimePrior]:
    """Those of all terms of one column of time."""
    steps = float(column.scale / scales.gap)  # in one unit of the encoded column
    whole = float(scales.count) / steps
    line = series.LINE * float(scales.sd) / whole
    result = {}
    for name, term in terms.items():
        if term.kind == "trend":
            level, slope = (value * float(scales.step) / line for value in (series.LEVEL, series.SLOPE))
            spread = series.OF_INNOVATIONS
            wander = Prior(level * steps**0.5, spread), Prior(slope * steps**1.5, spread)
            result[name] = TimePrior(Prior(line, OF_LINE), wander)
        elif term.kind == "season":
            period = float(term.period or 1.0) / column.scale
            shape = Prior(series.WIGGLE, series.OF_WIGGLE), Prior(series.SEASONS * period, series.SPREAD)
            result[name] = TimePrior(Prior(series.SEASON * float(scales.rest), series.SPREAD), shape)
        else:
            wave = Prior(series.MEMORY * whole, series.SPREAD), Prior(series.PERIOD * whole, series.SPREAD)
            result[name] = TimePrior(Prior(series.CYCLE * float(scales.rest), series.SPREAD), wave)
    return result


def series_scales(
    t: np.ndarray, rows: TableRows, periods: tuple[float, ...], family: Family, start: Start, offset: np.ndarray
) -> series.Scales:
    """Scales of a response on the scale of its link, of the mean of all rows of one time by their weights."""
    times, place = np.unique(t, return_inverse=True)
    y, mass, response = rows.y, np.bincount(place, rows.mass), np.zeros(len(times))
    if family.link == "log" and np.all(y >= 0) and np.any(y > 0):
        response = np.log(np.maximum(np.bincount(place, rows.mass * y) / mass, 0.5 * y[y > 0].min()))
    elif family.link == "identity":
        response = np.bincount(place, rows.mass * y) / mass
    else:
        offset = np.zeros(len(t))
    response = response - np.bincount(place, rows.mass * offset) / mass
    size = float(start.size)
    if np.ptp(response) <= 1e-6 * size:  # of labels, and of counts that are all the same, steps say nothing
        return series.Scales(*series.scales_of(times, times, ())[:2], size, 0.5 * size, size)
    return series.scales_of(times, response, periods)


def time_kernel(kind: str, one: Array, lengths: Any, given: Any) -> Kernel:
    """The kernel of unit variance, of one column; ``given`` has a measure, and the period of a season."""
    if kind == "season":
        circle, period = given
        return kernels.ZeroMean(kernels.Periodic(one, lengths[0], period), circle) * Matern32(one, lengths[1])
    if kind == "trend":
        wander = lengths[0] ** 2 * kernels.Wiener(one) + lengths[1] ** 2 * kernels.IntegratedWiener(one)
        return kernels.Centred(kernels.Linear(one) + wander, given)
    return kernels.Centred(Matern32(one, lengths[0]) * kernels.Cosine(one, lengths[1]), given)


def wave_at(gaps: np.ndarray, lengths: np.ndarray) -> Sloped:
    """What a `cycle` is at gaps, where nothing is taken off."""
    memory, period = map(float, lengths)
    d, turns = deviations(Matern32, gaps, memory), gaps * (2 * math.pi / period)
    wave, kappa = np.cos(turns), 1 + d.value
    return Sloped(kappa * wave, np.stack([d.slopes[0] * wave, kappa * turns * np.sin(turns) / period]))


def time_matrices(kind: str, given: Any, Z: np.ndarray, X: np.ndarray) -> MatrixFunction:
    """Those of `time_kernel`.

    Of a trend sums of three matrices that no parameter moves; of a season a curve on a circle times a correlation that
    falls; of a cycle a wave times one.
    """
    if kind == "season":
        curve, times = Curve(Matern32, given, Z, X), np.concatenate([Z, X])
        between = np.vstack([np.abs(Z[:, None] - times), np.zeros(len(times))])

        def season(lengths: np.ndarray) -> Sloped:
            shape, memory = map(float, lengths)
            d = deviations(Matern32, between, memory)
            return curve(shape).at(0, 2) * Sloped(1 + d.value, d.slopes).at(1, 2)

        return season
    points, weights = np.asarray(given.points, float), np.asarray(given.weights, float)
    points, weights = points[weights > 0], weights[weights > 0]
    times, Q = np.concatenate([points, Z, X]), len(points)
    first = times[: Q + len(Z)]

    def less(matrix: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        """The matrix of ``f`` less its average over the points, as of `MatrixFunction`, from that at all times."""
        a = weights @ matrix[:Q]
        c = float(weights @ a[:Q])
        found = less_average(matrix[Q:, Q:], a[Q : len(first), None], a[Q:], c)
        return np.vstack([found, less_average(diagonal, a, a, c)[Q:]])

    if kind == "trend":
        x, y = first[:, None], times
        is_beside = (x >= 0) == (y >= 0)
        a, b, t = np.minimum(np.abs(x), np.abs(y)), np.maximum(np.abs(x), np.abs(y)), np.abs(y)
        line, walk = less(x * y, y * y), less(np.where(is_beside, a, 0.0), t)
        smooth = less(np.where(is_beside, integrated_walk(a, b), 0.0), t**3 / 3)

        def trend(lengths: np.ndarray) -> Sloped:
            level, slope = map(float, lengths)
            whole = line + level**2 * walk + slope**2 * smooth
            return Sloped(whole, np.stack([2 * level * walk, 2 * slope * smooth]))

        return trend
    gaps, one, none = np.abs(first[:, None] - times), np.ones(len(times)), np.zeros(len(times))

    def cycle(lengths: np.ndarray) -> Sloped:
        found = wave_at(gaps, lengths)
        return Sloped(less(found.value, one), np.stack([less(slope, none) for slope in found.slopes]))

    return cycle


def time_inducing(term: Term, x: np.ndarray, period: float | None, phases: int | None = None) -> np.ndarray:
    """Inducing inputs ``(M,)`` of a term, from encoded times; of a season so many phases, if they are known."""
    times = np.unique(x)
    if term.kind != "season" or period is None:
        most = term.num_inducing or (OF_TREND if term.kind == "trend" else OF_CYCLE)
        return times[np.linspace(0, len(times) - 1, min(most, len(times))).round().astype(int)]
    most, whole = term.num_inducing or OF_SEASON, float(times[-1] - times[0])
    gap = float(np.median(np.diff(times)))
    # Two times for each memory of the prior, in which a season changes.
    wanted = max(LEAST_TIMES, math.ceil(2 * whole / (series.SEASONS * period)) + 2) if phases is None else most
    phases = max(2, min(phases or PHASES, round(period / gap), most // LEAST_TIMES))
    if len(times) <= min(most, phases * wanted):
        return times
    starts = min(wanted, max(1, most // phases), max(1, int(whole / period)))
    lows = times[0] + max(whole - period, 0.0) * np.linspace(0, 1, starts)
    return np.unique((lows[:, None] + period * np.arange(phases) / phases).ravel())
