"""Expectations over normal ``f`` by nodes, in NumPy, for any spread of ``f``.

Where ``f`` is narrow beside what a function bends over, a few nodes of Gauss and Hermite are right to ten digits.
Beyond, functions that are analytic in a strip about the real axis have the trapezoidal rule, and the softplus function
is a mixture of normal distribution functions.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from numpyro_gp.likelihoods.expectations import HERMITE_NODES
from numpyro_gp.likelihoods.links import WIDE, softplus_moments
from numpyro_gp.likelihoods.quadrature import gauss_hermite

# Rows whose nodes are handled at once: larger arrays are read from memory, where these stay in the cache.
AT_ONCE = 2048
# Nodes of Gauss and Hermite, and up to which variance over the squared distance of the nearest singular point.
NARROW = ((1, 0.0), (2, 5e-7), (4, 4e-4), (8, 8e-3))
# The trapezoidal rule: its step where the spread of f is one or less, and where it ends.
STEP, REACH = 0.6, 7.0
# Of the softplus function one number of nodes more than of other densities.
FEW_NODES = (*NARROW, (12, 0.03))

# ``(f (Q, N), *numbers of each row (N,))`` to values ``(Q, N)`` of several functions.
Functions = Callable[..., tuple[np.ndarray, ...]]


def over_nodes(
    functions: Functions,
    rule: tuple[np.ndarray, np.ndarray],
    mean: np.ndarray,
    variance: np.ndarray,
    *given: np.ndarray,
) -> np.ndarray:
    """Expectations ``(K, ..., N)``, of so many rows at a time that their nodes stay in the cache."""
    (nodes, weights), parts = rule, []
    at_nodes = nodes.reshape(-1, *(1,) * mean.ndim)
    step = max(1, AT_ONCE * mean.shape[-1] // max(mean.size, 1))
    for start in range(0, mean.shape[-1], step):
        rows = np.s_[..., start : start + step]
        f = mean[rows] + np.sqrt(variance[rows]) * at_nodes
        found = functions(f, *(own[rows] for own in given))
        parts.append(np.stack([(weights @ one.reshape(len(nodes), -1)).reshape(f.shape[1:]) for one in found]))
    return np.concatenate(parts, axis=-1)


def by_nodes(
    functions: Functions,
    beyond: Functions,
    distance: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    *given: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Expectations of functions under normal ``f``, of the shape of all numbers together.

    ``distance`` is that of the nearest singular point from ``mean``. ``beyond(mean, variance, *given)`` are those of
    rows where ``f`` is not narrow beside it.
    """
    if not np.any(variance):
        return functions(mean, *given)
    ratio, numbers = np.asarray(variance / distance**2), np.broadcast_arrays(mean, variance, *given)
    shape = numbers[0].shape
    if shape and ratio.shape == shape[-1:]:  # rows that are as narrow at every draw are sorted once
        flat = list(numbers)
    else:
        ratio, flat = np.broadcast_to(ratio, shape).reshape(-1), [one.reshape(-1) for one in numbers]
    group = np.digitize(ratio, [limit for _, limit in NARROW], right=True)
    kinds = np.flatnonzero(np.bincount(group))
    parts = []
    for kind in kinds:
        rows = slice(None) if len(kinds) == 1 else group == kind
        own = [one[..., rows] for one in flat]
        is_narrow = kind < len(NARROW)
        found = over_nodes(functions, gauss_hermite(NARROW[kind][0]), *own) if is_narrow else np.stack(beyond(*own))
        parts.append((rows, found))
    whole = np.empty((len(parts[0][1]), *flat[0].shape))
    for rows, found in parts:
        whole[..., rows] = found
    return tuple(whole.reshape(-1, *shape))


def in_a_strip(
    functions: Functions, mean: np.ndarray, variance: np.ndarray, *given: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Expectations of functions that are analytic where the imaginary part is less than pi: the trapezoidal rule."""

    def beyond(mean: np.ndarray, variance: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        step = STEP / max(1.0, math.sqrt(variance.max()))
        nodes = step * np.arange(-math.ceil(REACH / step), math.ceil(REACH / step) + 1)
        weights = step * np.exp(-0.5 * nodes**2) / math.sqrt(2 * math.pi)
        return tuple(over_nodes(functions, (nodes, weights), mean, variance, *given))

    return by_nodes(functions, beyond, np.asarray(math.pi), mean, variance, *given)


def softplus(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``E log(1 + e^t)`` and its first two derivatives in the mean, of the shape of both together."""
    value, slope, curvature = _of_softplus(_plain_softplus, slice(0, 3), mean, variance)
    return value, slope, curvature


def sigmoid(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """``E sigmoid(t)``, the first of these derivatives by itself."""
    return _of_softplus(lambda t: (_plain_sigmoid(t)[1],), slice(1, 2), mean, variance)[0]


def _of_softplus(functions: Functions, own: slice, mean: np.ndarray, variance: np.ndarray) -> Sequence[np.ndarray]:
    """Expectations of some of the softplus function and its derivatives, from the functions without a variance."""
    if not np.any(variance):
        return functions(mean)
    mean, variance = np.broadcast_arrays(mean, variance)
    t, spread, found = mean.ravel(), variance.ravel(), np.empty((own.stop - own.start, mean.size))
    is_wide = spread > WIDE
    if is_wide.any():
        found[:, is_wide] = softplus_moments(t[is_wide], spread[is_wide], np)[own]
    if not is_wide.all():
        rows, most = ~is_wide, spread[~is_wide].max() / math.pi**2  # over the squared distance of a singular point
        count = next((count for count, limit in FEW_NODES if most <= limit), HERMITE_NODES)
        found[:, rows] = over_nodes(functions, gauss_hermite(count), t[rows], spread[rows])
    return tuple(found.reshape(-1, *mean.shape))


def _plain_sigmoid(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tail = np.exp(-np.abs(t))
    return tail, np.where(t > 0, 1.0, tail) / (1 + tail)


def _plain_softplus(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tail, p = _plain_sigmoid(t)
    return np.maximum(t, 0) + np.log1p(tail), p, p * (1 - p)
