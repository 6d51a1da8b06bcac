"""What the rows of a series say of its terms at each draw of the hyper-parameters: by one factor of their covariance.

Where the search asked the exact evidence of all rows, predictions follow from the rows themselves, too: at each draw at
its own noise, and without an inducing input for each row of each term.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from numpyro_gp.gam.model.model import Model, places_of_lengths
from numpyro_gp.gam.search.bound import Data
from numpyro_gp.gam.search.series_evidence import LEAST_NOISE, MOST_ROWS, at_rows, has_evidence, merged

# New rows that are looked at together.
TOGETHER = 1024


class ExactRows:
    """The terms given the rows of a fit, at draws of standard deviations, lengthscales and noise.

    Parameters
    ----------
    model : Model
        Of a series whose noise is Gaussian, of one size.
    scales, lengths, noise : array (S, C), (S, L), (S,)
        The constant is the last component.
    """

    def __init__(self, model: Model, scales: np.ndarray, lengths: np.ndarray, noise: np.ndarray) -> None:
        self.model, self.data, self.scales = model, merged(Data.of(model)).data, scales
        each = np.append(lengths, np.ones((len(lengths), 1)), axis=1)
        self.lengths = each[:, places_of_lengths(model)]
        least = (LEAST_NOISE * float(model.start.size)) ** 2
        self.variances = (np.asarray(noise, float)[:, None] ** 2 + least) / self.data.weights

    @staticmethod
    def serve(model: Model) -> bool:
        """Whether the rows of a fit are few enough, of a series with Gaussian noise."""
        return has_evidence(model) and len(np.unique(model.rows.X, axis=0)) <= MOST_ROWS

    @staticmethod
    def cuts(count: int) -> list[slice]:
        """New rows that are looked at together."""
        return [slice(low, min(low + TOGETHER, count)) for low in range(0, count, TOGETHER)]

    def at(self, X: np.ndarray) -> "Iterator[MomentsAtRows]":
        """At each draw what rows say of encoded rows ``X (N, D)``; of a row that misses a value all is NaN."""
        lost, count = np.isnan(X).any(axis=1), len(self.data.X)
        every = np.concatenate([self.data.X, np.where(lost[:, None], self.data.X[0], X)])
        kernels = [at_rows(self.model, part, every, count) for part in self.model.layout.read_terms]
        for squares, lengths, variances in zip(self.scales**2, self.lengths, self.variances, strict=True):
            given = zip(kernels, squares, lengths, strict=False)
            pairs = [(kernel, square * kernel.numbers(own).value) for kernel, square, own in given]
            matrices = [kernel.matrix(own) for kernel, own in pairs] + [np.full((count, len(every)), squares[-1])]
            priors = [kernel.diagonal(own)[count:] for kernel, own in pairs] + [np.full(len(X), squares[-1])]
            whole = matrices[-1].copy()
            for matrix in matrices[:-1]:
                whole += matrix
            covariance = whole[:, :count].copy()
            covariance[np.diag_indices(count)] += variances
            root, alpha = self._solved(covariance)
            yield MomentsAtRows(root, alpha, [*matrices, whole], [*priors, np.sum(priors, axis=0)], lost)

    def _solved(self, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lower root of the covariance of the rows, and its inverse times their data."""
        root, failed = dpotrf(covariance.T, lower=1, clean=0)  # of a symmetric matrix, as LAPACK has its columns
        if failed:  # by rounding, of narrow noise beside what wanders far
            values, vectors = np.linalg.eigh(covariance)
            least = np.finfo(float).eps * len(values) * values[-1]
            root = np.linalg.qr((vectors * np.sqrt(np.maximum(values, least))).T)[1].T
        return root, dpotrs(root, self.data.y - self.data.offset, lower=1)[0]


class MomentsAtRows(NamedTuple):
    """Means and variances at new rows, at one draw.

    Attributes
    ----------
    root, alpha : array (K, K), (K,)
        Of the covariance of the rows of the fit, and its inverse times their data.
    matrices, priors : list of array (K, K + N), (N,)
        Covariances of each component, and of all as the last, of rows of the fit with all, and variances at new rows.
    lost : array (N,)
        Which new rows miss a value.
    """

    root: np.ndarray
    alpha: np.ndarray
    matrices: list[np.ndarray]
    priors: list[np.ndarray]
    lost: np.ndarray

    def total(self) -> tuple[np.ndarray, np.ndarray]:
        """Of ``f`` without offsets ``(N,), (N,)``."""
        return self._moments(self.matrices[-1], self.priors[-1])

    def components(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each component ``(C, N), (C, N)``."""
        mean, variance = zip(*map(self._moments, self.matrices[:-1], self.priors[:-1]), strict=True)
        return np.stack(mean), np.stack(variance)

    def _moments(self, matrix: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of what has this covariance with the rows, and these variances."""
        cross = matrix[:, len(self.alpha) :]
        known = np.sum(dtrtrs(self.root, cross, lower=1)[0] ** 2, axis=0)
        variance = np.maximum(prior - known, 4 * np.finfo(float).eps * prior)
        return np.where(self.lost, np.nan, self.alpha @ cross), np.where(self.lost, np.nan, variance)
