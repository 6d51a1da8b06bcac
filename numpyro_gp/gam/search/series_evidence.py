"""The mode of the hyper-parameters of a series, by the evidence of its rows themselves.

A walk needs an inducing input for each row. With three such terms a bound would have factors three times as large as
the covariance of the rows; so, where noise is Gaussian, the mode is that of the exact evidence, whose gradient needs
one factor of the rows: of the last ones where they are many. There is more than one mode: which part wanders, and how
long a cycle is. So the search starts from the best of many draws of the prior. And scales that may vanish have no
normal posterior, but a plateau and a cliff: mean and covariance are those of importance-weighted draws, not of the
curvature alone.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from numpyro_gp.gam.model.column_kernels import (
    LEAST_TIMES,
    OF_CYCLE,
    Sloped,
    split_kernel,
    time_inducing,
    time_matrices,
    wave_at,
    without_slopes,
)
from numpyro_gp.gam.model.features import kernel_of, row_chunks
from numpyro_gp.gam.model.model import BoundArguments, Model, vector_layout_of
from numpyro_gp.gam.model.term_kernels import count_lengthscales
from numpyro_gp.gam.search.bound import FLAT, Bound, BoundParts, Data, Evaluation
from numpyro_gp.gam.search.bound_formulas import RowPseudoData
from numpyro_gp.gam.search.modes import Collapsed, collapsed, without_walls
from numpyro_gp.gam.table.layout import ReadTerm
from numpyro_gp.gam.table.terms import TIME

# Different rows up to which the evidence is exact: an evaluation has a factor of their covariance.
MOST_ROWS = 1000
# Nats by which a bound is below the evidence where it may be asked in its place.
TIGHT = 1.0
# Rows that a search starts with; draws of the prior that are scored, those that take some steps, how many, and those
# that go on to the end with all rows: the best of all rows, and then of few.
FEW_ROWS, DRAWS, SOME, STEPS, BEST = 300, 64, 3, 12, 2
# Steps of time that a cycle is remembered for where a search starts, its period in memories, and by how much less a
# trend wanders there.
STEPS_OF_MEMORY, TURNS, LESS = (3, 12), 4, 2.0
# Memories and periods of a cycle that are tried at a mode, by those there.
MEMORIES, PERIODS = (1 / 3, 1, 3), (1 / 2.2, 1 / 1.5, 1, 1.5, 2.2)
# No noise is below this many standard deviations of the response: of a line without any there is no mode, and the
# covariance of the rows has no factor.
LEAST_NOISE_OF_SERIES = 1e-5
# Inducing inputs of a cycle for each memory, and times of a season; phases of a season whose wiggle is one; the part of
# the noise that inputs of a trend may leave open, and up to how many of all terms the others have more.
PER_MEMORY, PER_CIRCLE, OPEN, TOGETHER = 3, 8, 0.01, 700
# Draws whose weights give mean and covariance; of a bound of data that are not Gaussian, up to so many rows.
WEIGHTED, WEIGHTED_ROWS = 100, 200


def has_evidence(model: Model) -> bool:
    """Whether the exact evidence of rows is asked for the mode: of a series with Gaussian noise."""
    return bool(model.kernel_data.time_priors) and vector_layout_of(model).is_exact


def of_series(model: Model, most_steps: int, tables: bool = True) -> Collapsed:
    """Mean and covariance of the hyper-parameters of a series, and the pseudo-data of its rows there.

    Of counts and the like the bound is asked, from the priors and from short memories; of few rows draws are weighted.
    Of many rows the last ones are asked. Where inducing inputs follow all rows the bound is asked from there, of all of
    them; else it would take what wanders between inducing inputs for noise.
    """
    parts = BoundParts(model)
    time = next(part.columns[0] for part in model.layout.read_terms if part.name in model.kernel_data.time_priors)
    if not has_evidence(model):
        found = collapsed(model, most_steps, tables, short_memories(parts, model.rows.X[:, time]))
        if len(model.rows.y) > WEIGHTED_ROWS:  # which say what the scales are, and of which a hundred bounds take long
            return found
        bound = Bound(parts, Data.of(model))
        bound.fit_pseudo_data(found.location)
        location, spread = weighted(bound, found.location, found.root)
        return found._replace(location=location, root=spread)
    rows = merged(Data.of(model))
    count, asked = len(rows.data.y), rows.last(time, MOST_ROWS)
    evidence, few = (SeriesEvidence(parts, one) for one in (asked, rows.last(time, FEW_ROWS)))
    starts = few.starts(time, np.random.default_rng(0))
    first: Any = min(starts, key=evidence.value)  # few rows hardly tell a short memory from a walk
    starts = [first, *(one for one in starts if one is not first)][:BEST]
    free, is_flat = evidence.best_of(starts, most_steps)
    losses = evidence.losses[:]
    mean, root = weighted(evidence, free, evidence.covariance_root(free))
    inducing = inducing_at(parts, mean)
    followed = dataclasses.replace(model, kernel_data=dataclasses.replace(model.kernel_data, inducing=inducing))
    if len(asked.data.y) == count:
        shift, precision, _ = series_pseudo_data(BoundParts(followed), rows.data, mean)
        return Collapsed(mean, root, shift, precision, without_walls(losses), is_flat, model=followed)
    followings = []
    for tried in (followed, model):  # the first of those that follow all rows at this mode and at that of all rows
        of_all = parts if tried is model else BoundParts(tried)
        shift, precision, gap = series_pseudo_data(of_all, rows.data, mean)
        followings.append((gap, shift, precision, tried))
        if gap < TIGHT:
            found = collapsed(tried, most_steps, tables, [free])
            location, spread = weighted(Bound(of_all, Data.of(tried)), found.location, found.root)
            shift, precision, gap = series_pseudo_data(of_all, rows.data, location)
            if gap < TIGHT or tried is model:
                return found._replace(location=location, root=spread, shift=shift, precision=precision, model=tried)
    _, shift, precision, tried = min(followings, key=lambda one: one[0])
    words = f"Scales, lengthscales and noise are those of the last {len(asked.data.y)} of {count} different rows"
    words += f": {max(tried.sizes)} inducing inputs of a term do not follow all of them"
    return Collapsed(mean, root, shift, precision, without_walls(losses), is_flat, (words,), tried)


def inducing_at(parts: BoundParts, free: np.ndarray) -> dict[str, np.ndarray]:
    """Inducing inputs of all terms: fewer of a trend that hardly wanders, more of a wiggly season or a short memory."""
    values, model, result = parts.evaluator(free).values, parts.model, dict(parts.model.kernel_data.inducing)
    spare = max(TOGETHER - sum(model.sizes), 0)
    of_time = [(at, p) for at, p in enumerate(model.layout.read_terms) if p.term.kind in TIME]
    order = ("trend", "cycle", "season").index
    for at, part in sorted(of_time, key=lambda one: order(one[1].term.kind)):  # what trends leave is for others
        x, first, before = model.rows.X[:, part.columns[0]], float(values.lengths[at, 0]), len(result[part.name])
        if part.term.num_inducing is not None:
            continue
        phases, period = None, None
        if part.term.kind == "trend":  # a walk leaves a sixth of its change over a gap open
            needed, most = np.ptp(x) * (values.scales[at] * first / values.noise) ** 2 / (6 * OPEN), before
        elif part.term.kind == "season":
            low, high = model.kernel_data.periods[part.name]
            phases, period = math.ceil(PER_CIRCLE / first), high - low
            times = max(LEAST_TIMES, PER_MEMORY * np.ptp(x) / values.lengths[at, 1])
            needed, most = phases * min(times, np.ptp(x) / period), before + spare
        else:
            needed, most = PER_MEMORY * np.ptp(x) / first, before + spare
        size = int(np.clip(needed, min(OF_CYCLE, before), most))
        points = time_inducing(dataclasses.replace(part.term, num_inducing=size), x, period, phases)
        spare += before - len(points)
        result[part.name] = np.zeros((len(points), model.rows.X.shape[1]))
        result[part.name][:, part.columns[0]] = points
    return result


class Merged(NamedTuple):
    """Different rows ``(N,)`` with the means of their data, and the squares around each."""

    data: Data
    within: np.ndarray

    def last(self, time: int, most: int) -> "Merged":
        """The last ones by a column of time."""
        rows: Any = np.sort(np.argsort(self.data.X[:, time], kind="stable")[-most:])
        return Merged(Data(*(value[rows] for value in self.data[:4])), self.within[rows])


def merged(data: Data) -> Merged:
    """Rows that are equal as one, whose weight is that of all: repeated rows and weights are the same."""
    X, first, place = np.unique(data.X, axis=0, return_index=True, return_inverse=True)
    place = place.reshape(-1)
    weights = np.bincount(place, data.weights)
    y = np.bincount(place, data.weights * data.y) / weights
    within = np.bincount(place, data.weights * (data.y - y[place]) ** 2)
    return Merged(Data(X, y, weights, data.offset[first]), within)


def series_pseudo_data(parts: BoundParts, data: Data, free: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """What rows say of the inducing values ``(M,), (M, M)``, and by how many nats a bound is below the evidence.

    What inducing values leave open of a row is noise that it has alone.
    """
    values, M = parts.evaluator(free).values, int(parts.sizes.sum())
    noise = float(values.noise) ** 2 + (LEAST_NOISE_OF_SERIES * float(parts.model.start.size)) ** 2
    scale, gram, projected, gap = np.repeat(values.scales, parts.sizes)[:, None], np.zeros((M, M)), np.zeros(M), 0.0
    for rows, row_features in row_chunks(parts.model, data.X):
        features, inverse = row_features(values.lengths)
        A, weights = scale * features.values, data.weights[rows]
        left = np.maximum(values.scales**2 @ features.variances - np.sum(A**2, axis=0), 0)
        rate = 1 / (noise / weights + left)
        half = A * np.sqrt(rate)
        gram += half @ half.T
        projected += A @ (rate * (data.y[rows] - data.offset[rows]))
        gap += 0.5 * float(weights @ left) / noise
    whitening = inverse / scale
    precision = whitening.T @ gram @ whitening
    return whitening.T @ projected, 0.5 * (precision + precision.T), gap


class SeriesEvidence(Bound):
    """The negative log evidence of rows and its gradient at hyper-parameters, less their log density."""

    def __init__(self, parts: BoundParts, rows: Merged) -> None:
        self.parts, self.tables, self.is_exact, data = parts, None, True, rows.data
        self.data, self.within = data, float(rows.within.sum())
        self.others = float(data.weights.sum()) - len(data.y)
        self.least_variance = (LEAST_NOISE_OF_SERIES * float(parts.model.start.size)) ** 2
        self.start, self.losses, self.last, self.mode = parts.evaluator.start, [], None, None
        self.pseudo_data = RowPseudoData(np.zeros(0), np.zeros(0))  # rows say exactly what they say
        self.kernels = [at_rows(parts.model, part, data.X) for part in parts.model.layout.read_terms]

    def _factored(
        self, values: BoundArguments[np.ndarray], is_clean: bool = False
    ) -> tuple[list[Sloped], np.ndarray, np.ndarray, float]:
        """Numbers of the kernels, the factor of the covariance ``C`` of the rows, ``C^-1 (y - offset)`` and the loss.

        The factor has zeros above it where it is clean.
        """
        weights = self.data.weights
        with np.errstate(over="ignore", invalid="ignore"):  # far from the mode, from where a step comes back
            numbers = [kernel.numbers(values.lengths[at]) for at, kernel in enumerate(self.kernels)]
            C = np.full((len(self.data.y),) * 2, float(values.scales[-1]) ** 2)
            for scale, kernel, one in zip(values.scales, self.kernels, numbers, strict=False):
                C += kernel.matrix(float(scale) ** 2 * one.value)
            variance = float(values.noise) ** 2 + self.least_variance
            C[np.diag_indices(len(C))] += variance / weights
            factor, failed = dpotrf(C.T, lower=1, clean=is_clean, overwrite_a=1)
            if failed or not np.isfinite(factor[-1, -1]):
                raise np.linalg.LinAlgError("the covariance of the rows must be positive definite")
            rest = self.data.y - self.data.offset
            alpha = dpotrs(factor, rest, lower=1)[0]
            loss = float(np.log(np.diagonal(factor)).sum() + 0.5 * rest @ alpha + 0.5 * len(rest) * np.log(2 * np.pi))
            # A row of weight w is as w rows: the density of their mean is in C, and this is what is left of all.
            loss += 0.5 * (self.others * np.log(2 * np.pi * variance) + np.log(weights).sum() + self.within / variance)
        return numbers, factor, alpha, float(loss - values.log_density)

    def _loss(self, free: np.ndarray) -> float:  # a third of the work
        return self._factored(self.parts.evaluator(free).values)[-1]

    def _evaluated(self, free: np.ndarray) -> Evaluation:
        values, slopes = self.parts.evaluator(free)
        numbers, factor, alpha, loss = self._factored(values, is_clean=True)
        # Half of C^-1 - alpha alpha^T, beside symmetric matrices: LAPACK finds the lower half of the inverse.
        half = dpotri(factor, lower=1, overwrite_c=1)[0].T
        diagonal = 0.5 * (np.diagonal(half) - alpha**2)
        half[np.diag_indices(len(half))] *= 0.5
        half -= np.outer(0.5 * alpha, alpha)
        of_scales, of_lengths = np.zeros(len(values.scales)), np.zeros((len(values.scales), values.lengths.shape[1]))
        for at, (scale, kernel, one) in enumerate(zip(values.scales, self.kernels, numbers, strict=False)):
            of_numbers = kernel.slopes(half)
            of_scales[at] = 2 * scale * float(of_numbers @ one.value)
            of_lengths[at, : len(one.slopes)] = scale**2 * (one.slopes @ of_numbers)
        variance = float(values.noise) ** 2 + self.least_variance
        of_noise = 2 * values.noise * float(diagonal @ (1 / self.data.weights))
        of_noise += (self.others - self.within / variance) * values.noise / variance
        bars = [of_scales, of_lengths.ravel(), np.array([of_noise, -1.0])]
        return Evaluation(self.pseudo_data, free, loss, np.concatenate(bars) @ slopes)

    def starts(self, time: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Near modes that draws of the prior, and short memories, lead to: where the search with all rows begins."""
        spread = self.parts.evaluator.spread
        draws = self.start + spread * rng.normal(size=(DRAWS, len(spread)))
        draws[0] = self.start
        scores = np.array([self.value(one) for one in draws])
        tried = [*draws[np.argsort(scores)[:SOME]], *short_memories(self.parts, self.data.X[:, time])]
        near = [one + spread * self.descended(one, np.diag(spread), maxiter=STEPS).x for one in tried]
        return sorted(near, key=self.value)

    def best_of(self, starts: list[np.ndarray], most_steps: int) -> tuple[np.ndarray, bool]:
        """The best mode of those uphill of some starts, and whether the evidence rises no more there.

        Of each cycle other periods and memories are tried from there: the evidence has a mode for each wave of a few.
        """
        spread, best = self.parts.evaluator.spread, (np.inf, self.start, False, self.losses)
        while starts:
            ends = []
            for one in starts:
                self.losses = []  # each has as many steps as are asked for
                free, is_flat = self.find_mode(one, most_steps, np.diag(spread))
                ends.append((self.value(free), free, is_flat, self.losses))
            end = min(ends, key=lambda end: end[0])
            is_better = not end[0] > best[0] - FLAT
            best = end if is_better else best
            others = []
            for kind, places in lengths_of_time(self.parts) if is_better else ():
                for move in itertools.product(np.log(MEMORIES), np.log(PERIODS)) if kind == "cycle" else ():
                    others.append(best[1].copy())
                    others[-1][places] += move
            tried = [(self.value(one), one) for one in others]
            starts = [one for loss, one in sorted(tried, key=lambda one: one[0])[:1] if loss < best[0] - FLAT]
        _, free, is_flat, self.losses = best
        return free, is_flat


def lengths_of_time(parts: BoundParts) -> list[tuple[str, list[int]]]:
    """Terms of a series by their kinds, with the places of their two parameters among all."""
    start = parts.evaluator.start
    values, slopes = parts.evaluator(start)
    C, P = values.lengths.shape
    moved = slopes[C : C + C * P].reshape(C, P, len(start)) != 0
    kinds = [part.term.kind for part in parts.model.layout.read_terms]
    pairs = zip(kinds, moved, strict=False)
    return [(kind, [int(np.argmax(one)) for one in own[:2]]) for kind, own in pairs if kind in TIME]


def short_memories(parts: BoundParts, times: np.ndarray) -> list[np.ndarray]:
    """Cycles that are remembered for some steps, beside trends that wander less: where a search may start.

    A series that returns to its mean within a few of its steps looks like a walk to what remembers for longer.
    """
    gap, terms, result = np.median(np.diff(np.unique(times))), lengths_of_time(parts), []
    for steps in STEPS_OF_MEMORY if any(kind == "cycle" for kind, _ in terms) else ():
        free = parts.evaluator.start.copy()
        for kind, places in terms:
            if kind == "cycle":
                memory, period = places
                free[memory], free[period] = np.log(steps * gap), max(free[period], np.log(TURNS * steps * gap))
            elif kind == "trend":
                free[places] -= LESS
        result.append(free)
    return result


def weighted(bound: Bound, free: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and lower root of the covariance of the posterior, by weighted draws of the normal at its mode.

    Few draws carry the weight where the normal is far off: the curvature then has its share, as so many draws as
    there are hyper-parameters.
    """
    noise = np.random.default_rng(1).normal(size=(WEIGHTED, len(free)))
    draws = free + noise @ root.T
    log = 0.5 * np.sum(noise**2, axis=1) - np.array([bound.value(one) for one in draws])
    weights = np.exp(log - log.max())
    weights = np.minimum(weights, weights.mean() * np.sqrt(WEIGHTED))
    weights /= weights.sum()
    effective = 1 / float(weights @ weights)
    share = effective / (effective + len(free))
    mean = share * (weights @ draws) + (1 - share) * free
    away = draws - mean
    covariance = share * (away.T * weights) @ away + (1 - share) * root @ root.T
    return mean, np.linalg.cholesky(covariance)


# --------------------------------------------------------------------------------------
# Kernels of terms at all rows. A search asks for them a few hundred times, so each is a line in some numbers, which
# alone follow from its parameters: the slope of the evidence in them is one pass over a matrix. Of what depends on gaps
# of time alone they are its values at different gaps: of rows that are evenly spaced as many as rows.


# Gaps that differ by less, as a part of the longest one, are rounding.
TIE_OF_TIMES = 1e-12


class KernelAtRows(NamedTuple):
    """The kernel of a term of unit variance between ``K`` rows and all ``(K, N)``, as a line in ``J`` numbers.

    Attributes
    ----------
    numbers : callable
        Of the lengthscales ``(P,)``: the numbers ``(J,)``, with their slopes ``(P, J)``.
    matrix : callable
        Of numbers: the matrix.
    slopes : callable
        Of ``G (N, N)``: the slopes ``(J,)`` of ``sum_ij G_ij K_ij``. K is symmetric, and G need not be.
    diagonal : callable
        Of numbers: the variance at all rows ``(N,)``.
    """

    numbers: Callable[[np.ndarray], Sloped]
    matrix: Callable[[np.ndarray], np.ndarray]
    slopes: Callable[[np.ndarray], np.ndarray]
    diagonal: Callable[[np.ndarray], np.ndarray]


def at_rows(model: Model, part: ReadTerm, X: np.ndarray, first: int | None = None) -> KernelAtRows:
    """The kernel of a term between the ``first`` rows and all; between all by itself."""
    read, count, size = X[:, list(part.columns)], count_lengthscales(part), len(X)
    first = size if first is None else first
    if part.term.kind in ("season", "cycle"):
        return _of_gaps(part.term.kind, model.kernel_data.column_data(part)[0], read[:, 0], first)
    rows, place = np.unique(read, axis=0, return_inverse=True)
    place, end = place.reshape(-1), first * size
    kernel = kernel_of(model, part, rows, rows[:0])
    sides = np.append(np.repeat(place[:first], size), place), np.append(np.tile(place, first), place)

    def gram(lengths: np.ndarray) -> Sloped:
        """The matrix row by row, and behind it the diagonal."""
        found = split_kernel(kernel(lengths[:count]))[0]
        value, slopes = (leaf[..., *sides] for leaf in (found.value, found.slopes))
        return Sloped(value, slopes)

    if count and part.term.kind != "trend":
        return KernelAtRows(
            gram,
            lambda own: own[:end].reshape(first, size),
            lambda G: np.append(G.ravel(), np.zeros(size)),
            lambda own: own[end:],
        )
    if count:  # a line, a walk, a smooth walk
        every = np.stack([gram(np.zeros(2)).value, *gram(np.full(2, 0.5)).slopes])
    else:
        every = gram(np.zeros(0)).value[None]

    def numbers(lengths: np.ndarray) -> Sloped:
        if not count:
            return without_slopes(np.ones(1), 0)
        level, slope = map(float, lengths[:2])
        return Sloped(np.array([1, level**2, slope**2]), np.array([[0, 2 * level, 0], [0, 0, 2 * slope]]))

    return KernelAtRows(
        numbers,
        lambda own: (own @ every[:, :end]).reshape(first, size),
        lambda G: every[:, :end] @ G.ravel(),
        lambda own: own @ every[:, end:],
    )


def _of_gaps(kind: str, given: Any, x: np.ndarray, first: int) -> KernelAtRows:
    """Of a season, and of a cycle, whose average over the points of a measure is taken off."""
    points, w = (
        (x[:0], x[:0]) if kind == "season" else (np.asarray(given.points, float), np.asarray(given.weights, float))
    )
    points, w = points[w > 0], w[w > 0]
    size, Q = len(x), len(points)
    some, of_some = np.unique(np.append(x[:first], points), return_inverse=True)
    times, of_all = np.unique(np.append(x, points), return_inverse=True)
    every, place = np.unique(np.abs(some[:, None] - times), return_inverse=True)
    is_next = np.diff(every, prepend=-1.0) > TIE_OF_TIMES * every[-1]
    gaps, place = every[is_next], (np.cumsum(is_next) - 1)[place.reshape(len(some), -1)]
    count, rows, all_rows = len(gaps), of_some.reshape(-1), of_all.reshape(-1)
    between_rows = place[np.ix_(rows[:first], all_rows[:size])].ravel()

    def matrix(numbers: np.ndarray) -> np.ndarray:
        return np.take(numbers, between_rows, mode="clip").reshape(first, size)

    def slopes(G: np.ndarray) -> np.ndarray:
        return np.bincount(between_rows, G.ravel(), count)

    if kind == "season":
        whole = time_matrices("season", given, x[:1], x[0] + gaps)

        def season(lengths: np.ndarray) -> Sloped:
            cross = split_kernel(whole(lengths[:2]))[1]
            return Sloped(cross.value[0], cross.slopes[:, 0])

        return KernelAtRows(season, matrix, slopes, lambda own: np.full(size, own[0]))
    from scipy.sparse import csr_array

    to_points, ends = place[np.ix_(rows[first:], all_rows[:size])].T.ravel(), np.arange(0, size * Q + 1, Q)
    averages = csr_array((np.tile(w, size), to_points, ends), shape=(size, count))  # at each row, over the points
    average = np.bincount(place[np.ix_(rows[first:], all_rows[size:])].ravel(), np.outer(w, w).ravel(), count)

    def centred(numbers: np.ndarray) -> np.ndarray:
        a, c = averages @ numbers, float(average @ numbers)
        found = matrix(numbers)
        found -= (a[:first] - c)[:, None]
        found -= a
        return found

    def of_centred(G: np.ndarray) -> np.ndarray:
        row = G.sum(axis=0) + G.sum(axis=1)
        return slopes(G) - averages.T @ row + 0.5 * row.sum() * average

    return KernelAtRows(
        lambda lengths: wave_at(gaps, lengths[:2]),
        centred,
        of_centred,
        lambda own: own[0] - 2 * (averages @ own) + average @ own,
    )
