"""Leave-one-out densities and Pareto k, by importance sampling at the draws of a posterior."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.rows.batches import some_rows

# --------------------------------------------------------------------------------------
# Pareto-smoothed importance sampling in NumPy, of many sets of weights at once (Vehtari et al. 2024).
#
# The largest weights of each set get the quantiles of a generalised Pareto distribution that is fitted to them, by
# Zhang and Stephens' (2009) mean over a profile likelihood with a weak prior that draws the shape ``k`` to one half.


# Data that are left out at a time, whose weights stay in the cache then, and the fewest weights in a tail.
TOGETHER, FEWEST_IN_TAIL = 100, 5
# Nats by which weights hardly matter, and by which they differ where rounding alone makes them differ.
HARDLY, EQUAL = 0.1, 1e-3


def _log_sums(values: np.ndarray) -> np.ndarray:
    """``log sum exp`` over the first axis."""
    most = np.max(values, axis=0)
    return most + np.log(np.sum(np.exp(values - most), axis=0))


class Smoothed(NamedTuple):
    """Log weights ``(S, N)`` that sum to one over the draws, and the shape ``k (N,)`` of each tail."""

    log_weights: np.ndarray
    k: np.ndarray


def smoothed(log_weights: np.ndarray, efficiency: float = 1.0) -> Smoothed:
    """Smooth sets of ``S`` log weights, ``(S, N)``; where a tail has too few that differ, ``k`` is infinite.

    It is 0 where all weights are equal but for rounding, of which there is no tail.

    ``efficiency`` is the share of the draws that are as good as independent.
    """
    size = len(log_weights)
    most = int(np.ceil(min(size / 5, 3 * (size / efficiency) ** 0.5)))
    x = np.asarray(log_weights, float) - np.max(log_weights, axis=0)
    first = size - most - 1  # of the tail, behind the value that it begins at
    order = np.argpartition(x, first, axis=0)[first:]
    tail = np.take_along_axis(x, order, axis=0)
    ranks = np.argsort(tail[1:], axis=0) + 1
    order, ranked = (np.take_along_axis(one, ranks, axis=0) for one in (order, tail))
    cut = np.maximum(tail[0], np.log(np.finfo(float).tiny))
    # Weights that differ as numbers: those of a datum that is certain differ as logarithms alone.
    counts, k = np.sum(np.exp(ranked) > np.exp(cut), axis=0), np.full(x.shape[1], np.inf)
    for count in np.unique(counts[counts >= FEWEST_IN_TAIL]):
        own = np.flatnonzero(counts == count)
        base = np.exp(cut[own])
        k[own], scale = fitted(np.exp(ranked[most - count :, own]) - base)
        levels = (np.arange(count) + 0.5) / count
        values = np.log(pareto_quantiles(levels[:, None], k[own], scale) + base)
        ranked[most - count :, own] = np.minimum(values, 0.0)
    k[np.ptp(log_weights, axis=0) < EQUAL] = 0.0
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


def pareto_quantiles(levels: np.ndarray, k: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Of generalised Pareto distributions: ``scale ((1 - p)^-k - 1) / k``."""
    far = -np.log1p(-levels)
    is_small = np.abs(k) < np.finfo(float).eps
    safe = np.where(is_small, 1.0, k)
    # Beyond e^700 nothing counts: weights are at most the largest.
    return scale * np.where(is_small, far, np.expm1(np.minimum(safe * far, 700)) / safe)


class LeftOut(NamedTuple):
    """Log density of each datum ``(N,)`` with the datum left out, and the shape ``k`` of its weights.

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


@np.errstate(all="ignore")  # a density that is not finite has no number
def psis_left_out(log_density: np.ndarray, efficiency: float = 1.0) -> LeftOut:
    """PSIS-LOO of log densities ``(S, N)`` at draws of a posterior; ``efficiency`` as in `smoothed`."""
    log_density = np.asarray(log_density, float)  # the tiniest number of the smoothing is none of float32
    pointwise, k = log_density[0].copy(), np.full(log_density.shape[1], np.inf)
    for low in range(0, len(k) if len(log_density) > 1 else 0, TOGETHER):
        own = slice(low, low + TOGETHER)
        found = smoothed(-log_density[:, own], efficiency)
        pointwise[own], k[own] = _log_sums(found.log_weights + log_density[:, own]), found.k
    good = min(1 - 1 / np.log10(max(len(log_density), 2)), 0.7)
    return LeftOut(
        pointwise, k, float(good), _log_sums(log_density) + _log_sums(-log_density) - 2 * np.log(len(log_density))
    )


# Draws whose tail importance sampling can smooth.
FEWEST = 25


def pareto_k(log_weights: ArrayLike) -> float:
    """Shape of the generalised Pareto distribution fitted to the tail of importance weights ``exp(log_weights)``."""
    weights = np.asarray(log_weights, dtype=float)
    if weights.ndim != 1 or weights.size < FEWEST or not np.isfinite(weights).all():
        required = f"at least {FEWEST} finite numbers, of shape (S,)"
        cure = "Draw more (num_samples=1000), and check that the fit is finite."
        fail("log_weights", required, f"shape {weights.shape}, {np.isfinite(weights).sum()} finite", cure)
    return float(smoothed(weights[:, None]).k[0])


# --------------------------------------------------------------------------------------
# What all draws say of the data of an observed site, each datum left out.


# Rows of a site that are looked at, and how many copies of each of them all draws make together.
ROWS, COPIES = 2000, 1000


# Draws of which Pareto's k of leaving a datum out is found.
TO_LEAVE_OUT = 50


class Seen(NamedTuple):
    """What is seen of an observed site at the rows that are looked at, out of ``num_rows``, its entries in one axis.

    ``level`` and ``spread`` are mean and standard deviation of new data, ``pit`` the probability of what is below the
    datum, that being left out, and ``z`` its standard normal score: of normal noise the standardised residual. Both are
    empty where each datum has a latent input of its own, and where few draws decide what most data say that are left
    out, unless noise is normal: then they show that it is too small.
    ``noise`` ``(S,)`` is the standard deviation of the noise at each draw.
    """

    y: np.ndarray
    rows: np.ndarray
    num_rows: int
    level: np.ndarray
    spread: np.ndarray
    pit: np.ndarray
    z: np.ndarray
    noise: np.ndarray | None
    is_normal: bool


def cannot_leave_out(log_density: np.ndarray) -> bool:
    """Whether few of many draws ``(S, N)`` decide what most data say that are left out."""
    return len(log_density) >= TO_LEAVE_OUT and bool(psis_left_out(log_density).is_bad.mean() > 0.5)


def judged(kept_draws: Mapping[str, Any], num_rows: int, is_normal: bool) -> Seen:
    """What all draws say of each datum that no mask hides, the datum itself left out by importance weights."""
    from scipy.special import ndtri  # not at import: only newer versions of NumPyro bring it

    y, seen = kept_draws["y"][0], kept_draws["seen"][0]
    shape = y.shape[:1] + (1,) * (y.ndim - 1)
    # The weights of leaving one out, 1 / p(y_n | draw), cut off at sqrt(S) times their mean.
    weights = np.exp(kept_draws["term"].min(axis=0) - kept_draws["term"])
    weights = np.minimum(weights, np.sqrt(len(weights)) * weights.mean(axis=0))
    weights = (weights / weights.sum(axis=0)).reshape(-1, *shape)
    mean, variance = kept_draws["mean"], kept_draws["variance"]
    pit = np.clip((weights * kept_draws["below"]).sum(axis=0), 0.5 / COPIES, 1 - 0.5 / COPIES)
    centre = (weights * mean).sum(axis=0)
    z = (y - centre) / np.sqrt((weights * (variance + (mean - centre) ** 2)).sum(axis=0)) if is_normal else ndtri(pit)
    rows = np.broadcast_to(some_rows(num_rows, ROWS).reshape(shape), y.shape)
    level, spread = mean.mean(axis=0), np.sqrt(variance.mean(axis=0) + mean.var(axis=0))
    at = {"level": level, "spread": spread, "pit": pit, "z": z, "y": y, "rows": rows}
    kept = {name: values[seen] for name, values in at.items()}
    if not is_normal and cannot_leave_out(kept_draws["term"].reshape(len(weights), -1)):
        kept |= {"pit": np.zeros(0), "z": np.zeros(0)}
    return Seen(**kept, num_rows=num_rows, noise=kept_draws["noise"], is_normal=is_normal)
