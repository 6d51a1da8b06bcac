"""Values of latent functions at which callables are taken, and expectations by them (mathematics.md section 7.2).

Latent functions may have any unit: nothing here compares a variance with the number one.
"""

import functools
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Bool, Float

from numpyro_gp.arrays import Array, over_axes
from numpyro_gp.checks import check_count
from numpyro_gp.linalg import identity_like, small_cholesky

# --------------------------------------------------------------------------------------
# Nodes and weights for normal distributions, in units of their standard deviation (mathematics.md section 7.2).
#
# All are constants for differentiation; `numpyro_gp.quadrature` takes expectations with them.


LEGENDRE_NODES = 8
CUTS = (-4.0, -2.0, 0.0, 2.0, 4.0)
REACH = 8.0  # a standard normal has 1e-15 of its mass outside
BULK = (-6.5, -3.0, 0.0, 3.0, 6.0)  # edges about a bulk whose nodes go on to a peak far away
LIFT = 60.0  # a logarithm: weights so much larger leave single precision no narrower on its upper side
EDGES = (-REACH, *CUTS, REACH)
SMALLEST_WIDTH = 1e-12  # a width in standard deviations
LEAST_WIDTHS = 30.0  # widths that the graded rule goes to at least
# Its cuts, as parts of the way to two standard deviations, in the logarithm of the distance.
GRADES = (-0.9, -0.7, -0.45, -0.2, 0.0, 0.2, 0.45, 0.7, 0.9)


@functools.cache
def gauss_hermite(num: int) -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, " Q"]]:
    """Nodes and weights (summing to one) of the rule for a standard normal, exact for degree ``2 num - 1``.

    Examples
    --------
    >>> nodes, weights = gauss_hermite(5)
    >>> round(float(weights @ nodes**4), 12)
    3.0
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(check_count("num", num))
    return nodes, weights / weights.sum()


@functools.cache
def tensor_hermite(num: int, dimension: int) -> tuple[Float[np.ndarray, "Q {dimension}"], Float[np.ndarray, " Q"]]:
    """Product rule of ``num**dimension`` nodes, and its weights."""
    nodes, weights = gauss_hermite(num)
    grid = np.meshgrid(*[nodes] * dimension, indexing="ij")
    products = functools.reduce(np.multiply.outer, [weights] * dimension)
    return np.stack([axis.ravel() for axis in grid], axis=-1), products.ravel()


@functools.cache
def quasi_normal(dimension: int) -> tuple[Float[np.ndarray, "Q {dimension}"], Float[np.ndarray, " Q"]]:
    """A Kronecker sequence of 1024 standard normals, with equal weights; draws in many dimensions.

    Steps are the powers of the root of ``x^(d+1) = x + 1``, the golden ratio's kin in d dimensions, which
    keep the points apart in every projection. Mirror images make the odd moments exact, and a linear map the
    covariance. Of more dimensions than a quarter of the points, which no linear map separates, they are fixed draws.
    """
    num = 512  # of a half
    if 2 * dimension > num:
        half = np.random.default_rng(0).standard_normal((num, dimension))
        half = half / np.sqrt(np.mean(half**2, axis=0))
        return np.concatenate([half, -half]), np.full(2 * num, 0.5 / num)
    root = 2.0
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / (dimension + 1))
    steps = root ** -np.arange(1.0, dimension + 1)
    uniform = (0.5 + steps * np.arange(1, num + 1)[:, None]) % 1.0
    quantile = np.vectorize(NormalDist().inv_cdf)
    half = quantile(np.clip(uniform, 1e-12, 1 - 1e-12))
    half = np.linalg.solve(np.linalg.cholesky(half.T @ half / num), half.T).T  # unit covariance, exactly
    return np.concatenate([half, -half]), np.full(2 * num, 0.5 / num)


def composite_rule(
    cuts: Float[Array, "*batch K"],
) -> tuple[Float[Array, "*batch 8*(K+6)"], Float[Array, "*batch 8*(K+6)"]]:
    """Nodes and weights for a standard normal, cut at ``cuts`` and {0, ±2, ±4, ±8}.

    Cuts outside ±8 are clipped there and leave pieces of no width. The rule is a constant for
    differentiation: where the cuts are has no derivative worth having.

    Examples
    --------
    >>> z, weights = composite_rule(jnp.array([0.3]))
    >>> z.shape
    (56,)
    """
    fixed = jnp.broadcast_to(jnp.asarray(np.array(EDGES), cuts.dtype), (*cuts.shape[:-1], len(EDGES)))
    z, weights = legendre_pieces(_edges(lax.stop_gradient(cuts), fixed))
    density = jnp.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi).item()
    return z, weights * density


def graded_rule(
    centre: Float[Array, "*batch"], width: Float[Array, "*batch"], spans: Bool[Array, "*batch"] | None = None
) -> tuple[Float[Array, "*batch 120"], Float[Array, "*batch 120"]]:
    """A composite rule in ``t`` of ``z = centre + width sinh(t)``, for what has a heavy tail beyond ``width``.

    Logarithms and powers of the distance are smooth in ``t``, over however many decades of it. A constant for
    differentiation. Where ``spans``, the nodes reach from beyond ``-centre`` to beyond ``centre``, and weights are
    larger by ``exp(LIFT)``: of single precision's range the lower half alone would be used.

    Examples
    --------
    >>> z, weights = graded_rule(jnp.array(0.3), jnp.array(1e-6))
    >>> round(float(weights @ jnp.log1p((z - 0.3) ** 2 * 1e12)), 4)   # SciPy, with a break at 0.3: 26.4493
    26.4493
    """
    is_near = jnp.abs(centre) < REACH
    centre, width = (lax.stop_gradient(part)[..., None] for part in (centre, width))
    fixed = jnp.expand_dims(jnp.asarray(np.array(EDGES), centre.dtype), range(centre.ndim - 1))
    lift = jnp.zeros_like(centre)
    if spans is not None:
        is_near = is_near | spans
        fixed = jnp.where(spans[..., None], _spanning_edges(centre), fixed)
        lift = jnp.where(spans[..., None], LIFT, lift)
    # Of a centre without mass about it the rule knows nothing: any other serves.
    centre, width = jnp.where(is_near[..., None], centre, 0.0), jnp.where(is_near[..., None], width, 1.0)
    # One that is wide needs no grading, and z would be a difference of much.
    width = jnp.clip(width, SMALLEST_WIDTH, 1.0)
    grades = jnp.expand_dims(jnp.asarray(np.array(GRADES), centre.dtype), range(centre.ndim - 1))
    # Sorted as values of t: before the sort the compiler would take an inverse of sinh for each node.
    cuts = grades * jnp.arcsinh(jnp.maximum(CUTS[-2] / width, LEAST_WIDTHS))
    t, weights = legendre_pieces(_edges(cuts, jnp.arcsinh((fixed - centre) / width)))
    rising, falling = 0.5 * jnp.exp(t), 0.5 * jnp.exp(-t)
    z = centre + width * (rising - falling)
    density = jnp.exp(lift - 0.5 * z**2) / np.sqrt(2.0 * np.pi).item()
    return z, weights * width * (rising + falling) * density


def _spanning_edges(centre: Float[Array, "*batch 1"]) -> Float[Array, "*batch 7"]:
    """Edges about the bulk of a normal at ``-centre``, and on to beyond ``centre``, in rising order."""
    far = 2 * jnp.abs(centre)
    end = jnp.maximum(far + 3.0, REACH)
    bulk = jnp.broadcast_to(jnp.asarray(np.array(BULK), centre.dtype), (*centre.shape[:-1], len(BULK)))
    edges = jnp.concatenate([bulk, 0.5 * (BULK[-1] + end), end], axis=-1) - 0.5 * far
    return jnp.sort(jnp.sign(centre) * edges, axis=-1)


def _edges(cuts: Float[Array, "*batch K"], fixed: Float[Array, "*batch 7"]) -> Float[Array, "*batch K+7"]:
    """The fixed edges and the cuts, those beyond the first and the last moved there."""
    cuts = jnp.clip(cuts, fixed[..., :1], fixed[..., -1:])
    return jnp.sort(jnp.concatenate([fixed, cuts], axis=-1), axis=-1)


def legendre_pieces(
    edges: Float[Array, "*batch E"],
) -> tuple[Float[Array, "*batch 8*(E-1)"], Float[Array, "*batch 8*(E-1)"]]:
    """Nodes between neighbouring edges, and weights for an integral."""
    nodes, weights = (jnp.asarray(part, edges.dtype) for part in np.polynomial.legendre.leggauss(LEGENDRE_NODES))
    half = 0.5 * jnp.diff(edges, axis=-1)[..., None]
    z = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None] + half * jnp.expand_dims(nodes, range(half.ndim - 1))
    weights = half * jnp.expand_dims(weights, range(half.ndim - 1))
    shape = (*edges.shape[:-1], -1)
    return z.reshape(shape), weights.reshape(shape)


def spread_points(
    mean: Float[Array, "*batch C"], covariance_factor: Float[Array, "*batch C C"], nodes: Float[np.ndarray, "K C"]
) -> Float[Array, "K *batch C"]:
    """``mean + L z`` for every node."""
    z = jnp.asarray(nodes, mean.dtype)
    return mean[None] + jnp.sum(covariance_factor[None] * jnp.expand_dims(z, range(1, mean.ndim + 1)), axis=-1)


TENSOR_LIMIT = 3
# A standard deviation of as many roundings of the mean spreads points no more than rounding does.
FLAT_ROUNDINGS = 32
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


def latent_points(latent: Latent, count: int) -> tuple[Array, Array]:
    """Values ``(K, ...)`` of ``count`` latent functions, and their weights ``(K, 1, ...)``, by `CallableLikelihood`."""
    mean = latent.mean
    if count == 1:
        nodes, weights = gauss_hermite(20)
        points = mean[None] + spread_of(latent.variance)[None] * _column_like(nodes, mean, mean.ndim)
        return points, _column_like(weights, mean, mean.ndim)
    nodes, weights = tensor_hermite(20, count) if count <= TENSOR_LIMIT else quasi_normal(count)
    return latent_values(latent, nodes), _column_like(weights, mean, mean.ndim - 1)


def latent_values(latent: Latent, nodes: Float[np.ndarray, "K C"]) -> Float[Array, "K *batch C"]:
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
    is_flat = jax.lax.stop_gradient(size <= FLAT_ROUNDINGS * jnp.finfo(size.dtype).eps * jnp.abs(latent.mean))
    still = jax.tree.map(jax.lax.stop_gradient, latent)
    variance = jnp.where(is_flat, still.variance, latent.variance)
    covariance, either = latent.covariance, is_flat
    if covariance is not None:
        either = is_flat[..., :, None] | is_flat[..., None, :]
        covariance = jnp.where(either, still.covariance, covariance)
    if is_log and count == 1:
        nodes, log_weights = jax.lax.stop_gradient(_peak_nodes(function, still))
        values = jax.vmap(function)(latent.mean[None] + spread_of(variance)[None] * nodes)
        value = logsumexp(values + log_weights, axis=0)
    else:
        points, weights = latent_points(Latent(latent.mean, variance, covariance), count)
        values = jax.vmap(function)(points)
        if is_log:
            value = logsumexp(values, b=jnp.broadcast_to(weights, values.shape), axis=0)
        else:
            value = jnp.sum(weights * values, axis=0)
    if count > TENSOR_LIMIT:
        return value
    curvature = _curvature(function, still.mean, count, is_log=is_log, is_whole=covariance is not None)
    if curvature is None:
        return value
    spread = latent.variance if latent.covariance is None else latent.covariance
    either = either & jnp.isfinite(curvature)  # of a finite g, it may be a ratio that overflows
    change = 0.5 * jnp.where(either, jax.lax.stop_gradient(curvature), 0.0) * (spread - jax.lax.stop_gradient(spread))
    return value + jnp.sum(change, axis=tuple(range(value.ndim, change.ndim)))


def _peak_nodes(function: Callable[[Array], Array], latent: Latent) -> tuple[Array, Array]:
    """Nodes ``z`` and log weights ``(K, ...)`` of ``log E exp g``, close together about the peak of the product.

    It is looked for among points up to 40 standard deviations away, and then between the two neighbours of the highest.
    Pieces grow from a ten-thousandth of a standard deviation about it, and others are those of the normal's bulk.
    """
    mean, scale = latent.mean, jnp.sqrt(latent.variance)

    def heights(z: Array) -> Array:
        height = jax.vmap(function)(mean[None] + scale[None] * z) - 0.5 * z**2
        return jnp.where(jnp.isnan(height), -jnp.inf, height)

    def around(z: Array) -> tuple[Array, Array]:
        best = jnp.argmax(heights(z), axis=0, keepdims=True)
        low, high = jnp.maximum(best - 1, 0), jnp.minimum(best + 1, len(z) - 1)
        return jnp.take_along_axis(z, low, axis=0), jnp.take_along_axis(z, high, axis=0)

    steps = _column_like(np.linspace(0.0, 1.0, 17), mean, mean.ndim)
    low, high = around(jnp.broadcast_to(_column_like(SEARCHED, mean, mean.ndim), (len(SEARCHED), *mean.shape)))
    for _ in range(5):
        low, high = around(low + steps * (high - low))
    edges = [0.5 * (low + high) + _column_like(PEAK, mean, mean.ndim)]
    edges.append(jnp.broadcast_to(_column_like(np.array(EDGES), mean, mean.ndim), (len(EDGES), *mean.shape)))
    sorted_edges = jnp.moveaxis(jnp.sort(jnp.concatenate(edges), axis=0), 0, -1)
    z, weights = (jnp.moveaxis(part, -1, 0) for part in legendre_pieces(sorted_edges))
    log_weights = jnp.log(weights) - 0.5 * z**2
    return z, log_weights - logsumexp(log_weights, axis=0)[None]


def _curvature(
    function: Callable[[Array], Array], mean: Array, count: int, *, is_log: bool, is_whole: bool
) -> Array | None:
    """``g''`` at the mean, or ``g'' + g'^2``, as a diagonal or whole; None where JAX has no second derivative of it."""
    if count == 1:
        along = [jnp.ones_like(mean)]
    else:
        along = [jnp.broadcast_to(jnp.eye(count, dtype=mean.dtype)[c], mean.shape) for c in range(count)]

    def second(c: int, d: int) -> Array:
        def slope(at: Array, place: int) -> Array:
            return jax.jvp(function, (at,), (along[place],))[1]

        first, curved = jax.jvp(lambda at: slope(at, d), (mean,), (along[c],))
        return curved + first * slope(mean, c) if is_log else curved

    try:
        if count == 1:
            return second(0, 0)
        if not is_whole:
            return jnp.stack([second(c, c) for c in range(count)], axis=-1)
        rows = [jnp.stack([second(c, d) for d in range(count)], axis=-1) for c in range(count)]
        return jnp.stack(rows, axis=-2)
    except (RuntimeError, TypeError):  # of a gamma function in its parameter, or by a rule for backwards alone
        return None


def _column_like(numbers: np.ndarray, like: Array, axes: int) -> Array:
    return jnp.expand_dims(jnp.asarray(numbers, like.dtype), range(1, axes + 1))
