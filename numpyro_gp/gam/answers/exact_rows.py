"""What the rows of a series say of its terms at each draw of the hyper-parameters: by one factor of their covariance.

Where the search asked the exact evidence of all rows, predictions follow from the rows themselves, too: at each draw at
its own noise, and without an inducing input for each row of each term.
"""

from collections.abc import Iterator

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from numpyro_gp.gam.model.model import Model, places_of_lengths
from numpyro_gp.gam.search.bound import Data
from numpyro_gp.gam.search.series_evidence import LEAST_NOISE_OF_SERIES, MOST_ROWS, at_rows, has_evidence, merged

# New rows that are looked at together.
NEW_ROWS_TOGETHER = 1024


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
        least = (LEAST_NOISE_OF_SERIES * float(model.start.size)) ** 2
        self.variances = (np.asarray(noise, float)[:, None] ** 2 + least) / self.data.weights

    @staticmethod
    def serve(model: Model) -> bool:
        """Whether the rows of a fit are few enough, of a series with Gaussian noise."""
        return has_evidence(model) and len(np.unique(model.rows.X, axis=0)) <= MOST_ROWS

    def at(self, X: np.ndarray, is_split: bool, less_first: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """At each draw mean and variance at encoded rows ``X (N, D)``; of a row that misses a value they are NaN.

        Of each component ``(C, N)`` where it ``is_split``, else of ``f`` without offsets ``(N,)``; at each row less at
        the first where ``less_first``.
        """
        lost, count = np.isnan(X).any(axis=1), len(self.data.X)
        every = np.concatenate([self.data.X, np.where(lost[:, None], self.data.X[0], X)])
        parts = self.model.layout.read_terms
        kernels = [at_rows(self.model, part, every, count + less_first) for part in parts]  # and of the first new row
        for squares, lengths, variances in zip(self.scales**2, self.lengths, self.variances, strict=True):
            # Covariances of each component of rows of the fit with all, and variances at new rows.
            matrices, priors = list[np.ndarray](), list[np.ndarray]()
            for kernel, square, own in zip(kernels, squares, lengths, strict=False):
                numbers = square * kernel.numbers(own).value
                matrix, prior = kernel.matrix(numbers), kernel.diagonal(numbers)[count:]
                matrices.append(matrix[:count])
                priors.append(prior + prior[0] - 2 * matrix[count, count:] if less_first else prior)
            matrices.append(np.full((count, len(every)), squares[-1]))
            priors.append(np.full(len(X), 0 if less_first else squares[-1]))
            whole = sum(matrices[1:], matrices[0])
            covariance = whole[:, :count] + np.diag(variances)
            root, failed = dpotrf(covariance.T, lower=1, clean=0)  # of a symmetric matrix, as LAPACK has its columns
            if failed:  # by rounding, of narrow noise beside what wanders far
                values, vectors = np.linalg.eigh(covariance)
                least = np.finfo(float).eps * len(values) * values[-1]
                root = np.linalg.qr((vectors * np.sqrt(np.maximum(values, least))).T)[1].T
            alpha = dpotrs(root, self.data.y - self.data.offset, lower=1)[0]
            if not is_split:
                matrices, priors = [whole], [np.sum(priors, axis=0)]
            means, spreads = [], []
            for matrix, prior in zip(matrices, priors, strict=True):
                cross = matrix[:, count:]
                if less_first:
                    cross = cross - cross[:, :1]
                known = np.sum(dtrtrs(root, cross, lower=1)[0] ** 2, axis=0)
                means.append(np.where(lost, np.nan, alpha @ cross))
                spread = np.maximum(prior - known, 4 * np.finfo(float).eps * prior)
                spreads.append(np.where(lost, np.nan, spread))
            yield (np.stack(means), np.stack(spreads)) if is_split else (means[0], spreads[0])
