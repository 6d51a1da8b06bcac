"""The mode of the hyper-parameters of a series, by the evidence of its rows themselves.

A walk needs an inducing input for each row. With three such terms a bound would have factors three times as large as
the covariance of the rows; so, where noise is Gaussian and rows are not many, the mode is that of the exact evidence,
whose gradient needs one factor of the rows. There is more than one mode: which part wanders, and how long a cycle is.
So the search starts from the best of many draws of the prior. And scales that may vanish have no normal posterior, but
a plateau and a cliff: mean and covariance are those of importance-weighted draws, not of the curvature alone.
"""

from collections.abc import Callable

import numpy as np

from numpyro_gp.gam.bounds import PseudoData, inverse_of
from numpyro_gp.gam.collapsed import Bound, BoundParts, Data, Evaluation
from numpyro_gp.gam.column_kernels import Sloped
from numpyro_gp.gam.hyperparameters import BoundArguments, vector_layout_of
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.modes import Collapsed, at_mode
from numpyro_gp.gam.row_features import kernel_of
from numpyro_gp.gam.table_layout import ReadTerm
from numpyro_gp.gam.term_kernels import count_lengthscales

# Rows up to which the evidence is exact: one evaluation takes some 0.3 s there.
MOST_ROWS = 1000
# Draws of the prior that are scored, those that take some steps, how many, and those that go on to the end.
DRAWS, SOME, STEPS, BEST = 64, 6, 12, 2
# No noise is below this many standard deviations of the response: of a line without any there is no mode, and the
# covariance of the rows has no factor.
LEAST_NOISE = 1e-5
# Draws whose weights give mean and covariance.
WEIGHTED = 100


def has_evidence(model: Model) -> bool:
    """Whether the mode is that of the exact evidence: of a series with Gaussian noise and not many rows."""
    is_series = bool(model.kernel_data.time_priors) and len(model.rows.y) <= MOST_ROWS
    return is_series and vector_layout_of(model).is_exact


def of_series(model: Model, most_steps: int) -> Collapsed:
    """Mean and covariance of the hyper-parameters of a series, and the pseudo-data of its rows there."""
    data, parts, rng = Data.of(model), BoundParts(model), np.random.default_rng(0)
    evidence = Evidence(parts, data)
    free, is_flat = evidence.search(most_steps, rng)
    losses = evidence.losses[:]
    mean, root = evidence.weighted(free, evidence.covariance_root(free), rng)
    return at_mode(Bound(parts, data), mean, root, losses, is_flat)


class Evidence(Bound):
    """The negative log evidence of all rows and its gradient at hyper-parameters, less their log density."""

    def __init__(self, parts: BoundParts, data: Data) -> None:
        self.parts, self.data, self.tables, self.is_exact = parts, data, None, True
        self.others = float(np.sum(data.weights - 1))  # rows for which others stand
        self.least_variance = (LEAST_NOISE * float(parts.model.start.size)) ** 2
        self.start, self.losses, self.last, self.mode = parts.evaluator.start, [], None, None
        self.pseudo_data = PseudoData(np.zeros(0), np.zeros(0))  # rows say exactly what they say
        self.kernels = [_at_rows(parts.model, part, data.X) for part in parts.model.layout.read_terms]

    def _evaluated(self, free: np.ndarray) -> Evaluation:
        point = self.parts.evaluator(free)
        values = point.values
        with np.errstate(over="ignore", invalid="ignore"):  # far from the mode, from where a step comes back
            found = [kernel(values.lengths[at]) for at, kernel in enumerate(self.kernels)]
            loss, half = self._factored(values, [one.value for one in found])
        scales = np.append(values.scales[:-1], 0.0)
        of_scales = [2 * s * float(np.vdot(half, one.value)) for s, one in zip(scales, found, strict=False)]
        of_lengths = np.zeros((len(scales), values.lengths.shape[1]))
        for at, one in enumerate(found):
            for slot, slope in enumerate(one.slopes):
                of_lengths[at, slot] = scales[at] ** 2 * float(np.vdot(half, slope))
        of_noise = 2 * values.noise * float(np.diagonal(half) @ (1 / self.data.weights))
        of_noise += self.others * values.noise / self._variance(values)
        bars = [np.append(of_scales, 0.0), of_lengths.ravel(), np.array([of_noise, -1.0])]
        loss = float(loss - values.log_density)
        return Evaluation(self.pseudo_data, free, loss, np.concatenate(bars) @ point.slopes)

    def _factored(self, values: BoundArguments[np.ndarray], matrices: list[np.ndarray]) -> tuple[float, np.ndarray]:
        """The loss, and half of ``C^-1 - alpha alpha^T`` with ``C`` the covariance of the rows."""
        C = np.full((len(self.data.y),) * 2, float(values.scales[-1]) ** 2)
        for scale, one in zip(values.scales, matrices, strict=False):
            C += float(scale) ** 2 * one
        variance, weights = self._variance(values), self.data.weights
        C[np.diag_indices(len(C))] += variance / weights
        inverse, half_log = inverse_of(C)
        rest = self.data.y - self.data.offset
        alpha = inverse @ rest
        loss = half_log + 0.5 * float(rest @ alpha) + 0.5 * len(rest) * np.log(2 * np.pi)
        # A row of weight w is as w rows: the density of their mean is in C, and this is what is left of that of all.
        loss += 0.5 * (self.others * np.log(2 * np.pi * variance) + np.log(weights).sum())
        return loss, 0.5 * (inverse - np.outer(alpha, alpha))

    def _variance(self, values: BoundArguments[np.ndarray]) -> float:
        return float(values.noise) ** 2 + self.least_variance

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

    def weighted(self, free: np.ndarray, root: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mean and lower root of the covariance of the posterior, by weighted draws of the normal at its mode.

        Few draws carry the weight where the normal is far off: the curvature then has its share, as so many draws as
        there are hyper-parameters.
        """
        noise = rng.normal(size=(WEIGHTED, len(free)))
        draws = free + noise @ root.T
        log = 0.5 * np.sum(noise**2, axis=1) - np.array([self.value(one) for one in draws])
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
        gram = kernel(lengths[:count]).gram
        if is_in_order:
            return gram
        return Sloped(*(leaf[..., place[:, None], place] for leaf in (gram.value, gram.slopes)))

    return at
