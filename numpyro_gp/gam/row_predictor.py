"""A fit as a service: predictions of a row in NumPy, with all that depends on no row found before.

At each draw of the hyper-parameters ``E f = m^T A`` and ``var f = k - |R A|^2`` with features ``A = W k(Z, x)`` and
``R^T R = 1 - S``, where S is the covariance of the whitened values: R has a row for each direction that the data know.
"""

from collections.abc import Sequence

import numpy as np

from numpyro_gp.additive.columns import columns_of
from numpyro_gp.checks import fail
from numpyro_gp.gam.draws import Draws
from numpyro_gp.gam.kernels_at_row import AtRow, TermAtRow
from numpyro_gp.gam.model import offset_at
from numpyro_gp.gam.per_row import trials_at
from numpyro_gp.gam.responses import NewData, check_levels, over_draws
from numpyro_gp.gam.term_kernels import count_lengthscales
from numpyro_gp.gam.term_posteriors import Dense, Normal, Point

# Directions of 1 - S that are left out: the variance of f is at least (1 - LEAST) of that in one of them, and so no
# variance is off by more than this part of it.
LEAST = 1e-6


class RowPrediction:
    """What `RowPredictor` returns.

    Attributes
    ----------
    mean, variance : array (N,)
        Of new data.
    function_mean, function_variance : array (N,)
        Of ``f``, on the scale of the link.
    """

    def __init__(self, new_data: NewData, mean: np.ndarray, variance: np.ndarray) -> None:
        self._new_data, self._latent = new_data, (mean, variance)
        self.mean, self.variance = new_data.moments(mean, variance)
        self.function_mean, self.function_variance = over_draws(mean, variance)

    def quantiles(self, levels: float | Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of new data ``(levels, N)``: exact where noise is normal, else from 2000 draws."""
        return self._new_data.quantiles(*self._latent, check_levels(levels))


class RowPredictor:
    """Predictions of a row, or of a few: the mixture of `Fit.predict`, by a few products for each row.

    It does not warn of rows far outside of those of the fit, as `Fit.predict` does.
    """

    def __init__(self, draws: Draws) -> None:
        self.model, self.layout, term_features = draws.model, draws.model.layout, draws.term_features
        self.new_data = NewData(draws.likelihood)
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
        columns = columns_of(data)
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
    if isinstance(posterior, Point):
        return np.eye(len(posterior.mean))
    if not isinstance(posterior, Dense):
        cure = "Take fit.predict(data), which knows fits of many terms too."
        fail(
            "a fit with a predictor", "one with all covariances, of up to 600 inducing inputs", "one of low rank", cure
        )
    values, vectors = np.linalg.eigh(np.eye(len(posterior.mean)) - posterior.half.T @ posterior.half)
    known = values > LEAST
    return np.sqrt(values[known])[:, None] * vectors[:, known].T
