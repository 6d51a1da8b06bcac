"""One-dimensional Gaussian expectations and their derivatives (mathematics.md section 7.2).

Two rules for ``E_{N(f; mean, variance)} fun(f)``:

* Gauss-Hermite, for integrands that vary on the scale of the latent standard deviation or wider;
* the *composite* rule, 8 Gauss-Legendre nodes between neighbouring cuts, for integrands that may be
  narrow: the caller says where they vary quickly, and the rule puts its nodes there.

Derivatives of the smooth expectations come from the identities ``dE/dmean = E fun'`` and
``dE/dvariance = E fun'' / 2`` (Bonnet, Price), applied again for every further derivative. They hold
at ``variance = 0``, where the derivative of ``sqrt(variance)`` does not exist, and they keep the sign
of ``fun''``: a log-concave likelihood never gets a negative precision from rounding.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import logsumexp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.rules import composite_rule, gauss_hermite

HERMITE_NODES = 20
# An elementwise function of latent values and of what else it is given.
Integrand = Callable[..., Array]
Batch = Float[Array, "*batch"]
Cuts = Float[Array, "*batch K"] | None
NEAR = 3.0  # a mode as far away leaves 5 standard deviations within reach beyond it
HALVINGS = 14
WIDTHS = (-30.0, -10.0, -3.0, -1.0, 0.0, 1.0, 3.0, 10.0, 30.0)


def floored_sqrt(variance: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """``sqrt(variance + machine epsilon)``: a standard deviation whose derivative is finite at zero variance."""
    return jnp.sqrt(variance + jnp.finfo(variance.dtype).eps)


def composite_cuts(centre: ArrayLike, width: ArrayLike, like: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
    """Cuts ``centre + width * {0, ±1, ±3, ±10, ±30}``; constants for differentiation."""
    centre, width = (jnp.broadcast_to(jnp.asarray(part, like.dtype), like.shape)[..., None] for part in (centre, width))
    widths = jnp.asarray(np.array(WIDTHS), like.dtype)
    return lax.stop_gradient(centre + width * jnp.expand_dims(widths, range(like.ndim)))


def rule(mean: Batch, variance: Batch, cuts: Cuts) -> tuple[Float[Array, "*batch Q"], Float[Array, "*batch Q"]]:
    """Points ``f`` and weights of ``N(mean, variance)``; ``cuts`` are values of ``f``; None: Gauss-Hermite."""
    scale = jnp.sqrt(variance)[..., None]
    if cuts is None:
        nodes, weights = (jnp.asarray(part, mean.dtype) for part in gauss_hermite(HERMITE_NODES))
        shape = mean.shape + nodes.shape
        nodes, weights = jnp.broadcast_to(nodes, shape), jnp.broadcast_to(weights, shape)
    else:
        smallest = jnp.sqrt(jnp.finfo(mean.dtype).tiny)
        nodes, weights = composite_rule((cuts - mean[..., None]) / jnp.maximum(scale, smallest))
    return mean[..., None] + scale * nodes, weights


def slope(fun: Integrand) -> Integrand:
    """Derivative of an elementwise ``fun(f, args)`` in ``f``."""
    return lambda f, args: jax.jvp(lambda x: fun(x, args), (f,), (jnp.ones_like(f),))[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _expect(fun: Integrand, mean: Batch, variance: Batch, cuts: Cuts, args: object) -> Batch:
    points, weights = rule(mean, variance, cuts)
    return jnp.sum(weights * fun(points, jax.tree.map(lambda a: a[..., None], args)), axis=-1)


def _expect_jvp(fun: Integrand, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Bonnet for the mean, Price for the variance, and the plain derivative for what ``fun`` is given."""
    mean, variance, cuts, args = primals
    mean_dot, variance_dot, _, args_dot = tangents
    value = _expect(fun, *primals)
    tangent = jnp.zeros_like(value)
    if not isinstance(mean_dot, SymbolicZero):
        tangent = tangent + _expect(slope(fun), *primals) * mean_dot
    if not isinstance(variance_dot, SymbolicZero):
        tangent = tangent + 0.5 * _expect(slope(slope(fun)), *primals) * variance_dot
    leaves, structure = jax.tree.flatten(args)
    dots = jax.tree.leaves(args_dot, is_leaf=lambda leaf: isinstance(leaf, SymbolicZero))
    moving = [i for i, dot in enumerate(dots) if not isinstance(dot, SymbolicZero)]
    if moving:

        def along(f: Array, both: tuple[list[Array], list[Array]]) -> Array:
            still, directions = both

            def at(values: list[Array]) -> Array:
                inserted = dict(zip(moving, values, strict=True))
                return fun(f, jax.tree.unflatten(structure, [inserted.get(i, leaf) for i, leaf in enumerate(still)]))

            change: Array = jax.jvp(at, ([still[i] for i in moving],), (directions,))[1]
            return change

        tangent = tangent + _expect(along, mean, variance, cuts, (leaves, [dots[i] for i in moving]))
    return value, tangent


_expect.defjvp(_expect_jvp, symbolic_zeros=True)


def expect(fun: Integrand, mean: Batch, variance: Batch, *args: Array, cuts: Cuts = None) -> Batch:
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

    Examples
    --------
    >>> round(float(expect(jnp.cos, jnp.array(0.0), jnp.array(1.0))), 5)   # exp(-1/2)
    0.60653
    >>> round(float(jax.grad(expect, argnums=2)(jnp.square, jnp.array(0.0), jnp.array(0.0))), 5)
    1.0
    """
    return _expect(lambda f, given: fun(f, *given), mean, variance, cuts, args)


def log_expect(fun: Integrand, mean: Batch, variance: Batch, *args: Array, cuts: Cuts = None) -> Batch:
    """``log E exp(fun(f, *args))``: log densities stay logarithms, shifted by their own log mean before ``exp``.

    Parameters as in `expect`. Minus infinity where every node underflows. With cuts, which are those of
    `composite_cuts` then, or several of them side by side, nodes go where the product is: for an outlier that is far
    from ``mean``. There ``N(mean, variance) = N(mean + a variance, variance) exp(a (mean - f) + a^2 variance / 2)``
    for an ``a`` that is a constant for differentiation.
    """
    still_mean, still_variance, *still_args = (lax.stop_gradient(a) for a in (mean, variance, *args))
    if cuts is None:
        return _log_expect(fun, mean, variance, *args, cuts=None)
    tilt, cuts = lax.stop_gradient(_tilt(fun, still_mean, still_variance, *still_args, cuts=cuts))

    def tilted(f: Array, tilt: Array, start: Array, *given: Array) -> Array:
        return fun(f, *given) - tilt * (f - start)

    moved = mean + tilt * variance
    constant = tilt * (mean - still_mean) + 0.5 * tilt**2 * variance
    return constant + _log_expect(tilted, moved, variance, tilt, still_mean, *args, cuts=cuts)


def _log_expect(fun: Integrand, mean: Batch, variance: Batch, *args: Array, cuts: Cuts) -> Batch:
    """`log_expect` with its nodes around ``mean``."""
    still_mean, still_variance, *still_args = (lax.stop_gradient(a) for a in (mean, variance, *args))
    points, weights = rule(still_mean, still_variance, cuts)
    values = fun(points, *[a[..., None] for a in still_args])
    estimate = logsumexp(values, b=weights, axis=-1)
    shift = jnp.where(jnp.isfinite(estimate), estimate, 0.0)

    def shifted(f: Array, given: tuple[Array, ...]) -> Array:
        return jnp.exp(fun(f, *given[:-1]) - given[-1])

    return shift + jnp.log(_expect(shifted, mean, variance, cuts, (*args, shift)))


def _tilt(
    fun: Integrand, mean: Batch, variance: Batch, *args: Array, cuts: Float[Array, "*batch K"]
) -> tuple[Batch, Float[Array, "*batch K"]]:
    """The ``a`` of `log_expect`, zero where ``fun(f) + log N(f; mean, variance)`` has its mode within `NEAR`, and cuts.

    They are those given where ``a`` is zero, and else around that mode, by the curvature there.

    Between the mean and where ``fun`` is largest, the centre of the cuts, the mode is found by bisection. The slope at
    the mean limits how far away it can be where ``fun`` is concave, and both ends are tried where it is not.
    """
    scale = jnp.sqrt(variance)[..., None]
    own = [a[..., None] for a in args]

    def density(z: Array) -> Array:
        return fun(mean[..., None] + scale * z, *own) - 0.5 * z**2

    def rises(z: Array) -> Array:
        change: Array = jax.jvp(density, (z,), (jnp.ones_like(z),))[1]
        return change

    smallest = jnp.sqrt(jnp.finfo(mean.dtype).tiny)
    centres = (cuts[..., len(WIDTHS) // 2 :: len(WIDTHS)] - mean[..., None]) / jnp.maximum(scale, smallest)
    nearer = jnp.sign(centres) * jnp.minimum(jnp.abs(centres), jnp.abs(rises(jnp.zeros_like(centres))))
    far = jnp.concatenate([centres, nearer], axis=-1)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        is_before = rises(middle) * jnp.sign(far) > 0
        return jnp.where(is_before, middle, low), jnp.where(is_before, high, middle)

    low, high = lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(far), far))
    found = jnp.concatenate([jnp.zeros_like(far), 0.5 * (low + high), far], axis=-1)
    heights = density(found)
    best = jnp.argmax(jnp.where(jnp.isnan(heights), -jnp.inf, heights), axis=-1, keepdims=True)
    mode = jnp.take_along_axis(found, best, axis=-1)
    tilt = (mode - jnp.clip(mode, -NEAR, NEAR)) / jnp.maximum(scale, smallest)
    tilt = jnp.where(jnp.isfinite(tilt), tilt, 0.0)
    curvature = jax.jvp(rises, (mode,), (jnp.ones_like(mode),))[1]
    width = lax.rsqrt(jnp.maximum(-curvature, 1.0)) * scale
    moved = composite_cuts((mean[..., None] + scale * mode)[..., 0], width[..., 0], mean)
    moved = jnp.concatenate([moved] * (cuts.shape[-1] // len(WIDTHS)), axis=-1)
    return tilt[..., 0], jnp.where(tilt == 0, cuts, moved)
