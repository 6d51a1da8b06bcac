"""Kernels of the terms between one row and all inducing inputs, at all draws of the lengthscales at once.

What depends on inducing inputs alone is found when they are made, so that a row costs a few products.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from numpyro_gp.additive.columns import columns_by_name
from numpyro_gp.checks import fail
from numpyro_gp.gam.answers.draws import Dense, Draws, Normal, PointMass
from numpyro_gp.gam.answers.predictions import NewResponses, check_levels, over_draws
from numpyro_gp.gam.model.column_kernels import Curve, Entries, averages_over, deviations, distances
from numpyro_gp.gam.model.features import fixed_matrices, inducing_inputs_of
from numpyro_gp.gam.model.model import Model, offset_at
from numpyro_gp.gam.model.response_checks import trials_at
from numpyro_gp.gam.model.term_kernels import composed, count_lengthscales
from numpyro_gp.gam.table.layout import ReadTerm, is_difference
from numpyro_gp.gam.table.terms import TIME
from numpyro_gp.kernels.profiles import of_average


@dataclass(frozen=True)
class AtRow(Entries):
    """A kernel of unit variance at a row: ``k(Z, x) (S, M_c)`` and ``k(x, x) (S,)``, or one for all draws."""

    cross: np.ndarray
    own: np.ndarray


class CurveAtRow:
    """A `Curve` at draws of its lengthscale ``(S,)``, whose averages ``a (S, M)``, ``b (S, 1)`` are found once."""

    def __init__(self, kind: type, given: object, lengths: np.ndarray, Z: np.ndarray) -> None:
        self.curve, self.lengths = Curve(kind, given, Z, Z[:0]), lengths
        kind, gaps = self.curve.kind, self.curve.gaps
        found = [self.curve.average(one, deviations(kind, gaps, one, is_sloped=False)) for one in map(float, lengths)]
        self.a, self.b = np.stack([one.a.value for one in found]), np.array([[one.b.value] for one in found])

    def at(self, x: float) -> AtRow:
        """At one value of the column."""
        curve, size = self.curve, len(self.curve.weights)
        gaps = distances(x, curve.columns, curve.period)
        d = deviations(curve.kind, gaps, self.lengths[:, None], is_sloped=False).value
        if size:
            a = d[:, :size] @ curve.weights[:, None]
        else:
            point = np.array([x])
            a = np.stack(
                [averages_over(curve.kind, curve.measure, float(length), point).a.value for length in self.lengths]
            )
        return AtRow(d[:, size:] - of_average(a, self.a, self.b), -of_average(a, a, self.b)[:, 0])


class TermAtRow:
    """A term at draws of its lengthscales ``(S, P)``."""

    def __init__(self, model: Model, part: ReadTerm, lengths: np.ndarray) -> None:
        self.term, self.columns, self.count = part.term, list(part.columns), count_lengthscales(part)
        self.given, self.Z = model.kernel_data.column_data(part), inducing_inputs_of(model, part)
        if part.term.kind in TIME:
            cure = "Take fit.predict(data), which knows all terms."
            fail("terms of a fit with a predictor", "curves, surfaces, lines and levels", part.name, cure)
        kind, every = part.term.kernel, range(self.count)
        self.curves = [CurveAtRow(kind, self.given[at], lengths[:, at], self.Z[:, at]) for at in every]
        of_levels = "factor" if is_difference(part, model.layout.read_terms) else "re" if part.term.by else ""
        self.levels = of_levels if self.curves else part.term.kind
        self._known: dict[bytes, AtRow] = {}

    def at(self, row: np.ndarray) -> AtRow:
        """At an encoded row ``(D,)``."""
        read = row[self.columns]
        if not self.curves:
            return self._fixed(read)
        curves = [curve.at(x) for curve, x in zip(self.curves, read, strict=False)]
        return composed(self.term, curves, self._fixed(read[self.count :]) if self.levels else None)

    def _fixed(self, read: np.ndarray) -> AtRow:
        """What no lengthscale moves; of levels kept, since there are few."""
        key = read.tobytes()
        found = self._known.get(key)
        if found is None:
            matrices = fixed_matrices(self.levels, self.given[self.count :], self.Z[:, self.count :], read[None])
            found = AtRow(matrices.cross.value.T, matrices.diagonal.value)
            if len(self._known) > 1000:  # a slope, or a line: of numbers there is no end
                self._known.clear()
            self._known[key] = found
        return found


# --------------------------------------------------------------------------------------
# A fit as a service: predictions of a row in NumPy, with all that depends on no row found before.
#
# At each draw of the hyper-parameters ``E f = m^T A`` and ``var f = k - |R A|^2`` with features ``A = W k(Z, x)`` and
# ``R^T R = 1 - S``, where S is the covariance of the whitened values: R has a row for each direction that the data
# know.


# Directions of 1 - S that are left out: the variance of f is at least (1 - LEAST) of that in one of them, and so no
# variance is off by more than this part of it.
LEAST = 1e-6


class RowPrediction:
    """What `TableRowPredictor` returns.

    Attributes
    ----------
    mean, variance : array (N,)
        Of new data.
    function_mean, function_variance : array (N,)
        Of ``f``, on the scale of the link.
    """

    def __init__(self, new_data: NewResponses, mean: np.ndarray, variance: np.ndarray) -> None:
        self._new_data, self._latent = new_data, (mean, variance)
        self.mean, self.variance = new_data.moments(mean, variance)
        self.function_mean, self.function_variance = over_draws(mean, variance)

    def quantiles(self, levels: float | Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of new data ``(levels, N)``: exact where noise is normal, else from 2000 draws."""
        return self._new_data.quantiles(*self._latent, check_levels(levels))


class TableRowPredictor:
    """Predictions of a row, or of a few: the mixture of `Fit.predict`, by a few products for each row.

    It does not warn of rows far outside of those of the fit, as `Fit.predict` does.
    """

    def __init__(self, draws: Draws) -> None:
        self.model, self.layout, term_features = draws.model, draws.model.layout, draws.term_features
        self.new_data = NewResponses(draws.likelihood)
        counts = [count_lengthscales(part) for part in self.layout.read_terms]
        each = np.split(draws.lengths, np.cumsum(counts, dtype=int), axis=1)  # nothing is behind the last
        pairs = zip(self.layout.read_terms, each, strict=False)
        self.terms = [TermAtRow(self.model, part, lengths) for part, lengths in pairs]
        self.places, self.squares = term_features.slices, draws.scales**2
        turned, self.weights = [], np.empty((draws.size, len(term_features.repeats)))
        for at, (scales, lengths, posterior) in enumerate(draws.each()):
            W = term_features.whitening(scales, lengths)
            self.weights[at] = posterior.mean @ W
            turned.append(_known_directions(posterior) @ W)
        most = max(map(len, turned))
        self.directions = np.stack([np.pad(one, ((0, most - len(one)), (0, 0))) for one in turned])

    def __call__(self, data: object) -> RowPrediction:
        """Predict a row, ``{"age": 60, "site": "west"}``, one of a table, or the rows of a small table."""
        columns = columns_by_name(data)
        if any(np.ndim(value) == 0 for value in columns.values()):
            data = {name: np.atleast_1d(value) if np.ndim(value) == 0 else value for name, value in columns.items()}
        X = self.layout.encode(data)
        mean, variance = np.stack([self._latent(row) for row in X], axis=-1)
        new_data = self.new_data.of_trials(trials_at(self.layout, X))
        return RowPrediction(new_data, mean + offset_at(self.model, X), variance)

    def _latent(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean, without offsets, and variance of ``f`` at each draw ``(S,)``."""
        kernels = np.empty(self.weights.shape)
        prior = np.zeros(len(kernels))
        every = [*(term.at(row) for term in self.terms), AtRow(np.ones((1, 1)), np.ones(1))]
        for at, (place, found) in enumerate(zip(self.places, every, strict=True)):
            kernels[:, place] = found.cross
            prior += self.squares[:, at] * found.own
        explained = np.matmul(self.directions, kernels[:, :, None])[..., 0]
        variance = prior - np.sum(explained**2, axis=1)
        mean = np.sum(self.weights * kernels, axis=1)
        return mean, np.maximum(variance, 4 * np.finfo(float).eps * prior)


def _known_directions(posterior: Normal) -> np.ndarray:
    """``R (r, M)`` with ``R^T R = 1 - S``."""
    if isinstance(posterior, PointMass):
        return np.eye(len(posterior.mean))
    if not isinstance(posterior, Dense):
        cure = "Take fit.predict(data), which knows fits of many terms too."
        fail(
            "a fit with a predictor", "one with all covariances, of up to 600 inducing inputs", "one of low rank", cure
        )
    values, vectors = np.linalg.eigh(np.eye(len(posterior.mean)) - posterior.half.T @ posterior.half)
    known = values > LEAST
    return np.sqrt(values[known])[:, None] * vectors[:, known].T
