"""One-dimensional Gaussian expectations and their derivatives (mathematics.md section 7.2).

Two rules for ``E_{N(f; mean, variance)} fun(f)``:

* Gauss-Hermite, for integrands that vary on the scale of the latent standard deviation or wider;
* the *composite* rule, 8 Gauss-Legendre nodes between neighbouring cuts, for integrands that may be
  narrow: the caller says where they vary quickly, and the rule puts its nodes there.

Derivatives of the smooth expectations come from the identities ``dE/dmean = E fun'`` and
``dE/dvariance = E fun'' / 2`` (Bonnet, Price), applied again for every further derivative. They hold
at ``variance = 0``, where the derivative of ``sqrt(variance)`` does not exist, and they keep the sign
of ``fun''``: a log-concave likelihood never gets a negative precision from rounding. Densities and
logarithms with heavy tails that are narrow beside the latent standard deviation have slopes that
cancel: there ``fun`` is multiplied by Hermite polynomials instead, and has no derivative taken.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import logsumexp
from jaxtyping import Bool, Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.likelihoods.quadrature import LIFT, REACH, composite_rule, gauss_hermite, graded_rule

HERMITE_NODES = 20
# An elementwise function of latent values and of what else it is given.
Integrand = Callable[..., Array]
Batch = Float[Array, "*batch"]
Places = Float[Array, "*batch K"]
Cuts = Places | None
Which = Bool[Array, "*batch"] | None
NEAR = 3.0  # a mode as far away leaves 5 standard deviations within reach beyond it
FARTHEST = 24.0  # single precision has no range for a bulk and a peak farther apart
NARROW_PEAK = 0.5  # a peak that is wider joins the bulk
HALVINGS = 14
WIDTHS = (-30.0, -10.0, -3.0, -1.0, 0.0, 1.0, 3.0, 10.0, 30.0)


class Nodes(NamedTuple):
    """Nodes of a standard normal, weights, whether a density is above zero there, whether it is narrow: None, no."""

    z: Float[Array, "*batch Q"]
    weights: Float[Array, "*batch Q"]
    is_seen: Bool[Array, "*batch Q"] | None = None
    is_wide: Bool[Array, "*batch"] | None = None


def composite_cuts(centre: ArrayLike, width: ArrayLike, like: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
    """Cuts ``centre + width * {0, ±1, ±3, ±10, ±30}``; constants for differentiation."""
    centre, width = (jnp.broadcast_to(jnp.asarray(part, like.dtype), like.shape)[..., None] for part in (centre, width))
    widths = jnp.asarray(np.array(WIDTHS), like.dtype)
    return lax.stop_gradient(centre + width * jnp.expand_dims(widths, range(like.ndim)))


def rule(mean: Batch, variance: Batch, cuts: Cuts, graded: bool = False, spans: Which = None) -> tuple[Array, Array]:
    """Nodes ``z`` and weights ``(*batch, Q)`` of ``N(mean, variance)``; ``cuts`` are values of ``f``.

    ``spans`` are those of `graded_rule`.
    """
    if cuts is None:
        nodes, weights = (jnp.asarray(part, mean.dtype) for part in gauss_hermite(HERMITE_NODES))
        shape = mean.shape + nodes.shape
        return jnp.broadcast_to(nodes, shape), jnp.broadcast_to(weights, shape)
    centres, widths = _cut_centres(mean, variance, cuts)
    if graded:
        return graded_rule(centres[..., 0], widths[..., 0], spans)
    scale = jnp.maximum(jnp.sqrt(variance)[..., None], jnp.sqrt(jnp.finfo(mean.dtype).tiny))
    return composite_rule((cuts - mean[..., None]) / scale)


def _cut_centres(
    mean: Batch, variance: Batch, cuts: Places
) -> tuple[Float[Array, "*batch C"], Float[Array, "*batch C"]]:
    """What `composite_cuts` were made of, in standard deviations from the mean."""
    scale = jnp.maximum(jnp.sqrt(variance)[..., None], jnp.sqrt(jnp.finfo(mean.dtype).tiny))
    number = len(WIDTHS)
    spans = cuts[..., number - 1 :: number] - cuts[..., ::number]
    return (cuts[..., number // 2 :: number] - mean[..., None]) / scale, spans / (scale * (WIDTHS[-1] - WIDTHS[0]))


def _is_wide(mean: Batch, variance: Batch, cuts: Places) -> Bool[Array, "*batch"]:
    """Whether a narrow turn of the integrand is where the nodes are: derivatives by slopes would cancel."""
    centres, widths = _cut_centres(mean, variance, cuts)
    return jnp.any((jnp.abs(centres) < REACH) & (widths < 1), axis=-1)


def slope(fun: Integrand) -> Integrand:
    """Derivative of an elementwise ``fun(f, args)`` in ``f``."""
    return lambda f, args: jax.jvp(lambda x: fun(x, args), (f,), (jnp.ones_like(f),))[1]


def _partial(fun: Integrand, number: int) -> Integrand:
    """Derivative of an elementwise ``fun(f, args)`` in one array of ``args``, counted from 0."""

    def change(f: Array, args: object) -> Array:
        leaves, structure = jax.tree.flatten(args)

        def at(leaf: Array) -> Array:
            return fun(f, jax.tree.unflatten(structure, [*leaves[:number], leaf, *leaves[number + 1 :]]))

        return jax.jvp(at, (leaves[number],), (jnp.ones_like(leaves[number]),))[1]

    return change


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _expect(fun: Integrand, order: int, mean: Batch, variance: Batch, nodes: Nodes, args: object) -> Batch:
    """The derivative of this order in the mean of ``E fun(f, args)``: by slopes, or by Hermite polynomials where wide.

    Half of it is that of half the order in the variance.
    """
    scale = jnp.sqrt(variance)[..., None]
    points, point_args = mean[..., None] + scale * nodes.z, jax.tree.map(lambda a: a[..., None], args)
    change = fun
    for _ in range(order):
        change = slope(change)
    slopes = change(points, point_args)
    by_slopes = jnp.sum(nodes.weights * slopes, axis=-1)
    if nodes.is_wide is None or order == 0:
        return by_slopes
    values = fun(points, point_args)
    if nodes.is_seen is None:  # a constant's derivative is zero: take off the level of a logarithm
        level = jnp.sum(nodes.weights * values, axis=-1) / jnp.sum(nodes.weights, axis=-1)
        values = values - level[..., None]
    # Hermite polynomials: ``d^n/dmean^n E fun = E[fun He_n(z)] / sd^n``.
    before, factor = jnp.zeros_like(nodes.z), jnp.ones_like(nodes.z)
    for n in range(order):
        before, factor = factor, nodes.z * factor - n * before
    for _ in range(order):  # one factor at a time: the power of a small scale underflows
        factor = factor / jnp.where(nodes.is_wide[..., None], scale, 1.0)
    return jnp.where(nodes.is_wide, jnp.sum(nodes.weights * values * factor, axis=-1), by_slopes)


def _expect_jvp(
    fun: Integrand, order: int, primals: tuple[object, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    """One order more for the mean, half of two for the variance, the plain derivative for what ``fun`` is given."""
    mean_dot, variance_dot, _, args_dot = tangents
    value = _expect(fun, order, *primals)
    tangent = jnp.zeros_like(value)
    if not isinstance(mean_dot, SymbolicZero):
        tangent = tangent + _expect(fun, order + 1, *primals) * mean_dot
    if not isinstance(variance_dot, SymbolicZero):
        tangent = tangent + 0.5 * _expect(fun, order + 2, *primals) * variance_dot
    dots = jax.tree.leaves(args_dot, is_leaf=lambda leaf: isinstance(leaf, SymbolicZero))
    for number, dot in enumerate(dots):
        if not isinstance(dot, SymbolicZero):
            tangent = tangent + _expect(_partial(fun, number), order, *primals) * dot
    return value, tangent


_expect.defjvp(_expect_jvp, symbolic_zeros=True)


def expect(fun: Integrand, mean: Batch, variance: Batch, *args: Array, cuts: Cuts = None, heavy: bool = False) -> Batch:
    """``E fun(f, *args)`` for ``f ~ N(mean, variance)``.

    Parameters
    ----------
    fun : callable
        Elementwise and *twice differentiable* in its first argument (derivatives in ``variance`` are
        half the expected second derivative). It must not close over traced values: give them as ``args``.
    mean, variance, *args : Array
        Arrays of one shape.
    cuts : Array, optional
        Values of ``f`` at which ``fun`` changes quickly: the composite rule.
        None takes 20-node Gauss-Hermite.
    heavy : bool
        Whether ``fun`` has a logarithm or a power for a tail beyond the width of ``cuts``, which are
        those of `composite_cuts` then: the graded rule, and derivatives without slopes where that
        width is less than the standard deviation.

    Examples
    --------
    >>> round(float(expect(jnp.cos, jnp.array(0.0), jnp.array(1.0))), 5)   # exp(-1/2)
    0.60653
    >>> round(float(jax.grad(expect, argnums=2)(jnp.square, jnp.array(0.0), jnp.array(0.0))), 5)
    1.0
    """
    is_wide = _is_wide(mean, variance, cuts) if heavy and cuts is not None else None
    nodes = lax.stop_gradient(Nodes(*rule(mean, variance, cuts, heavy), is_wide=is_wide))
    return _expect(lambda f, rest: fun(f, *rest), 0, mean, variance, nodes, args)


def log_expect(
    fun: Integrand, mean: Batch, variance: Batch, *args: Array, cuts: Cuts = None, heavy: bool = False
) -> Batch:
    """``log E exp(fun(f, *args))``: log densities stay logarithms, shifted by their own log mean before ``exp``.

    Parameters as in `expect`. Minus infinity where every node underflows. With cuts, which are those of
    `composite_cuts` then, or several of them side by side, nodes go where the product is: for an outlier that is far
    from ``mean``. There ``N(mean, variance) = N(mean + a variance, variance) exp(a (mean - f) + a^2 variance / 2)``
    for an ``a`` that is a constant for differentiation. A narrow peak with a heavy tail may hold as much as the bulk
    about ``mean`` does: up to `FARTHEST` standard deviations between them, nodes are about both, ``a`` half way.
    """
    still_mean, still_variance, *still_args = (lax.stop_gradient(a) for a in (mean, variance, *args))
    if cuts is None:
        return _log_expect(fun, mean, variance, *args, cuts=None, heavy=False)
    given_cuts = cuts
    tilt, cuts = lax.stop_gradient(_tilt(fun, still_mean, still_variance, *still_args, cuts=cuts, by_mass=heavy))
    spans = None
    if heavy:
        (far, width), scale = _cut_centres(still_mean, still_variance, given_cuts), jnp.sqrt(still_variance)
        far, width = lax.stop_gradient((far[..., 0], width[..., 0]))
        spans = (jnp.abs(far) > NEAR) & (jnp.abs(far) < FARTHEST) & (width < NARROW_PEAK) & (scale > 0)
        tilt = jnp.where(spans, 0.5 * far / jnp.where(spans, scale, 1.0), tilt)
        cuts = jnp.where(spans[..., None], given_cuts, cuts)

    def tilted(f: Array, tilt: Array, start: Array, *rest: Array) -> Array:
        return fun(f, *rest) - tilt * (f - start)

    moved = mean + tilt * variance
    constant = tilt * (mean - still_mean) + 0.5 * tilt**2 * variance
    return constant + _log_expect(tilted, moved, variance, tilt, still_mean, *args, cuts=cuts, heavy=heavy, spans=spans)


def _log_expect(
    fun: Integrand, mean: Batch, variance: Batch, *args: Array, cuts: Cuts, heavy: bool, spans: Which = None
) -> Batch:
    """`log_expect` with its nodes around ``mean``."""
    still_mean, still_variance, *still_args = (lax.stop_gradient(a) for a in (mean, variance, *args))
    z, weights = rule(still_mean, still_variance, cuts, heavy, spans)
    points = still_mean[..., None] + jnp.sqrt(still_variance)[..., None] * z
    values = fun(points, *[a[..., None] for a in still_args])
    estimate = logsumexp(values, b=weights, axis=-1)
    shift = jnp.where(jnp.isfinite(estimate), estimate, 0.0)
    is_seen = ~(values - shift[..., None] < jnp.log(jnp.finfo(values.dtype).tiny))  # NaN is
    is_wide = None if cuts is None else _is_wide(still_mean, still_variance, cuts)
    is_wide = is_wide if spans is None or is_wide is None else is_wide | spans
    # Nodes without density move, without their weight, to where it has some: a logarithm is finite at all.
    stays = is_seen | ~is_seen.any(-1, keepdims=True)  # all of them stay where none has any
    low, high = (jnp.where(stays, z, end) for end in (jnp.inf, -jnp.inf))
    z = jnp.clip(z, jnp.min(low, axis=-1, keepdims=True), jnp.max(high, axis=-1, keepdims=True))
    nodes = Nodes(z, jnp.where(is_seen, weights, 0.0), is_seen, is_wide)
    nodes = lax.optimization_barrier(lax.stop_gradient(nodes))

    def shifted(f: Array, rest: tuple[Array, ...]) -> Array:
        return jnp.exp(fun(f, *rest[:-1]) - rest[-1])

    lift = 0.0 if spans is None else jnp.where(spans, LIFT, 0.0).astype(shift.dtype)
    return shift - lift + jnp.log(_expect(shifted, 0, mean, variance, nodes, (*args, shift)))


def _tilt(
    fun: Integrand, mean: Batch, variance: Batch, *args: Array, cuts: Places, by_mass: bool
) -> tuple[Batch, Places]:
    """The ``a`` of `log_expect`, zero where ``fun(f) + log N(f; mean, variance)`` has its mode within `NEAR`, and cuts.

    They are those given where ``a`` is zero, and else around that mode, by the curvature there.

    Between the mean and where ``fun`` is largest, the centre of the cuts, the mode is found by bisection. The slope at
    the mean limits how far away it can be where ``fun`` is concave, and both ends are tried where it is not. Of
    candidates the highest is taken, ``by_mass`` that with the largest height times width: a tail is heavy there.
    """
    scale = jnp.sqrt(variance)[..., None]
    columns = [a[..., None] for a in args]

    def density(z: Array) -> Array:
        return fun(mean[..., None] + scale * z, *columns) - 0.5 * z**2

    def rises(z: Array) -> Array:
        return jax.jvp(density, (z,), (jnp.ones_like(z),))[1]

    smallest = jnp.sqrt(jnp.finfo(mean.dtype).tiny)
    centres, _ = _cut_centres(mean, variance, cuts)
    nearer = jnp.sign(centres) * jnp.minimum(jnp.abs(centres), jnp.abs(rises(jnp.zeros_like(centres))))
    far = jnp.concatenate([centres, nearer], axis=-1)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        height, slope = jax.jvp(density, (middle,), (jnp.ones_like(middle),))
        is_before = (slope * jnp.sign(far) > 0) | jnp.isneginf(height)  # an exponent that overflows has no slope
        return jnp.where(is_before, middle, low), jnp.where(is_before, high, middle)

    low, high = lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(far), far))
    candidates = jnp.concatenate([jnp.zeros_like(far), 0.5 * (low + high), far], axis=-1)
    heights = density(candidates)
    if by_mass:
        bend = jax.jvp(rises, (candidates,), (jnp.ones_like(candidates),))[1]
        heights = heights - 0.5 * jnp.log(jnp.maximum(-bend, 1.0))
    best = jnp.argmax(jnp.where(jnp.isnan(heights), -jnp.inf, heights), axis=-1, keepdims=True)
    mode = jnp.take_along_axis(candidates, best, axis=-1)
    tilt = (mode - jnp.clip(mode, -NEAR, NEAR)) / jnp.maximum(scale, smallest)
    tilt = jnp.where(jnp.isfinite(tilt), tilt, 0.0)
    curvature = jax.jvp(rises, (mode,), (jnp.ones_like(mode),))[1]
    width = lax.rsqrt(jnp.maximum(-curvature, 1.0)) * scale
    moved = composite_cuts((mean[..., None] + scale * mode)[..., 0], width[..., 0], mean)
    moved = jnp.concatenate([moved] * (cuts.shape[-1] // len(WIDTHS)), axis=-1)
    return tilt[..., 0], jnp.where(tilt == 0, cuts, moved)
