"""Kernels of one column with the slope in their lengthscale, in NumPy: the same formulas as `kernels.ZeroMean`.

A fit evaluates some thirty rows by a thousand a few dozen times: less work than compiling a program of it. With
``kappa`` the correlation, ``d = kappa - 1``, ``a(x)`` its average over a measure and ``b`` the average of that,
``k(x, y) = d(x - y) - (a(x) + a(y) + a(x) a(y) - b) / (1 + b)`` (mathematics.md section 2.4).
"""

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from numpyro_gp.kernels import RBF, Empirical, Gaussian, Matern12, Matern32, Uniform, ZeroMean
from numpyro_gp.kernels.measures import Measure, legendre
from numpyro_gp.kernels.profiles import RATES, double_mean, integral, of_average, over_normal
from numpyro_gp.kernels.zero_mean import CLOSED_FORM_BELOW, NODES


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


class Entries:
    """Entries of a kernel, of which those of sums and products are sums and products."""

    def merged(self, function: Callable[..., Any], *others: Self) -> Self:
        """A function of the entries of several kernels."""
        return type(self)(*map(function, self, *others))

    def __iter__(self) -> Iterator[Any]:
        return iter(vars(self).values())

    def __add__(self, other: Self) -> Self:
        return self.merged(operator.add, other)

    def __mul__(self, other: Self) -> Self:
        return self.merged(operator.mul, other)


@dataclass(frozen=True)
class KernelMatrices(Entries):
    """A kernel at inducing inputs ``(M,)`` and rows ``(U,)``: its matrices, and its variances at the rows."""

    gram: Sloped
    cross: Sloped
    diagonal: Sloped


# A kernel as a function of the lengthscales ``(P,)`` of its term.
MatrixFunction = Callable[[np.ndarray], KernelMatrices]


def deviation(kind: type, gaps: np.ndarray, lengthscale: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``kappa - 1`` at gaps of zero or more, and its slope in the lengthscale."""
    z = gaps * (RATES[kind] / lengthscale)
    if kind is RBF:
        z *= z
        d = np.expm1(-0.5 * z)
        return d, (d + 1) * z / lengthscale
    d = np.expm1(-z)
    decay = d + 1
    if kind is Matern12:
        return d, decay * z / lengthscale
    if kind is Matern32:
        decay *= z
        return d + decay, decay * z / lengthscale
    decay *= z
    slope = decay * z
    d += decay
    d += slope / 3
    return d, (slope + slope * z) / (3 * lengthscale)


def deviation_alone(kind: type, gaps: np.ndarray, lengthscale: float | np.ndarray) -> np.ndarray:
    """`deviation` without the slope, number for number, in half the time."""
    z = gaps * (RATES[kind] / lengthscale)
    if kind is RBF:
        z *= z
        found: np.ndarray = np.expm1(-0.5 * z)
        return found
    d: np.ndarray = np.expm1(-z)
    if kind is not Matern12:
        decay = d + 1
        decay *= z
        d += decay
        if kind is not Matern32:
            decay *= z
            decay /= 3
            d += decay
    return d


class Average(NamedTuple):
    """``a`` at points ``(N,)`` and ``b``, each with its slope."""

    a: np.ndarray
    a_slope: np.ndarray
    b: float
    b_slope: float

    def shared(self, x: np.ndarray, of_x: np.ndarray, y: np.ndarray, of_y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`of_average` of ``a`` at two sets of points, and its slope."""
        value = of_average(x, y, self.b)
        return value, (of_x * (1 + y) + of_y * (1 + x) - self.b_slope * (1 + value)) / (1 + self.b)


def average(kind: type, measure: Measure, lengthscale: float, x: np.ndarray) -> Average:
    """Of an interval or a normal distribution."""
    if isinstance(measure, Gaussian):
        mean, sd = float(measure.mean), float(measure.sd)
        ratio, total, squares = (sd / lengthscale) ** 2, lengthscale**2 + sd**2, (x - mean) ** 2
        a, b = over_normal(x, lengthscale, mean, sd, np)
        a_slope = (a + 1) * (ratio / (1 + ratio) / lengthscale + squares * lengthscale / total**2)
        return Average(a, a_slope, float(b), float((b + 1) * 2 * ratio / (1 + 2 * ratio) / lengthscale))
    assert isinstance(measure, Uniform)
    low, length = float(measure.low), float(measure.high) - float(measure.low)
    found = _over_unit(kind, lengthscale / length, (x - low) / length)
    return Average(found.a, found.a_slope / length, found.b, found.b_slope / length)


def _over_unit(kind: type, l: float, x: np.ndarray) -> Average:
    """Of ``[0, 1]``: in closed form for short lengthscales, else by quadrature of the deviation on both sides of x."""
    if l >= CLOSED_FORM_BELOW:
        nodes, weights = legendre(NODES)
        a, a_slope = np.zeros(x.shape), np.zeros(x.shape)
        for ends in (x, 1 - x):
            d, slope = deviation(kind, np.abs(ends)[:, None] * nodes, l)
            a, a_slope = a + ends * (d @ weights), a_slope + ends * (slope @ weights)
        d, slope = deviation(kind, nodes, l)
        double = 2 * weights * (1 - nodes)
        return Average(a, a_slope, float(double @ d), float(double @ slope))

    def part(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``int_0^x kappa(u / l) du``, odd in x, and its slope in l."""
        u = np.abs(ends) / l
        value = np.sign(ends) * integral(kind, u, np)
        return l * value, value - np.sign(ends) * u * (1 + deviation_alone(kind, u, 1.0))

    (left, left_slope), (right, right_slope), (whole, _) = part(x), part(1 - x), part(np.ones(()))
    mean = float(double_mean(kind, np.asarray(l), np))
    return Average(left + right - 1, left_slope + right_slope, mean - 1, 2 * (mean - float(whole)) / l)


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

    def average(self, lengthscale: float, d: np.ndarray, slope: np.ndarray | None = None) -> Average:
        """Of inducing inputs and rows, from what `deviation` says of all gaps; without the slope with none."""
        count = len(self.weights)
        if not count:
            return average(self.kind, self.measure, lengthscale, self.columns)
        a = self.weights @ d[:count]
        a_slope = np.zeros(a.shape) if slope is None else self.weights @ slope[:count]
        b, b_slope = float(self.weights @ a[:count]), float(self.weights @ a_slope[:count])
        return Average(a[count:], a_slope[count:], b, b_slope)

    def __call__(self, lengthscale: float) -> KernelMatrices:
        if not self.is_sloped:
            return self._alone(lengthscale)
        d, slope = deviation(self.kind, self.gaps, lengthscale)
        count, own = len(self.weights), self.average(lengthscale, d, slope)
        size = len(d) - count
        first, rest = slice(0, size), slice(size, None)
        shared, of_shared = own.shared(own.a[first, None], own.a_slope[first, None], own.a, own.a_slope)
        value, slopes = d[count:, count:] - shared, slope[count:, count:] - of_shared
        both = [Sloped(value[:, at], slopes[None, :, at]) for at in (first, rest)]
        shared, of_shared = own.shared(own.a[rest], own.a_slope[rest], own.a[rest], own.a_slope[rest])
        return KernelMatrices(both[0], both[1], Sloped(-shared, -of_shared[None]))

    def _alone(self, lengthscale: float) -> KernelMatrices:
        """The matrices without slopes."""
        d, count = deviation_alone(self.kind, self.gaps, lengthscale), len(self.weights)
        own, size = self.average(lengthscale, d), len(d) - count
        value = d[count:, count:] - of_average(own.a[:size, None], own.a, own.b)
        a = own.a[size:]
        parts = value[:, :size], value[:, size:], -of_average(a, a, own.b)
        return KernelMatrices(*(without_slopes(one, 0) for one in parts))
