"""Normal distributions of the whitened values of all terms, in NumPy: dense, of blocks and a low rank, or a point.

The terms at rows are ``f_c = A_c^T v_c``, of features ``A (M, N)``, and what inducing inputs leave open. Each class
says what ``cov v = S`` adds, in the methods of `Dense`.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs

from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.gam.row_features import factored


class Point(NamedTuple):
    """Values that are known: a draw of a chain, or a particle."""

    mean: np.ndarray

    def row_variances(self, A: np.ndarray) -> np.ndarray:
        return np.zeros(A.shape[1])

    def block_covariances(self, blocks: Stacks) -> list[np.ndarray]:
        return [np.zeros((*own.shape, own.shape[1])) for own in blocks.places]

    def component_covariances(self, A: np.ndarray, blocks: Stacks) -> np.ndarray:  # noqa: ARG002
        return np.zeros((len(blocks.first), len(blocks.first)))

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:  # noqa: ARG002
        return np.repeat(self.mean[:, None], count, axis=1)

    def log_density(self, values: np.ndarray) -> np.ndarray:
        return np.zeros(values.shape[1])


class Dense(NamedTuple):
    """``N(m, H^T H)`` with a square ``H (M, M)``."""

    mean: np.ndarray
    half: np.ndarray

    def row_variances(self, A: np.ndarray) -> np.ndarray:
        """``a^T S a`` of each row ``(N,)``."""
        seen = self.half @ A
        return np.einsum("mn,mn->n", seen, seen)

    def block_covariances(self, blocks: Stacks) -> list[np.ndarray]:
        """``S_cc`` of each component in stacks."""
        halves = [self.half[:, own].transpose(1, 0, 2) for own in blocks.places]
        return [half.transpose(0, 2, 1) @ half for half in halves]

    def component_covariances(self, A: np.ndarray, blocks: Stacks) -> np.ndarray:
        """``a_c^T S_ce a_e`` averaged over rows ``(C, C)``."""
        products = (self.half.T @ self.half) * (A @ A.T) / A.shape[1]
        return np.add.reduceat(np.add.reduceat(products, blocks.first, axis=0), blocks.first, axis=1)

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws ``(M, count)``."""
        return self.mean[:, None] + self.half.T @ rng.normal(size=(len(self.mean), count))

    def log_density(self, values: np.ndarray) -> np.ndarray:
        """Of values ``(M, K)``: ``(K,)``."""
        factors, pivots, _ = dgetrf(self.half)  # of what is solved and of the determinant
        away, _ = dgetrs(factors, pivots, values - self.mean[:, None], trans=1)
        half_log = np.log(np.abs(np.diagonal(factors))).sum()
        return -0.5 * np.sum(away**2, axis=0) - half_log - 0.5 * len(self.mean) * np.log(2 * np.pi)


class LowRank:
    """``N(m, (blockdiag(P_c P_c^T) + W W^T)^-1)``, that is ``S_ce = d_ce D_c - V_c^T V_e``: what `BlockLowRank` holds.

    Attributes
    ----------
    mean : array (M,)
    factors, covariances : list of array (C_s, M_s, M_s)
        ``P_c``, and ``D_c = (P_c P_c^T)^-1``, in stacks.
    W, shared : array (M, r), (r, M)
    half_log : float
        Half of the logarithm of the determinant of the precision.
    blocks : Stacks
    """

    def __init__(self, mean: np.ndarray, factors: list[np.ndarray], W: np.ndarray, blocks: Stacks) -> None:
        self.mean, self.factors, self.W, self.blocks = mean, factors, W, blocks
        inverses = [np.linalg.inv(P) for P in factors]
        self.covariances = [one.transpose(0, 2, 1) @ one for one in inverses]
        projected = self._times(self.covariances, W)
        root = np.linalg.cholesky(np.eye(W.shape[1]) + W.T @ projected)
        logs = [np.log(np.diagonal(P, axis1=1, axis2=2)).sum() for P in factors]
        self.half_log = float(sum(logs) + np.log(np.diagonal(root)).sum())
        self.shared = np.linalg.solve(root, projected.T)

    def _times(self, stacks: list[np.ndarray], values: np.ndarray) -> np.ndarray:
        pairs = zip(stacks, self.blocks.apart(values), strict=True)
        return self.blocks.together([one @ own for one, own in pairs])

    def row_variances(self, A: np.ndarray) -> np.ndarray:
        own = np.sum(A * self._times(self.covariances, A), axis=0)
        return own - np.sum((self.shared @ A) ** 2, axis=0)

    def block_covariances(self, blocks: Stacks) -> list[np.ndarray]:
        parts = [self.shared[:, own].transpose(1, 0, 2) for own in blocks.places]
        return [D - V.transpose(0, 2, 1) @ V for D, V in zip(self.covariances, parts, strict=True)]

    def component_covariances(self, A: np.ndarray, blocks: Stacks) -> np.ndarray:
        parts = [self.shared[:, own].transpose(1, 0, 2) for own in blocks.places]
        seen = blocks.in_order([V @ own for V, own in zip(parts, blocks.apart(A), strict=True)])
        flat = seen.reshape(len(seen), -1)
        pairs = zip(self.covariances, blocks.apart(A), strict=True)
        diagonal = blocks.in_order([np.sum(own * (D @ own), axis=(1, 2)) for D, own in pairs])
        return (np.diag(diagonal) - flat @ flat.T) / A.shape[1]

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        # x = P e_1 + W e_2 has the precision as its covariance, and so S x has covariance S.
        own = self._times(self.factors, rng.normal(size=(len(self.mean), count)))
        x = own + self.W @ rng.normal(size=(self.W.shape[1], count))
        moved = self._times(self.covariances, x) - self.shared.T @ (self.shared @ x)
        return self.mean[:, None] + moved

    def log_density(self, values: np.ndarray) -> np.ndarray:
        away = values - self.mean[:, None]
        transposed = [P.transpose(0, 2, 1) for P in self.factors]
        squares = np.sum(self._times(transposed, away) ** 2, axis=0) + np.sum((self.W.T @ away) ** 2, axis=0)
        return -0.5 * squares + self.half_log - 0.5 * len(away) * np.log(2 * np.pi)


Normal = Point | Dense | LowRank


def conditional(shift: np.ndarray, precision: np.ndarray, factor: np.ndarray) -> Dense:
    """The posterior of pseudo-data at the factor ``L (M, M)`` of the moment (mathematics.md section 14.1)."""
    inner = factor.T @ precision @ factor
    inner = 0.5 * (inner + inner.T)
    try:
        _, half = factored(np.eye(len(inner)) + inner)
    except np.linalg.LinAlgError:  # of narrow noise rounding alone is more than what the prior knows
        known, directions = np.linalg.eigh(inner)
        half = (directions / np.sqrt(1 + np.maximum(known, 0))).T
    return Dense(half.T @ (half @ (factor.T @ shift)), half)
