"""Terms of a series, `trend`, `season` and `cycle`: kernels of one column of time with two parameters each.

The kernel of each has unit variance where its scale is one, so that a fit has a scale and two numbers of every term, as
of a surface: of a trend how much level and slope wander beside its line, of a season its shape and its memory, of a
cycle its memory and its period. Their priors follow from the rows (`ngp.starting.trend` has the same ones).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive.columns import Column
from numpyro_gp.arrays import Array
from numpyro_gp.gam.column_kernels import Curve, KernelMatrices, Sloped, deviation, without_slopes
from numpyro_gp.gam.family import Family, Prior, Start
from numpyro_gp.gam.terms import Term
from numpyro_gp.kernels import (
    Centred,
    Cosine,
    Empirical,
    Gaussian,
    IntegratedWiener,
    Kernel,
    Linear,
    Matern32,
    Periodic,
    Wiener,
    ZeroMean,
)
from numpyro_gp.kernels.profiles import less_average
from numpyro_gp.starting.series import (
    CIRCLE,
    CYCLE,
    LEVEL,
    LINE,
    MEMORY,
    NOISE,
    OF_INNOVATIONS,
    OF_WIGGLE,
    PERIOD,
    SEASON,
    SEASONS,
    SLOPE,
    SPREAD,
    WIGGLE,
    Scales,
    scales_of,
)

# Inducing inputs: of a trend, which is rough, one for each different time up to so many; of a cycle; of a season, some
# phases at some times. What is rougher than its inputs the bound takes for noise.
OF_TREND, OF_CYCLE, OF_SEASON, PHASES, LEAST_TIMES = 500, 150, 150, 24, 4
# The spread of the logarithm of a straight line's standard deviation, which is as good as known.
OF_LINE = 0.5


class TimePrior(NamedTuple):
    """Priors of the standard deviation of a term and of its two parameters, for encoded times."""

    scale: Prior
    lengths: tuple[Prior, Prior]


def time_priors(terms: dict[str, Term], column: Column, scales: Scales) -> dict[str, TimePrior]:
    """Those of all terms of one column of time."""
    steps = float(column.scale / scales.gap)  # in one unit of the encoded column
    whole = float(scales.count) / steps
    line = LINE * float(scales.sd) / whole
    found = {}
    for name, term in terms.items():
        if term.kind == "trend":
            level, slope = (value * float(scales.step) / line for value in (LEVEL, SLOPE))
            wander = Prior(level * steps**0.5, OF_INNOVATIONS), Prior(slope * steps**1.5, OF_INNOVATIONS)
            found[name] = TimePrior(Prior(line, OF_LINE), wander)
        elif term.kind == "season":
            period = float(term.period or 1.0) / column.scale
            shape = Prior(WIGGLE, OF_WIGGLE), Prior(SEASONS * period, SPREAD)
            found[name] = TimePrior(Prior(SEASON * float(scales.rest), SPREAD), shape)
        else:
            wave = Prior(MEMORY * whole, SPREAD), Prior(PERIOD * whole, SPREAD)
            found[name] = TimePrior(Prior(CYCLE * float(scales.rest), SPREAD), wave)
    return found


def series_scales(
    t: np.ndarray, y: np.ndarray, periods: tuple[float, ...], family: Family, start: Start, offset: np.ndarray
) -> Scales:
    """Scales of a response on the scale of its link, of the mean of all rows of one time."""
    times, place = np.unique(t, return_inverse=True)
    rows, response = np.bincount(place), np.zeros(len(times))
    if family.link == "log" and np.all(y >= 0) and np.any(y > 0):
        response = np.log(np.maximum(np.bincount(place, y) / rows, 0.5 * y[y > 0].min()))
    elif family.link == "identity":
        response = np.bincount(place, y) / rows
    else:
        offset = np.zeros(len(t))
    response = response - np.bincount(place, offset) / rows
    size = float(start.size)
    if np.ptp(response) <= 1e-6 * size:  # of labels, and of counts that are all the same, steps say nothing
        sizes = (size, 0.5 * size, size)
        return Scales(*scales_of(times, times, ())[:2], *sizes)
    return scales_of(times, response, periods)


def noise_of(scales: Scales) -> float:
    """The median of the standard deviation of the noise beside terms of a series."""
    return NOISE * float(scales.step)


def points_of(measure: Any) -> Empirical:
    """The points over which trends and cycles average to zero: those of the rows, or some of another measure."""
    if isinstance(measure, Empirical):
        return measure
    if isinstance(measure, Gaussian):
        from scipy.special import ndtri

        return Empirical(float(measure.mean) + float(measure.sd) * ndtri((np.arange(CIRCLE) + 0.5) / CIRCLE))
    low, high = float(measure.low), float(measure.high)
    return Empirical(low + (high - low) * (np.arange(CIRCLE) + 0.5) / CIRCLE)


def time_kernel(kind: str, one: Array, lengths: Any, given: Any) -> Kernel:
    """The kernel of unit variance, of one column; ``given`` has a measure, and the period of a season."""
    if kind == "season":
        circle, period = given
        return ZeroMean(Periodic(one, lengths[0], period), circle) * Matern32(one, lengths[1])
    if kind == "trend":
        wander = lengths[0] ** 2 * Wiener(one) + lengths[1] ** 2 * IntegratedWiener(one)
        return Centred(Linear(one) + wander, given)
    return Centred(Matern32(one, lengths[0]) * Cosine(one, lengths[1]), given)


class _Centring:
    """Times of the points of a measure, of inducing inputs and of rows, and what takes averages over the first off."""

    def __init__(self, measure: Empirical, Z: np.ndarray, X: np.ndarray) -> None:
        points, weights = np.asarray(measure.points, float), np.asarray(measure.weights, float)
        self.weights = weights[weights > 0]
        self.times = np.concatenate([points[weights > 0], Z, X])
        self.count, self.size = len(self.weights), len(Z)
        self.first = self.times[: self.count + self.size]

    def __call__(self, matrix: np.ndarray, diagonal: np.ndarray) -> list[np.ndarray]:
        """Gram, cross and diagonal of ``f`` less its average, from its covariances at all times."""
        a = self.weights @ matrix[: self.count]
        c = float(self.weights @ a[: self.count])
        rows, Q = slice(self.count, self.count + self.size), self.count
        found = less_average(matrix[rows, Q:], a[rows, None], a[Q:], c)
        own = less_average(diagonal, a, a, c)[Q + self.size :]
        return [found[:, : self.size], found[:, self.size :], own]


class TrendMatrices:
    """Of `trend`: sums of three matrices that no parameter moves."""

    def __init__(self, measure: Empirical, Z: np.ndarray, X: np.ndarray) -> None:
        less = _Centring(measure, Z, X)
        x, y = less.first[:, None], less.times
        is_beside = (x >= 0) == (y >= 0)
        a, b = np.minimum(np.abs(x), np.abs(y)), np.maximum(np.abs(x), np.abs(y))
        walk, smooth, t = np.where(is_beside, a, 0.0), np.where(is_beside, a * a * (3 * b - a) / 6, 0.0), np.abs(y)
        self.line, self.walk, self.smooth = less(x * y, y * y), less(walk, t), less(smooth, t**3 / 3)

    def __call__(self, lengths: np.ndarray) -> KernelMatrices:
        level, slope = map(float, lengths)
        leaves = zip(self.line, self.walk, self.smooth, strict=True)
        return KernelMatrices(
            *(
                Sloped(one + level**2 * w + slope**2 * s, np.stack([2 * level * w, 2 * slope * s]))
                for one, w, s in leaves
            )
        )


class CycleMatrices:
    """Of `cycle`: a wave times a correlation that falls."""

    def __init__(self, measure: Empirical, Z: np.ndarray, X: np.ndarray) -> None:
        self.less = _Centring(measure, Z, X)
        self.gaps = np.abs(self.less.first[:, None] - self.less.times)

    def __call__(self, lengths: np.ndarray) -> KernelMatrices:
        memory, period = map(float, lengths)
        d, slope = deviation(Matern32, self.gaps, memory)
        d += 1
        turns = self.gaps * (2 * math.pi / period)
        wave = np.cos(turns)
        slope *= wave
        turns *= np.sin(turns)
        turns *= d / period
        d *= wave
        one, none = np.ones(len(self.less.times)), np.zeros(len(self.less.times))
        whole = zip(self.less(d, one), self.less(slope, none), self.less(turns, none), strict=True)
        return KernelMatrices(
            *(Sloped(value, np.stack([of_memory, of_period])) for value, of_memory, of_period in whole)
        )


class SeasonMatrices:
    """Of `season`: a curve on a circle times a correlation that falls."""

    def __init__(self, given: tuple[Empirical, float], Z: np.ndarray, X: np.ndarray) -> None:
        circle, period = given
        self.curve = Curve.of(Matern32, circle, float(period), Z, X)
        self.gaps = np.abs(Z[:, None] - np.concatenate([Z, X]))

    def __call__(self, lengths: np.ndarray) -> KernelMatrices:
        shape, memory = map(float, lengths)
        d, slope = deviation(Matern32, self.gaps, memory)
        size = len(self.gaps)
        gram, cross = (Sloped(1 + d[:, at], slope[None, :, at]) for at in (slice(None, size), slice(size, None)))
        fall = KernelMatrices(gram, cross, without_slopes(np.ones(cross.value.shape[1]), 1))
        fall = fall.merged(lambda leaf: leaf.at(1, 2))
        return self.curve(shape).merged(lambda leaf: leaf.at(0, 2)) * fall


MATRICES = {"trend": TrendMatrices, "cycle": CycleMatrices, "season": SeasonMatrices}


def time_matrices(kind: str, given: object, Z: np.ndarray, X: np.ndarray) -> Callable[[np.ndarray], KernelMatrices]:
    """The kernel of a term of time at inducing inputs and rows ``(M,)``, ``(U,)``, as a function of its parameters."""
    found: Callable[[np.ndarray], KernelMatrices] = MATRICES[kind](given, Z, X)
    return found


def time_inducing(term: Term, x: np.ndarray, period: float | None) -> np.ndarray:
    """Inducing inputs ``(M,)`` of a term, from encoded times."""
    times: np.ndarray = np.unique(x)
    if term.kind != "season" or period is None:
        most = term.num_inducing or (OF_TREND if term.kind == "trend" else OF_CYCLE)
        some: np.ndarray = times[np.linspace(0, len(times) - 1, min(most, len(times))).round().astype(int)]
        return some
    most, whole = term.num_inducing or OF_SEASON, float(times[-1] - times[0])
    gap = float(np.median(np.diff(times)))
    phases = max(2, min(PHASES, round(period / gap), most // LEAST_TIMES))
    # Two times for each memory of the prior, in which a season changes.
    wanted = max(LEAST_TIMES, math.ceil(2 * whole / (SEASONS * period)) + 2)
    if len(times) <= min(most, phases * wanted):
        return times
    starts = min(wanted, max(1, most // phases), max(1, int(whole / period)))
    lows = times[0] + max(whole - period, 0.0) * np.linspace(0, 1, starts)
    return np.unique((lows[:, None] + period * np.arange(phases) / phases).ravel())


def circle_of(low: float, period: float) -> Empirical:
    """Points over one period, at which a season averages to zero: all of them are as good as an integral."""
    return Empirical(jnp.asarray(low + period * np.arange(CIRCLE) / CIRCLE))
