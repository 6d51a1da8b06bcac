"""The kernel of each term and where its inducing inputs stand (mathematics.md section 6.5)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive.columns import grid_points
from numpyro_gp.additive.component_kernels import Component, batches_of, column_kernel
from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.gam.model.column_kernels import (
    TimePrior,
    deviations,
    time_inducing,
    time_kernel,
)
from numpyro_gp.gam.table.layout import ReadTerm, TableLayout, is_difference
from numpyro_gp.gam.table.terms import TIME, Term
from numpyro_gp.kernels import CategoryDelta, Empirical, Gaussian, Kernel, Linear, Matern52, Uniform, ZeroMeanLinear
from numpyro_gp.kernels.members import KernelBatches, shapes_of
from numpyro_gp.starting.priors import CIRCLE

SMOOTH = ("s", "te", "ti")
MEASURES = ("empirical", "uniform", "gaussian")
CURVE, SURFACE, LEVEL_CURVE = 24, {2: 60, 3: 90}, 10
# Surfaces of few rows have as many as rows, up to so many together with each other and all terms; of more rows so many
# that a step costs no more than with this product of rows and the square of inducing inputs.
SURFACES, MOST_TOGETHER, MOST_WORK = 200, 600, 4e7
# More curves than these have so many each: 24 of all would soon be too many for one belief.
MANY_CURVES, CURVE_OF_MANY = 16, 16
# Levels up to which each has as many as a curve.
FEW_LEVELS = 4
# Standard deviations of a column within which inducing inputs let a curve turn.
TURN = 0.5
# A difference that is rounding, as a part.
TIE = 1e-14
TIE_OF_GAPS = 1e-9  # values lie far from zero beside their gaps, as years do
# How far beyond its ends a row may be, in periods: numbers in single precision are so far off.
SLACK_OF_PERIOD = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class KernelData:
    """What kernels of terms need beside their hyper-parameters.

    Attributes
    ----------
    layout : TableLayout
    measures : tuple
        By encoded column: the measure of a number, the frequencies ``(C,)`` of a category.
    periods : dict
        By part: the two ends of a cyclic term, encoded.
    inducing : dict of array (M_c, D)
    time_priors : dict
        By part: priors of the terms of a series.
    """

    layout: TableLayout
    measures: tuple[object, ...]
    periods: dict[str, tuple[float, float]]
    inducing: dict[str, np.ndarray]
    time_priors: dict[str, TimePrior] = dataclasses.field(default_factory=dict)

    def kernels(self, variances: Array, lengthscales: Array) -> KernelBatches:
        """The kernels of all terms, those that are alike as one batch.

        Parameters
        ----------
        variances : array (C,)
            In the order of the terms.
        lengthscales : array (L,)
            In standard deviations of a column; one for each column of each curve and surface.
        """
        parts = self.layout.read_terms
        components = []
        for part in parts:
            term, given, differs = part.term, self.column_data(part), is_difference(part, parts)
            kind = term.kind, term.kernel, bool(term.by), differs, shapes_of(given), len(self.inducing[part.name])
            make = functools.partial(self._form, part)
            components.append(Component(part.name, part.columns, given, count_lengthscales(part), kind, make))
        names = tuple(part.name for part in parts)
        return KernelBatches(names, tuple(batches_of(components, variances, lengthscales)))

    def _form(self, part: ReadTerm, variance: Array, lengthscales: Sequence[Array], given: Sequence[Any]) -> Kernel:
        """The kernel of a term on the columns that it reads, of which it is ``given`` what `column_data` says."""
        term, one = part.term, jnp.ones((), jnp.result_type(variance))
        if term.kind == "linear":
            base: Kernel = ZeroMeanLinear(one, given[0]).on(0)
        elif term.kind == "factor":
            base = column_kernel(one, given[0]).on(0)
        elif term.kind == "re":
            base = CategoryDelta(one).on(0)
            base = base * Linear(one).on(1) if term.by else base
        elif term.kind in TIME:
            base = time_kernel(term.kind, one, lengthscales, given[0]).on(0)
        else:
            columns = range(len(term.columns))
            curves = [column_kernel(one, given[at], term.kernel, lengthscales[at]).on(at) for at in columns]
            levels: Kernel | None = None
            if term.by:
                is_own = not is_difference(part, self.layout.read_terms)
                levels = (CategoryDelta(one) if is_own else column_kernel(one, given[-1])).on(len(columns))
            base = composed(term, curves, levels)
        return variance * base

    def column_data(self, part: ReadTerm) -> list[object]:
        """What the kernel of a term is given of each column: its measure or frequencies; with a period of a circle.

        Trends and cycles average to zero over the points of the rows, or over some of another measure; seasons and
        cyclic terms over points of one period, which is exact but for rounding.
        """
        (measure, *others), kind = [self.measures[at] for at in part.columns], part.term.kind
        is_empirical, shares = isinstance(measure, Empirical), np.arange(CIRCLE) / CIRCLE
        with jax.ensure_compile_time_eval():  # numbers also where a model is traced
            if part.name in self.periods:
                low, high = self.periods[part.name]
                if kind == "season" or not is_empirical:
                    measure = Empirical(jnp.asarray(low + (high - low) * shares))
                return [(measure, high - low), *others]
            if kind in TIME and isinstance(measure, Gaussian):
                from scipy.special import ndtri

                measure = Empirical(float(measure.mean) + float(measure.sd) * ndtri(shares + 0.5 / CIRCLE))
            elif kind in TIME and isinstance(measure, Uniform):
                low, high = float(measure.low), float(measure.high)
                measure = Empirical(low + (high - low) * (shares + 0.5 / CIRCLE))
        return [measure, *others]


def count_lengthscales(part: ReadTerm) -> int:
    """How many lengthscales a term has: one for each column of a curve or surface; two numbers of a term of time."""
    if part.term.kind in TIME:
        return 2
    return len(part.term.columns) if part.term.kind in SMOOTH else 0


def composed(term: Term, curves: Sequence[Any], levels: Any = None) -> Any:
    """Curves of the columns of a term as one, times what its levels say: of kernels, of matrices, of values at a row.

    Of a surface `te` it is ``(1 + k1)(1 + k2) - 1``: both effects and their interaction, which average to zero.
    """
    whole = curves[0]
    for one in curves[1:]:
        whole = whole + one + whole * one if term.kind == "te" else whole * one
    return whole if levels is None else whole * levels


def kernel_data_of(layout: TableLayout, X: np.ndarray, weights: np.ndarray | None, measure: str) -> KernelData:
    """Measures, periods and inducing inputs from the encoded rows of the fit.

    Empirical measures have as many points each, the last ones of weight zero: curves that are alike are one batch.
    """
    result: list[object] = []
    for column, x in zip(layout.columns, X.T, strict=False):
        if column.levels is not None:
            frequencies = np.bincount(x.astype(int), weights, len(column.levels))
            result.append(frequencies / frequencies.sum())
        elif measure == "empirical":
            result.append(Empirical.of(x, weights))
        elif measure == "uniform":
            result.append(Uniform(x.min(), x.max()))
        else:
            mean = np.average(x, weights=weights)
            result.append(Gaussian(mean, np.sqrt(np.average((x - mean) ** 2, weights=weights))))
    most = max((len(one.points) for one in result if isinstance(one, Empirical)), default=0)
    for at, one in enumerate(result):
        if isinstance(one, Empirical) and len(one.points) < most:
            more = most - len(one.points)
            result[at] = Empirical(np.pad(one.points, (0, more), mode="edge"), np.pad(one.weights, (0, more)))
    periods = {p.name: _period(p, layout, X) for p in layout.read_terms if p.term.cyclic or p.term.kind == "season"}
    bare = KernelData(layout, tuple(result), periods, {})
    mass = np.ones(len(X)) if weights is None else weights
    is_surface = {part.name: part.term.kind in ("te", "ti") for part in layout.read_terms}
    inducing = {
        part.name: _inducing_inputs(part, bare, X, mass) for part in layout.read_terms if not is_surface[part.name]
    }
    left = MOST_TOGETHER - 1 - sum(map(len, inducing.values()))
    usual = [p.name for p in layout.read_terms if is_surface[p.name] and p.term.num_inducing is None]
    share = min(SURFACES, left) // max(len(usual), 1)
    for part in layout.read_terms:
        if not is_surface[part.name]:
            continue
        size, columns = part.term.num_inducing, list(part.columns)
        if size is None:  # of few rows up to its share, of many its least number
            size = max(SURFACE[len(columns)], min(share, int((MOST_WORK / mass.sum()) ** 0.5)))
        centres = _k_means(X[:, columns], size)
        inducing[part.name] = np.zeros((len(centres), X.shape[1]))
        inducing[part.name][:, columns] = centres
    return dataclasses.replace(bare, inducing={part.name: inducing[part.name] for part in layout.read_terms})


def mean_over(measure: object) -> float:
    """The mean of one column, in NumPy."""
    if isinstance(measure, Empirical):
        return float(np.asarray(measure.points) @ np.asarray(measure.weights))
    if isinstance(measure, Gaussian):
        return float(measure.mean)
    assert isinstance(measure, Uniform)
    return 0.5 * float(measure.low + measure.high)


def _period(part: ReadTerm, layout: TableLayout, X: np.ndarray) -> tuple[float, float]:
    """Where the ends of a cyclic term lie, encoded."""
    at = part.columns[0]
    column, given = layout.columns[at], part.term.cyclic
    if part.term.period is not None:
        start = float(X[:, at].min())
        return start, start + part.term.period / column.scale
    low, high = (column.low, column.high) if isinstance(given, bool) else given
    if isinstance(given, bool):
        raw = column.decode(X[:, at])
        rounding = 64 * np.finfo(float).eps * max(abs(low), abs(high))
        whole = np.round(raw)
        is_whole = bool(np.all(np.abs(raw - whole) <= rounding)) and np.ptp(whole) < 2**53
        if is_whole:  # the last is a step long: of 0, 10, ... 350 ten
            high += float(np.gcd.reduce(np.diff(np.unique(whole)).astype(np.int64)))
    least = SLACK_OF_PERIOD * (high - low)
    if column.low < low - least or column.high > high + least:
        cure = "Give ends that hold all rows: cyclic=(0, 24)."
        got = f"{(low, high)} for {column.low} to {column.high}"
        fail(f"cyclic of {part.name}", "the ends of the column", got, cure)
    return (low - column.shift) / column.scale, (high - column.shift) / column.scale


def _inducing_inputs(part: ReadTerm, kernel_data: KernelData, X: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Inducing inputs ``(M, D)`` of a term, zero in the columns that it does not read.

    They depend on the different values and on how many rows each has by their weights ``mass (N,)``: on no order of
    rows, and a row of weight two is two rows.
    """
    term, own, columns = part.term, part.columns, kernel_data.layout.columns
    codes = [np.arange(len(columns[at].levels or ())) for at in own]
    if term.kind == "linear":
        rows = np.full((1, 1), 1 + mean_over(kernel_data.measures[own[0]]))
    elif term.kind == "factor":
        rows = _but_one(codes[0], X[:, own[0]], mass)[:, None]
    elif term.kind == "re":
        rows = np.stack([codes[0], np.ones(len(codes[0]))], axis=1)[:, : len(own)]
    elif term.kind in TIME:
        ends = kernel_data.periods.get(part.name)
        rows = time_inducing(term, X[:, own[0]], None if ends is None else ends[1] - ends[0])[:, None]
    elif term.kind == "s":
        has_many = bool(term.by) and len(codes[-1]) > FEW_LEVELS
        curves = sum(one.term.kind == "s" and not one.term.by for one in kernel_data.layout.read_terms)
        usual = LEVEL_CURVE if has_many else CURVE if curves <= MANY_CURVES else CURVE_OF_MANY
        x, size = X[:, own[0]], term.num_inducing or usual
        values = np.unique(x)
        if len(values) <= size:
            # All but one of few; the largest gaps are filled until there are as many as of any column: curves that are
            # alike are one batch.
            chosen = list(_but_one(values, x, mass))
            while len(chosen) < size and len(values) > 1:
                both = np.sort(np.concatenate([values, chosen]))
                widest = _first_largest(np.diff(both), TIE_OF_GAPS)
                chosen.append(0.5 * (both[widest] + both[widest + 1]))
            rows = np.asarray(chosen)[:, None]
        elif part.name in kernel_data.periods:
            low, high = kernel_data.periods[part.name]
            rows = (low + (high - low) * np.arange(size) / size)[:, None]
        else:
            rows = _pivots(x, mass, size)[:, None]
        if term.by:
            is_own = not is_difference(part, kernel_data.layout.read_terms)
            levels = codes[-1] if is_own else _but_one(codes[-1], X[:, own[-1]], mass)
            rows = grid_points([rows[:, 0], levels])
    points = np.zeros((len(rows), len(columns)))
    points[:, own] = rows
    return points


def _but_one(codes: np.ndarray, x: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """All but the most frequent: a function that averages to zero is determined by the others."""
    return np.delete(codes, _first_largest(np.array([mass[x == code].sum() for code in codes])))


def _first_largest(values: np.ndarray, tie: float = TIE) -> int:
    """The place of the first of those that are largest to rounding: weights and rows round sums differently."""
    most = values.max()
    return int(np.argmax(values >= most - tie * abs(most)))


def _pivots(x: np.ndarray, mass: np.ndarray, size: int) -> np.ndarray:
    """Values of a column, each where those before leave open most of a curve, times the root of the weight of its rows.

    The curve is a Matern 5/2 process with a lengthscale of half a standard deviation: a pivoted Cholesky factorisation.
    """
    values, place = np.unique(x, return_inverse=True)
    enough = max(1000, size)  # to choose from
    some = np.unique(np.linspace(0, len(values) - 1, min(enough, len(values))).astype(int))
    values, weight = values[some], np.sqrt(np.bincount(place, mass)[some])
    left, columns = np.ones(len(values)), np.zeros((size, len(values)))
    chosen: list[int] = []
    for at in range(size):
        pivot = _first_largest(left * weight)
        kappa = 1 + deviations(Matern52, np.abs(values - values[pivot]), TURN, is_sloped=False).value
        column = kappa - columns[:at, pivot] @ columns[:at]
        columns[at] = column / np.sqrt(max(column[pivot], 1e-12))  # of values that are almost one nothing is left
        left = np.maximum(left - columns[at] ** 2, 0)
        chosen.append(pivot)
        left[chosen] = -1
    return np.sort(values[chosen])


def _k_means(X: np.ndarray, size: int) -> np.ndarray:
    """Centres of k-means of the different rows, of at most 5000 of them."""
    ordered, rng = X[np.lexsort(X.T[::-1])], np.random.default_rng(0)
    rows: np.ndarray = ordered[np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))]
    if len(rows) <= size:
        return rows
    rows = rows[rng.permutation(len(rows))[:5000]]
    centres = rows[:size]
    for _ in range(20):
        nearest = np.argmin((centres**2).sum(1) - 2 * rows @ centres.T, axis=1)
        counts = np.bincount(nearest, minlength=size)
        sums = np.stack([np.bincount(nearest, column, size) for column in rows.T], axis=1)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    return centres
