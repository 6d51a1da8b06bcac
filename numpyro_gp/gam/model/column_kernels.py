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

from numpyro_gp.kernels import RBF, Empirical, Gaussian, Matern52, Uniform, ZeroMean, profiles
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


class MeasureAverages(NamedTuple):
    """``a`` at points ``(N,)``, and ``b``."""

    a: Sloped
    b: Sloped

    def at_points(self) -> Sloped:
        """`of_average` of ``a`` at each point twice, ``(N,)``."""
        return self._with_slopes(of_average(self.a.value, self.a.value, self.b.value), self.a, self.a)

    def from_first(self, size: int) -> Sloped:
        """`of_average` of ``a`` at the first points and at all, ``(size, N)``."""
        a, b = self.a.value, self.b.value
        # In that of the first it is a line: a product of two columns and two rows, for six passes over a matrix.
        rows = np.stack([(1 + a) / (1 + b), of_average(np.zeros(1), a, b)])
        columns = np.stack([a[:size], np.ones(size)], axis=1)
        x = Sloped(a[:size, None], self.a.slopes[:, :size, None])
        return self._with_slopes(columns @ rows, x, Sloped(a, self.a.slopes[:, None]))

    def _with_slopes(self, value: np.ndarray, x: Sloped, y: Sloped) -> Sloped:
        if not len(x.slopes):
            return without_slopes(value, 0)
        of_b = self.b.slopes.reshape(-1, *(1,) * value.ndim)
        slopes = x.slopes * (1 + y.value) + y.slopes * (1 + x.value) - of_b * (1 + value)
        return Sloped(value, slopes / (1 + self.b.value))


def averages_over(kind: type, measure: Measure, lengthscale: float, x: np.ndarray) -> MeasureAverages:
    """Of an interval or a normal distribution."""
    if isinstance(measure, Gaussian):
        mean, sd = float(measure.mean), float(measure.sd)
        ratio, total, squares = (sd / lengthscale) ** 2, lengthscale**2 + sd**2, (x - mean) ** 2
        a, b = over_normal(x, lengthscale, mean, sd, np)
        a_slope = (a + 1) * (ratio / (1 + ratio) / lengthscale + squares * lengthscale / total**2)
        b_slope = (b + 1) * 2 * ratio / (1 + 2 * ratio) / lengthscale
        return MeasureAverages(Sloped(a, a_slope[None]), Sloped(b, np.array([b_slope])))
    assert isinstance(measure, Uniform)
    low, length = float(measure.low), float(measure.high) - float(measure.low)
    found = _over_unit(kind, lengthscale / length, (x - low) / length)
    return MeasureAverages(*(Sloped(one.value, one.slopes / length) for one in found))


def _over_unit(kind: type, l: float, x: np.ndarray) -> MeasureAverages:
    """Of ``[0, 1]``: in closed form for short lengthscales, else by quadrature of the deviation on both sides of x."""
    if l >= CLOSED_FORM_BELOW:
        nodes, weights = legendre(NODES)
        sides = [(ends, deviations(kind, np.abs(ends)[:, None] * nodes, l)) for ends in (x, 1 - x)]
        left, right = (Sloped(ends * (d.value @ weights), ends * (d.slopes @ weights)) for ends, d in sides)
        d, double = deviations(kind, nodes, l), 2 * weights * (1 - nodes)
        return MeasureAverages(left + right, Sloped(d.value @ double, d.slopes @ double))

    def part(ends: np.ndarray) -> Sloped:
        """``int_0^x kappa(u / l) du``, odd in x, and its slope in l."""
        u = np.abs(ends) / l
        value = np.sign(ends) * integral(kind, u, np)
        return Sloped(l * value, (value - np.sign(ends) * u * (1 + deviations(kind, u, 1.0, False).value))[None])

    both, whole = part(x) + part(1 - x), part(np.ones(())).value
    mean = double_mean(kind, np.asarray(l), np)
    return MeasureAverages(Sloped(both.value - 1, both.slopes), Sloped(mean - 1, np.array([2 * (mean - whole) / l])))


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
            found = averages_over(self.kind, self.measure, lengthscale, self.columns)
            return MeasureAverages(*(Sloped(one.value, one.slopes[: len(d.slopes)]) for one in found))
        a, slopes = self.weights @ d.value[:count], self.weights @ d.slopes[:, :count]
        b = Sloped(self.weights @ a[:count], slopes[:, :count] @ self.weights)
        return MeasureAverages(Sloped(a[count:], slopes[:, count:]), b)

    def __call__(self, lengthscale: float) -> KernelMatrices:
        d, count = deviations(self.kind, self.gaps, lengthscale, self.is_sloped), len(self.weights)
        own, size = self.average(lengthscale, d), len(d.value) - count
        shared, alone = own.from_first(size), own.at_points()
        value, slopes = d.value[count:, count:], d.slopes[:, count:, count:]
        gram, cross = (
            Sloped(value[:, at] - shared.value[:, at], slopes[..., at] - shared.slopes[..., at])
            for at in (slice(size), slice(size, None))
        )
        return KernelMatrices(gram, cross, Sloped(-alone.value[size:], -alone.slopes[:, size:]))
