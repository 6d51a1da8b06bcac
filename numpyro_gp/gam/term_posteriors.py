"""Normal distributions of the whitened values of all terms, in NumPy: dense, of blocks and a low rank, or a point.

The terms at rows are ``f_c = A_c^T v_c`` and what inducing inputs leave open. Each class says what ``cov v = S`` adds.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np


class Blocks(NamedTuple):
    """Where the values of each component stand among all ``M``, components of one size together.

    Attributes
    ----------
    places : list of array (C_s, M_s)
    order : array (C,)
        Places of the components among the rows of all stacks.
    first : array (C,)
        Where each component starts.
    """

    places: list[np.ndarray]
    order: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, sizes: Sequence[int]) -> "Blocks":
        """Those of components of these sizes."""
        each = np.asarray(sizes)
        first = np.cumsum(each) - each
        members = [np.flatnonzero(each == size) for size in dict.fromkeys(sizes)]
        places = [first[own][:, None] + np.arange(each[own[0]]) for own in members]
        return cls(places, np.argsort(np.concatenate(members)), first)

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """Values ``(M, ...)`` as stacks ``(C_s, M_s, ...)``."""
        return [values[own] for own in self.places]

    def by_size(self, values: np.ndarray) -> list[np.ndarray]:
        """Values of components ``(C, ...)`` as stacks ``(C_s, ...)``: the other way round than `joined`."""
        return np.split(values[np.argsort(self.order)], np.cumsum([len(own) for own in self.places])[:-1])

    def joined(self, stacks: Sequence[np.ndarray]) -> np.ndarray:
        """Stacks of one entry for each component, ``(C_s, ...)``, in the order of the components."""
        found: np.ndarray = np.concatenate(stacks)[self.order]
        return found

    def merged(self, stacks: Sequence[np.ndarray]) -> np.ndarray:
        """The other way round than `split`."""
        found = np.empty((sum(own.size for own in self.places), *stacks[0].shape[2:]))
        for own, stack in zip(self.places, stacks, strict=True):
            found[own] = stack
        return found


class Normal(Protocol):
    """What a normal distribution of the whitened values says, from features ``A (M, N)``."""

    @property
    def mean(self) -> np.ndarray:
        """``E v (M,)``."""

    def row_variances(self, A: np.ndarray) -> np.ndarray:
        """``a^T S a`` of each row ``(N,)``."""

    def block_covariances(self, blocks: Blocks) -> list[np.ndarray]:
        """``S_cc`` of each component in stacks; zeros of a point."""

    def component_covariances(self, A: np.ndarray, blocks: Blocks) -> np.ndarray:
        """``a_c^T S_ce a_e`` averaged over rows ``(C, C)``."""

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws ``(M, count)``."""

    def log_density(self, values: np.ndarray) -> np.ndarray:
        """Of values ``(M, K)``: ``(K,)``."""


class Point(NamedTuple):
    """Values that are known: a draw of a chain, or a particle."""

    mean: np.ndarray

    def row_variances(self, A: np.ndarray) -> np.ndarray:
        return np.zeros(A.shape[1])

    def block_covariances(self, blocks: Blocks) -> list[np.ndarray]:
        return [np.zeros((*own.shape, own.shape[1])) for own in blocks.places]

    def component_covariances(self, A: np.ndarray, blocks: Blocks) -> np.ndarray:  # noqa: ARG002
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
        found: np.ndarray = np.sum((self.half @ A) ** 2, axis=0)
        return found

    def block_covariances(self, blocks: Blocks) -> list[np.ndarray]:
        halves = [self.half[:, own].transpose(1, 0, 2) for own in blocks.places]
        return [half.transpose(0, 2, 1) @ half for half in halves]

    def component_covariances(self, A: np.ndarray, blocks: Blocks) -> np.ndarray:
        products = (self.half.T @ self.half) * (A @ A.T) / A.shape[1]
        found: np.ndarray = np.add.reduceat(np.add.reduceat(products, blocks.first, axis=0), blocks.first, axis=1)
        return found

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        found: np.ndarray = self.mean[:, None] + self.half.T @ rng.normal(size=(len(self.mean), count))
        return found

    def log_density(self, values: np.ndarray) -> np.ndarray:
        away = np.linalg.solve(self.half.T, values - self.mean[:, None])
        half_log = np.linalg.slogdet(self.half)[1]
        found: np.ndarray = -0.5 * np.sum(away**2, axis=0) - half_log - 0.5 * len(self.mean) * np.log(2 * np.pi)
        return found


class LowRank(NamedTuple):
    """``N(m, (blockdiag(P_c P_c^T) + W W^T)^-1)``, that is ``S_ce = d_ce D_c - V_c^T V_e``.

    Attributes
    ----------
    mean : array (M,)
    factors, covariances : list of array (C_s, M_s, M_s)
        ``P_c``, and ``D_c = (P_c P_c^T)^-1``, in stacks.
    W, shared : array (M, r), (r, M)
    half_log : float
        Half of the logarithm of the determinant of the precision.
    blocks : Blocks
    """

    mean: np.ndarray
    factors: list[np.ndarray]
    covariances: list[np.ndarray]
    W: np.ndarray
    shared: np.ndarray
    half_log: float
    blocks: Blocks

    @classmethod
    def of(cls, mean: np.ndarray, factors: list[np.ndarray], W: np.ndarray, blocks: Blocks) -> "LowRank":
        """From what `BlockLowRank` holds."""
        inverses = [np.linalg.inv(P) for P in factors]
        covariances = [one.transpose(0, 2, 1) @ one for one in inverses]
        projected = blocks.merged([D @ own for D, own in zip(covariances, blocks.split(W), strict=True)])
        root = np.linalg.cholesky(np.eye(W.shape[1]) + W.T @ projected)
        logs = [np.log(np.diagonal(P, axis1=1, axis2=2)).sum() for P in factors]
        half_log = float(sum(logs) + np.log(np.diagonal(root)).sum())
        shared = np.linalg.solve(root, projected.T)
        return cls(mean, factors, covariances, W, shared, half_log, blocks)

    def _times(self, stacks: list[np.ndarray], values: np.ndarray) -> np.ndarray:
        pairs = zip(stacks, self.blocks.split(values), strict=True)
        return self.blocks.merged([one @ own for one, own in pairs])

    def row_variances(self, A: np.ndarray) -> np.ndarray:
        own = np.sum(A * self._times(self.covariances, A), axis=0)
        found: np.ndarray = own - np.sum((self.shared @ A) ** 2, axis=0)
        return found

    def block_covariances(self, blocks: Blocks) -> list[np.ndarray]:
        parts = [self.shared[:, own].transpose(1, 0, 2) for own in blocks.places]
        return [D - V.transpose(0, 2, 1) @ V for D, V in zip(self.covariances, parts, strict=True)]

    def component_covariances(self, A: np.ndarray, blocks: Blocks) -> np.ndarray:
        parts = [self.shared[:, own].transpose(1, 0, 2) for own in blocks.places]
        seen = blocks.joined([V @ own for V, own in zip(parts, blocks.split(A), strict=True)])
        flat = seen.reshape(len(seen), -1)
        pairs = zip(self.covariances, blocks.split(A), strict=True)
        diagonal = blocks.joined([np.sum(own * (D @ own), axis=(1, 2)) for D, own in pairs])
        found: np.ndarray = (np.diag(diagonal) - flat @ flat.T) / A.shape[1]
        return found

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        # x = P e_1 + W e_2 has the precision as its covariance, and so S x has covariance S.
        own = self._times(self.factors, rng.normal(size=(len(self.mean), count)))
        x = own + self.W @ rng.normal(size=(self.W.shape[1], count))
        moved = self._times(self.covariances, x) - self.shared.T @ (self.shared @ x)
        found: np.ndarray = self.mean[:, None] + moved
        return found

    def log_density(self, values: np.ndarray) -> np.ndarray:
        away = values - self.mean[:, None]
        transposed = [P.transpose(0, 2, 1) for P in self.factors]
        squares = np.sum(self._times(transposed, away) ** 2, axis=0) + np.sum((self.W.T @ away) ** 2, axis=0)
        found: np.ndarray = -0.5 * squares + self.half_log - 0.5 * len(away) * np.log(2 * np.pi)
        return found


def conditional(shift: np.ndarray, precision: np.ndarray, factor: np.ndarray) -> Dense:
    """The posterior of pseudo-data at the factor ``L (M, M)`` of the moment (mathematics.md section 14.1)."""
    from scipy.linalg import cholesky, solve_triangular

    inner = factor.T @ precision @ factor
    root = cholesky(np.eye(len(inner)) + 0.5 * (inner + inner.T), lower=True)
    half = solve_triangular(root, np.eye(len(root)), lower=True)
    return Dense(half.T @ (half @ (factor.T @ shift)), half)
