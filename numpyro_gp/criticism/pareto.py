"""Pareto-smoothed importance sampling in NumPy, of many sets of weights at once (Vehtari et al. 2024).

The largest weights of each set get the quantiles of a generalised Pareto distribution that is fitted to them, by Zhang
and Stephens' (2009) mean over a profile likelihood with a weak prior that draws the shape ``k`` to one half.
"""

from typing import NamedTuple

import numpy as np

# Data that are left out at a time, whose weights stay in the cache then, and the fewest weights in a tail.
TOGETHER, FEWEST_IN_TAIL = 100, 5
# Nats by which weights hardly matter.
HARDLY = 0.1


def _log_sums(values: np.ndarray) -> np.ndarray:
    """``log sum exp`` over the first axis."""
    most = np.max(values, axis=0)
    return most + np.log(np.sum(np.exp(values - most), axis=0))


class Smoothed(NamedTuple):
    """Log weights ``(S, N)`` that sum to one over the draws, and the shape ``k (N,)`` of each tail."""

    log_weights: np.ndarray
    k: np.ndarray


def smoothed(log_weights: np.ndarray) -> Smoothed:
    """Smooth sets of ``S`` log weights, ``(S, N)``; where a tail has too few that differ, ``k`` is infinite."""
    size = len(log_weights)
    most = int(np.ceil(min(size / 5, 3 * size**0.5)))
    x = np.asarray(log_weights, float) - np.max(log_weights, axis=0)
    first = size - most - 1  # of the tail, behind the value that it begins at
    order = np.argpartition(x, first, axis=0)[first:]
    tail = np.take_along_axis(x, order, axis=0)
    ranks = np.argsort(tail[1:], axis=0) + 1
    order, ranked = (np.take_along_axis(one, ranks, axis=0) for one in (order, tail))
    cut = np.maximum(tail[0], np.log(np.finfo(float).tiny))
    counts, k = np.sum(ranked > cut, axis=0), np.full(x.shape[1], np.inf)
    for count in np.unique(counts[counts >= FEWEST_IN_TAIL]):
        own = np.flatnonzero(counts == count)
        base = np.exp(cut[own])
        k[own], scale = fitted(np.exp(ranked[most - count :, own]) - base)
        levels = (np.arange(count) + 0.5) / count
        values = np.log(quantiles(levels[:, None], k[own], scale) + base)
        ranked[most - count :, own] = np.minimum(values, 0.0)
    np.put_along_axis(x, order, ranked, axis=0)
    return Smoothed(x - _log_sums(x), k)


def fitted(tail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale ``(N,)`` of generalised Pareto distributions of values in ascending order ``(T, N)``."""
    count = len(tail)
    points = 30 + int(count**0.5)
    steps = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    b = steps[:, None] / (3 * tail[int(count / 4 + 0.5) - 1]) + 1 / tail[-1]
    k = np.log1p(-b[:, None] * tail).mean(axis=1)
    profile = count * (np.log(-b / k) - k - 1)
    weights = np.exp(profile - _log_sums(profile))
    weights = np.where(weights >= 10 * np.finfo(float).eps, weights, 0)
    middle = np.sum(weights * b, axis=0) / weights.sum(axis=0)
    shape = np.log1p(-middle * tail).mean(axis=0)
    return (count * shape + 10 * 0.5) / (count + 10), -shape / middle


def quantiles(levels: np.ndarray, k: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Of generalised Pareto distributions: ``scale ((1 - p)^-k - 1) / k``."""
    far = -np.log1p(-levels)
    is_small = np.abs(k) < np.finfo(float).eps
    safe = np.where(is_small, 1.0, k)
    return scale * np.where(is_small, far, np.expm1(safe * far) / safe)


class LeftOut(NamedTuple):
    """Log density of each datum ``(N,)`` with the datum left out, and the shape of its weights.

    Estimates are unreliable where ``k`` exceeds ``good_k = min(1 - 1/log10(S), 0.7)``, but for data of which weights
    hardly matter: with none of them the estimate is the mean of the densities, with all of them the harmonic mean, and
    ``gap (N,)`` is the difference of their logarithms.
    """

    pointwise: np.ndarray
    k: np.ndarray
    good_k: float
    gap: np.ndarray

    @property
    def is_bad(self) -> np.ndarray:
        """Which estimates are unreliable ``(N,)``."""
        return ~(self.k <= self.good_k) & (self.gap > HARDLY)


def left_out(log_density: np.ndarray) -> LeftOut:
    """PSIS-LOO of log densities ``(S, N)`` at independent draws of a posterior."""
    pointwise, k = np.array(log_density[0], float), np.full(log_density.shape[1], np.inf)
    for low in range(0, len(k) if len(log_density) > 1 else 0, TOGETHER):
        own = slice(low, low + TOGETHER)
        found = smoothed(-log_density[:, own])
        pointwise[own], k[own] = _log_sums(found.log_weights + log_density[:, own]), found.k
    good = min(1 - 1 / np.log10(max(len(log_density), 2)), 0.7)
    return LeftOut(
        pointwise, k, float(good), _log_sums(log_density) + _log_sums(-log_density) - 2 * np.log(len(log_density))
    )
