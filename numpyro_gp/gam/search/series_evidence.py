"""The mode of the hyper-parameters of a series, by the evidence of its rows themselves.

A walk needs an inducing input for each row. With three such terms a bound would have factors three times as large as
the covariance of the rows; so, where noise is Gaussian, the mode is that of the exact evidence, whose gradient needs
one factor of the rows: of the last ones where they are many. There is more than one mode: which part wanders, and how
long a cycle is. So the search starts from the best of many draws of the prior. And scales that may vanish have no
normal posterior, but a plateau and a cliff: mean and covariance are those of importance-weighted draws, not of the
curvature alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from numpyro_gp.gam.model.column_kernels import Sloped, split_kernel
from numpyro_gp.gam.model.features import kernel_of, row_chunks
from numpyro_gp.gam.model.model import Model, vector_layout_of
from numpyro_gp.gam.model.term_kernels import count_lengthscales
from numpyro_gp.gam.search.bound import Bound, BoundParts, Data, Evaluation
from numpyro_gp.gam.search.bound_formulas import RowPseudoData, inverse_of
from numpyro_gp.gam.search.modes import Collapsed, collapsed, without_walls
from numpyro_gp.gam.table.layout import ReadTerm

# Different rows up to which the evidence is exact: one evaluation takes some 0.3 s there.
MOST_ROWS = 1000
# Nats by which a bound is below the evidence where it may be asked in its place.
TIGHT = 1.0
# Draws of the prior that are scored, those that take some steps, how many, and those that go on to the end.
DRAWS, SOME, STEPS, BEST = 64, 6, 12, 2
# No noise is below this many standard deviations of the response: of a line without any there is no mode, and the
# covariance of the rows has no factor.
LEAST_NOISE = 1e-5
# Draws whose weights give mean and covariance.
WEIGHTED = 100


def has_evidence(model: Model) -> bool:
    """Whether the exact evidence of rows is asked for the mode: of a series with Gaussian noise."""
    return bool(model.kernel_data.time_priors) and vector_layout_of(model).is_exact


def of_series(model: Model, most_steps: int, tables: bool = True) -> Collapsed:
    """Mean and covariance of the hyper-parameters of a series, and the pseudo-data of its rows there.

    Of many rows the last ones are asked. Where inducing inputs follow all rows the bound is asked from there, of all of
    them; else it would take what wanders between inducing inputs for noise.
    """
    rows, parts = merged(Data.of(model)), BoundParts(model)
    count = len(rows.data.y)
    time = next(part.columns[0] for part in model.layout.read_terms if part.name in model.kernel_data.time_priors)
    last: Any = np.sort(np.argsort(rows.data.X[:, time], kind="stable")[-MOST_ROWS:])
    asked = rows if len(last) == count else merged(Data(*(value[last] for value in rows.data[:4])))
    evidence = SeriesEvidence(parts, asked)
    free, is_flat = evidence.search(most_steps, np.random.default_rng(0))
    losses = evidence.losses[:]
    mean, root = weighted(evidence, free, evidence.covariance_root(free))
    pseudo_data = series_pseudo_data(parts, rows.data, mean)
    if len(last) == count:
        return Collapsed(mean, root, pseudo_data.shift, pseudo_data.precision, without_walls(losses), is_flat)
    if pseudo_data.gap < TIGHT:
        found = collapsed(model, most_steps, tables, free)
        mean, root = weighted(Bound(parts, Data.of(model)), found.location, found.root)
        pseudo_data = series_pseudo_data(parts, rows.data, mean)
        return found._replace(location=mean, root=root, shift=pseudo_data.shift, precision=pseudo_data.precision)
    words = f"Scales, lengthscales and noise are those of the last {len(last)} of {count} different rows"
    words += f": {max(parts.sizes)} inducing inputs of a term do not follow all of them"
    return Collapsed(mean, root, pseudo_data.shift, pseudo_data.precision, without_walls(losses), is_flat, (words,))


class Merged(NamedTuple):
    """Different rows with the means of their data, how many others they stand for, and squares around the means."""

    data: Data
    others: float
    within: float


def merged(data: Data) -> Merged:
    """Rows that are equal as one, whose weight is that of all: repeated rows and weights are the same."""
    X, first, place = np.unique(data.X, axis=0, return_index=True, return_inverse=True)
    place = place.reshape(-1)
    weights = np.bincount(place, data.weights)
    y = np.bincount(place, data.weights * data.y) / weights
    others = float(np.sum(data.weights) - len(weights))
    return Merged(Data(X, y, weights, data.offset[first]), others, float(data.weights @ (data.y - y[place]) ** 2))


class SeriesPseudoData(NamedTuple):
    """Pseudo-data of all rows ``(M,), (M, M)``, and by how many nats a bound is below the evidence."""

    shift: np.ndarray
    precision: np.ndarray
    gap: float


def series_pseudo_data(parts: BoundParts, data: Data, free: np.ndarray) -> SeriesPseudoData:
    """What rows say of the inducing values; what these leave open of a row is noise that it has alone."""
    values, M = parts.evaluator(free).values, int(parts.sizes.sum())
    noise = float(values.noise) ** 2 + (LEAST_NOISE * float(parts.model.start.size)) ** 2
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
    return SeriesPseudoData(whitening.T @ projected, 0.5 * (precision + precision.T), gap)


class SeriesEvidence(Bound):
    """The negative log evidence of rows and its gradient at hyper-parameters, less their log density."""

    def __init__(self, parts: BoundParts, rows: Merged) -> None:
        self.parts, self.tables, self.is_exact = parts, None, True
        self.data, self.others, self.within = data, _, _ = rows
        self.least_variance = (LEAST_NOISE * float(parts.model.start.size)) ** 2
        self.start, self.losses, self.last, self.mode = parts.evaluator.start, [], None, None
        self.pseudo_data = RowPseudoData(np.zeros(0), np.zeros(0))  # rows say exactly what they say
        self.kernels = [_at_rows(parts.model, part, data.X) for part in parts.model.layout.read_terms]

    def _evaluated(self, free: np.ndarray) -> Evaluation:
        point = self.parts.evaluator(free)
        values = point.values
        with np.errstate(over="ignore", invalid="ignore"):  # far from the mode, from where a step comes back
            result = [kernel(values.lengths[at]) for at, kernel in enumerate(self.kernels)]
            # The loss, and half of C^-1 - alpha alpha^T with C the covariance of the rows.
            C = np.full((len(self.data.y),) * 2, float(values.scales[-1]) ** 2)
            for scale, one in zip(values.scales, result, strict=False):
                C += float(scale) ** 2 * one.value
            variance, weights = float(values.noise) ** 2 + self.least_variance, self.data.weights
            C[np.diag_indices(len(C))] += variance / weights
            inverse, half_log = inverse_of(C)
            rest = self.data.y - self.data.offset
            alpha = inverse @ rest
            loss = half_log + 0.5 * float(rest @ alpha) + 0.5 * len(rest) * np.log(2 * np.pi)
            # A row of weight w is as w rows: the density of their mean is in C, and this is what is left of all.
            loss += 0.5 * (self.others * np.log(2 * np.pi * variance) + np.log(weights).sum() + self.within / variance)
            half = 0.5 * (inverse - np.outer(alpha, alpha))
        scales = np.append(values.scales[:-1], 0.0)
        of_scales = [2 * s * float(np.vdot(half, one.value)) for s, one in zip(scales, result, strict=False)]
        of_lengths = np.zeros((len(scales), values.lengths.shape[1]))
        for at, one in enumerate(result):
            for slot, slope in enumerate(one.slopes):
                of_lengths[at, slot] = scales[at] ** 2 * float(np.vdot(half, slope))
        of_noise = 2 * values.noise * float(np.diagonal(half) @ (1 / self.data.weights))
        of_noise += (self.others - self.within / variance) * values.noise / variance
        bars = [np.append(of_scales, 0.0), of_lengths.ravel(), np.array([of_noise, -1.0])]
        loss = float(loss - values.log_density)
        return Evaluation(self.pseudo_data, free, loss, np.concatenate(bars) @ point.slopes)

    def search(self, most_steps: int, rng: np.random.Generator) -> tuple[np.ndarray, bool]:
        """The best mode of those that draws of the prior lead to."""
        spread = self.parts.evaluator.spread
        draws = self.start + spread * rng.normal(size=(DRAWS, len(spread)))
        draws[0] = self.start
        scores = np.array([self.value(one) for one in draws])
        best = draws[np.argsort(scores)[:SOME]]
        some = [one + spread * self.descended(one, np.diag(spread), maxiter=STEPS).x for one in best]
        some = sorted(some, key=self.value)
        counted, ends = len(self.losses), []
        for one in some[:BEST]:
            self.losses = self.losses[:counted]  # each has as many steps as are asked for
            free, is_flat = self.find_mode(one, counted + most_steps, np.diag(spread))
            ends.append((self.value(free), free, is_flat))
        _, free, is_flat = min(ends, key=lambda end: end[0])
        return free, is_flat


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


def _at_rows(model: Model, part: ReadTerm, X: np.ndarray) -> Callable[[np.ndarray], Sloped]:
    """The kernel of a term of unit variance at all rows, as a function of its lengthscales, with slopes."""
    read, count = X[:, list(part.columns)], count_lengthscales(part)
    rows, place = np.unique(read, axis=0, return_inverse=True)
    place, is_in_order = place.reshape(-1), len(rows) == len(X)
    rows = read if is_in_order else rows  # where they all differ nothing is copied
    kernel = kernel_of(model, part, rows, rows[:0])

    def at(lengths: np.ndarray) -> Sloped:
        gram = split_kernel(kernel(lengths[:count]))[0]
        if is_in_order:
            return gram
        return Sloped(*(leaf[..., place[:, None], place] for leaf in (gram.value, gram.slopes)))

    return at
