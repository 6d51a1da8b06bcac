"""Rows whose response is known to be greater, or smaller, than what the table says: their densities in NumPy.

A row has a side: 1 where the response is greater, -1 where it is smaller, 0 where it is observed. Of a censored row
``log P(Y > y | f)`` or ``log P(Y < y | f)`` stands for the log density. Its slope in ``f`` is the hazard ``p(y | f)``
over that probability, by which of ``f`` moves ``y``; both are found without underflow in a far tail.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from numpyro_gp import likelihoods
from numpyro_gp.arrays import Values
from numpyro_gp.gam.model.families import ExpectedDensities, FamilyRow, MeanGamma, Start, in_a_strip
from numpyro_gp.gam.table.layout import TableLayout
from numpyro_gp.likelihoods import Censored, Likelihood

# Terms of a series or a continued fraction where a probability underflows: its argument is far beyond its parameter.
TERMS = 100
TINY = np.finfo(float).tiny
# The step in the logarithm of a shape by which a probability is differentiated: no closed form is known.
MOVE = 3e-3

# The log probability of a side, and the size of its slope in ``f``: ``(side, y, f, *p)``.
LogTail = Callable[..., tuple[np.ndarray, np.ndarray]]


def normal_tail(side: int, y: np.ndarray, f: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``log Phi(-t)`` with ``t = side (y - f) / sd``; the hazard by the scaled complement of the error function."""
    t = side * (y - f) / sd
    hazard = math.sqrt(2 / math.pi) / scipy.special.erfcx(t / math.sqrt(2))
    return scipy.special.log_ndtr(-t), hazard / sd


def student_tail(
    side: int, y: np.ndarray, f: np.ndarray, df: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``log P(T > t)``: where that underflows, the density over the hazard, whose inverse has a series in 1 / t^2."""
    t, half = side * (y - f) / scale, 0.5 * df
    density = -scipy.special.betaln(0.5, half) - 0.5 * np.log(df) - (half + 0.5) * np.log1p(t * t / df)
    below = scipy.special.stdtr(df, -t)
    is_far = below < TINY
    log = np.log(np.where(is_far, 1.0, below))
    hazard = np.exp(density - log)
    if is_far.any():
        x, series = df / (df + t * t), 1.0
        for k in range(TERMS, 0, -1):
            series = 1 + (half + k - 0.5) / (half + k) * x * series
        inverse = np.where(is_far, t / df * series, 1.0)
        log, hazard = np.where(is_far, density + np.log(inverse), log), np.where(is_far, 1 / inverse, hazard)
    return log, hazard / scale


def gamma_tail(side: int, y: np.ndarray, f: np.ndarray, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``log Q(a, x)`` or ``log P(a, x)`` with ``x = a y e^-f``: by Legendre's fraction or a series in a far tail."""
    x = shape * y * np.exp(-f)
    part = scipy.special.gammaincc(shape, x) if side > 0 else scipy.special.gammainc(shape, x)
    front = shape * np.log(x) - x - scipy.special.gammaln(shape)  # the density of log Y
    is_far = part < TINY
    log = np.log(np.where(is_far, 1.0, part))
    slope = np.exp(front - log)
    if is_far.any():
        own, rest = np.where(is_far, x, 1.0), 0.0
        if side > 0:
            for n in range(TERMS, 0, -1):
                rest = n * (shape - n) / (own + 2 * n + 1 - shape + rest)
            far = own + 1 - shape + rest
        else:
            for n in range(TERMS, 0, -1):
                rest = own / (shape + n) * (1 + rest)
            far = shape / (1 + rest)
        far = np.where(is_far, far, 1.0)
        log, slope = np.where(is_far, front - np.log(far), log), np.where(is_far, far, slope)
    return log, slope


class Tail(NamedTuple):
    """A log probability of a side with its slope, and where it is analytic in ``f``.

    Attributes
    ----------
    at : callable
    width : callable
        ``*p`` to the distance of the nearest singular point from the real axis, or less.
    growth : float
        It grows as ``exp(growth |f|)``, or as a power of ``f`` where that is zero.
    """

    at: LogTail
    width: Callable[..., np.ndarray]
    growth: float = 0.0


# By the class of a likelihood. The zeros of the complement of the error function are 2.8 standard deviations away.
TAILS: dict[type[Likelihood], Tail] = {
    likelihoods.Gaussian: Tail(normal_tail, lambda sd: 2.5 * sd),
    likelihoods.StudentT: Tail(student_tail, lambda df, sd: sd * np.minimum(np.sqrt(df), 2.5)),
    MeanGamma: Tail(gamma_tail, lambda shape: 1.5 / np.sqrt(np.maximum(shape, 1.0)), 1.0),
    likelihoods.Exponential: Tail(lambda side, y, f: gamma_tail(side, y, f, np.ones(())), lambda: np.asarray(1.5), 1.0),
}


def sides_at(layout: TableLayout, X: Values) -> Values | None:
    """The side ``(N,)`` of each encoded row; None where no response is censored."""
    return None if layout.censored is None else X[..., layout.censored]


def with_sides(likelihood: Likelihood, sides: Values) -> Censored:
    """The likelihood of programs, for rows with these sides ``(N,)``."""
    return Censored(likelihood, left=sides < 0, right=sides > 0)


def said_of(sides: np.ndarray) -> str:
    """How many rows are censored, and to which side, in words."""
    counts = ((int(np.sum(sides == side)), word) for side, word in ((1, "greater"), (-1, "smaller")))
    parts = [f"{count} of {len(sides)} rows: their response is known to be {word}" for count, word in counts if count]
    return "; ".join(parts) or f"0 of {len(sides)} rows"


def censored_row(row: FamilyRow, sides: np.ndarray) -> FamilyRow:
    """The formulas of a family for rows with these sides ``(N,)``."""
    groups = [(side, np.flatnonzero(sides == side)) for side in (-1, 0, 1)]
    groups = [(side, rows) for side, rows in groups if len(rows)]
    order = np.argsort(np.concatenate([rows for _, rows in groups]))

    def expected(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, *p: float) -> ExpectedDensities:
        assert row.expected is not None
        parts = []
        for side, rows in groups:
            own = y[rows], mean[rows], variance[rows]
            parts.append(tail_densities(row, side, *own, *p) if side else row.expected(*own, *p))
        fields = zip(*parts, strict=True)  # without parameters the last are None
        return ExpectedDensities(*(np.concatenate(own, axis=-1)[..., order] for own in fields if own[0] is not None))

    def value(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, *p: np.ndarray) -> np.ndarray:
        numbers, tail = np.broadcast_arrays(y, mean, variance, *p), TAILS[row.kind]
        parts: list[np.ndarray] = []
        for side, rows in groups:
            own = [one[..., rows] for one in numbers]
            if side:
                width, given = float(np.min(tail.width(*own[3:]))), (own[0], *own[3:])
                log = lambda f, y, *p, side=side: tail.at(side, y, f, *p)[:1]  # noqa: E731
                parts += in_a_strip(log, own[1], own[2], *given, width=width, growth=tail.growth)
            else:
                parts.append(row.expect(*own))
        return np.concatenate(parts, axis=-1)[..., order]

    return row._replace(expected=expected, value=value, until=None, deviance=None)


def tail_densities(
    row: FamilyRow, side: int, y: np.ndarray, mean: np.ndarray, variance: np.ndarray, *p: float
) -> ExpectedDensities:
    """The expected log probability of one side, with its slopes.

    With the hazard ``r`` the slope is ``side r``, and the curvature ``side r d log p(y | f) / df - r^2``.
    """
    tail, names = TAILS[row.kind], list(row.priors(Start()))

    def slopes(f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        assert row.expected is not None
        log, hazard = tail.at(side, y, f, *p)
        slope, of_parameters = side * hazard, []
        curvature = slope * row.expected(y, f, np.zeros(()), *p).of_mean - hazard**2
        for number, name in enumerate(names):
            if name == "noise":  # of what is a function of (y - f) / noise
                of_parameters.append(slope * (y - f) / p[number])
                continue
            near, far = (
                np.subtract(
                    *(tail.at(side, y, f, *p[:number], p[number] * math.exp(k), *p[number + 1 :])[0] for k in ks)
                )
                for ks in ((MOVE, -MOVE), (2 * MOVE, -2 * MOVE))
            )
            of_parameters.append((8 * near - far) / (12 * MOVE * p[number]))
        return log, slope, curvature, *of_parameters

    value, slope, curvature, *rest = in_a_strip(
        slopes, mean, variance, y, width=float(tail.width(*p)), growth=tail.growth
    )
    of_parameter = None if not rest else rest[0] if len(rest) == 1 else np.stack(rest)
    return ExpectedDensities(value, slope, 0.5 * curvature, of_parameter)
