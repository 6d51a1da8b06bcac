"""Values of latent functions at which callables are taken, and expectations by them (mathematics.md section 7.2).

Latent functions may have any unit: nothing here compares a variance with the number one.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float

from numpyro_gp.arrays import Array, over_axes
from numpyro_gp.likelihoods.rules import FIXED, gauss_hermite, pieces, quasi_normal, spread_points, tensor_hermite
from numpyro_gp.linalg import identity_like, small_cholesky

TENSOR_LIMIT = 3
# A standard deviation of as many roundings of the mean spreads points no more than rounding does.
FLAT = 32
# Standard deviations at which the peak of a product is looked for, and edges of pieces about it.
SEARCHED = np.concatenate([-np.geomspace(40.0, 8.5, 12), np.linspace(-8.0, 8.0, 33), np.geomspace(8.5, 40.0, 12)])
PEAK = np.concatenate([-np.geomspace(10.0, 1e-4, 11), [0.0], np.geomspace(1e-4, 10.0, 11)])


class Latent(NamedTuple):
    """Moments of the latent functions at each datum: ``(...)``, or ``(..., C)`` and ``covariance (..., C, C)``."""

    mean: Array
    variance: Array
    covariance: Array | None = None


def spread_of(variance: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """``sqrt(variance)`` in whatever unit, with a derivative of zero at zero, where `at_points` has that of Price."""
    is_positive = variance > 0
    return jnp.where(is_positive, jnp.sqrt(jnp.where(is_positive, variance, 1.0)), 0.0)


def latent_factor(latent: Latent) -> Float[Array, "*batch C C"]:
    """Lower factor of the covariance of the latent functions at each datum, each in its own unit.

    A few machine epsilons on the diagonal of their correlations keep its derivative finite for functions that are
    perfectly correlated; they change an expectation by no more than its rounding.
    """
    spread = spread_of(latent.variance)
    if latent.covariance is None:
        return over_axes(jnp.diag, latent.mean.ndim - 1)(spread)
    spread = spread_of(jnp.diagonal(jax.lax.stop_gradient(latent.covariance), axis1=-2, axis2=-1))
    is_seen = spread > 0
    unit = jnp.where(is_seen, spread, 1.0)
    identity = identity_like(latent.covariance)
    correlation = latent.covariance / (unit[..., :, None] * unit[..., None, :])
    both = is_seen[..., :, None] & is_seen[..., None, :]
    correlation = jnp.where(both, correlation, identity) + 8.0 * jnp.finfo(unit.dtype).eps * identity
    return spread[..., :, None] * small_cholesky(correlation)


def floored_factor(covariance: Float[Array, "*batch C C"], variance: Float[Array, "*batch K"]) -> Array:
    """The Cholesky factor of a covariance of logits, raised by the rounding error of the largest variance."""
    floor = 8.0 * jnp.finfo(covariance.dtype).eps * (1.0 + jnp.max(variance, axis=-1))
    return small_cholesky(covariance + jax.lax.stop_gradient(floor)[..., None, None] * identity_like(covariance))


def latent_points(latent: Latent, count: int) -> tuple[Array, Array]:
    """Values ``(K, ...)`` of ``count`` latent functions, and their weights ``(K, 1, ...)``, by `CallableLikelihood`."""
    mean = latent.mean
    if count == 1:
        nodes, weights = gauss_hermite(20)
        points = mean[None] + spread_of(latent.variance)[None] * _column(nodes, mean, mean.ndim)
        return points, _column(weights, mean, mean.ndim)
    nodes, weights = tensor_hermite(20, count) if count <= TENSOR_LIMIT else quasi_normal(count)
    return points_of(latent, nodes), _column(weights, mean, mean.ndim - 1)


def points_of(latent: Latent, nodes: Float[np.ndarray, "K C"]) -> Float[Array, "K *batch C"]:
    """Values of several latent functions at nodes ``z`` of a standard normal, ``mean + L z``."""
    if latent.covariance is not None:
        return spread_points(latent.mean, latent_factor(latent), nodes)
    z = jnp.expand_dims(jnp.asarray(nodes, latent.mean.dtype), range(1, latent.mean.ndim))
    return latent.mean[None] + spread_of(latent.variance)[None] * z


def at_points(
    function: Callable[[Array], Array], latent: Latent, count: int, *, is_log: bool = False
) -> Float[Array, "*batch"]:
    """``E g(f)``, or ``log E exp(g(f))``, by `latent_points`: in whatever units the latent functions have.

    Points that lie together say nothing of a derivative. Where a standard deviation is less than the rounding of its
    mean the derivative in a variance is that of Price, ``E g'' / 2``, at the mean; none for a ``g`` without one.
    """
    size = jnp.sqrt(jnp.diagonal(latent.covariance, axis1=-2, axis2=-1)) if latent.covariance is not None else None
    size = jnp.sqrt(latent.variance) if size is None else size
    is_flat = jax.lax.stop_gradient(size <= FLAT * jnp.finfo(size.dtype).eps * jnp.abs(latent.mean))
    still = jax.tree.map(jax.lax.stop_gradient, latent)
    variance = jnp.where(is_flat, still.variance, latent.variance)
    covariance, either = latent.covariance, is_flat
    if covariance is not None:
        either = is_flat[..., :, None] | is_flat[..., None, :]
        covariance = jnp.where(either, still.covariance, covariance)
    if is_log and count == 1:
        nodes, log_weights = jax.lax.stop_gradient(_peak_nodes(function, still))
        values = jax.vmap(function)(latent.mean[None] + spread_of(variance)[None] * nodes)
        found = logsumexp(values + log_weights, axis=0)
    elif is_log:
        points, weights = latent_points(Latent(latent.mean, variance, covariance), count)
        values = jax.vmap(function)(points)
        found = logsumexp(values, b=jnp.broadcast_to(weights, values.shape), axis=0)
    else:
        points, weights = latent_points(Latent(latent.mean, variance, covariance), count)
        found = jnp.sum(weights * jax.vmap(function)(points), axis=0)
    if count > TENSOR_LIMIT:
        return found
    curvature = _curvature(function, still.mean, count, is_log=is_log, is_whole=covariance is not None)
    if curvature is None:
        return found
    own = latent.variance if latent.covariance is None else latent.covariance
    change = 0.5 * jnp.where(either, jax.lax.stop_gradient(curvature), 0.0) * (own - jax.lax.stop_gradient(own))
    return found + jnp.sum(change, axis=tuple(range(found.ndim, change.ndim)))


def _peak_nodes(function: Callable[[Array], Array], latent: Latent) -> tuple[Array, Array]:
    """Nodes ``z`` and log weights ``(K, ...)`` of ``log E exp g``, close together about the peak of the product.

    It is looked for among points up to 40 standard deviations away, and then between the two neighbours of the highest.
    Pieces grow from a ten-thousandth of a standard deviation about it, and others are those of the normal's bulk.
    """
    mean, scale = latent.mean, jnp.sqrt(latent.variance)

    def heights(z: Array) -> Array:
        found = jax.vmap(function)(mean[None] + scale[None] * z) - 0.5 * z**2
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    def around(z: Array) -> tuple[Array, Array]:
        best = jnp.argmax(heights(z), axis=0, keepdims=True)
        low, high = jnp.maximum(best - 1, 0), jnp.minimum(best + 1, len(z) - 1)
        return jnp.take_along_axis(z, low, axis=0), jnp.take_along_axis(z, high, axis=0)

    steps = _column(np.linspace(0.0, 1.0, 17), mean, mean.ndim)
    low, high = around(jnp.broadcast_to(_column(SEARCHED, mean, mean.ndim), (len(SEARCHED), *mean.shape)))
    for _ in range(5):
        low, high = around(low + steps * (high - low))
    edges = [0.5 * (low + high) + _column(PEAK, mean, mean.ndim)]
    edges.append(jnp.broadcast_to(_column(np.array(FIXED), mean, mean.ndim), (len(FIXED), *mean.shape)))
    sorted_edges = jnp.moveaxis(jnp.sort(jnp.concatenate(edges), axis=0), 0, -1)
    z, weights = (jnp.moveaxis(part, -1, 0) for part in pieces(sorted_edges))
    log_weights = jnp.log(weights) - 0.5 * z**2
    return z, log_weights - logsumexp(log_weights, axis=0)[None]


def _slope(function: Callable[[Array], Array], direction: Array, at: Array) -> Array:
    return jax.jvp(function, (at,), (direction,))[1]


def _curvature(
    function: Callable[[Array], Array], mean: Array, count: int, *, is_log: bool, is_whole: bool
) -> Array | None:
    """``g''`` at the mean, or ``g'' + g'^2``, as a diagonal or whole; None where JAX has no second derivative of it."""
    if count == 1:
        along = [jnp.ones_like(mean)]
    else:
        along = [jnp.broadcast_to(jnp.eye(count, dtype=mean.dtype)[c], mean.shape) for c in range(count)]

    def second(c: int, d: int) -> Array:
        slope = [partial(_slope, function, along[place]) for place in (c, d)]
        first, curved = jax.jvp(slope[1], (mean,), (along[c],))
        return curved + first * slope[0](mean) if is_log else curved

    try:
        if count == 1:
            return second(0, 0)
        if not is_whole:
            return jnp.stack([second(c, c) for c in range(count)], axis=-1)
        rows = [jnp.stack([second(c, d) for d in range(count)], axis=-1) for c in range(count)]
        return jnp.stack(rows, axis=-2)
    except (RuntimeError, TypeError):  # of a gamma function in its parameter, or by a rule for backwards alone
        return None


def _column(numbers: np.ndarray, like: Array, axes: int) -> Array:
    return jnp.expand_dims(jnp.asarray(numbers, like.dtype), range(1, axes + 1))
