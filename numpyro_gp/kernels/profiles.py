"""Integrals and averages of the stationary correlations of one column: one formula each, for NumPy and for JAX.

``xp`` is the module of the arrays, NumPy's or JAX's.
"""

import math
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import erf
from jaxtyping import Float

from numpyro_gp.arrays import Array, Values
from numpyro_gp.kernels.stationary import RBF, Matern12, Matern32, Matern52

# Lengthscales in units of the decay of the exponential.
RATES: dict[type, float] = {RBF: 1.0, Matern12: 1.0, Matern32: math.sqrt(3), Matern52: math.sqrt(5)}


def deviation_of(kind: type, z: Any, xp: ModuleType = jnp) -> tuple[Any, Any]:
    """``d = kappa - 1`` at distances ``z >= 0`` in units of the decay, of `RBF` their squares, and its last term.

    The last term, before its factor, times ``z`` gives the slope in the lengthscale. Its exponential is ``1 + d`` in
    double precision; single precision, which `JAX` may have, takes a second one to keep all digits.
    """
    d = xp.expm1(-0.5 * z if kind is RBF else -z)
    last = d + 1 if xp is np or kind in (RBF, Matern12) else xp.exp(-z)
    if kind in (Matern32, Matern52):
        last *= z
        d += last
    if kind is Matern52:
        last *= z
        d += last / 3
    return d, last


def integrated_walk(a: Values, b: Values) -> Values:
    """Covariance of the integral of a random walk at distances ``a <= b`` from its origin."""
    return a * a * (3 * b - a) / 6


def integral(kind: type, x: Any, xp: ModuleType = jnp) -> Any:
    """``int_0^x kappa`` of unit lengthscale at ``x >= 0``."""
    z, rate = RATES[kind] * x, RATES[kind]
    if kind is RBF:
        error = np.vectorize(math.erf) if xp is np else erf
        return math.sqrt(math.pi / 2) * error(x / math.sqrt(2))
    if kind is Matern12:
        return -xp.expm1(-z)
    if kind is Matern32:
        return (2 - (2 + z) * xp.exp(-z)) / rate
    return (8 - (8 + 5 * z + z * z) * xp.exp(-z)) / (3 * rate)


def double_mean(kind: type, l: Any, xp: ModuleType = jnp) -> Any:
    """``cbar``: ``kappa`` of lengthscale ``l`` averaged over both arguments in [0, 1], for short lengthscales."""
    w = RATES[kind] / l
    if kind is RBF:
        return 2 * l * integral(RBF, 1 / l, xp) + 2 * l * l * xp.expm1(-0.5 / (l * l))
    if kind is Matern12:
        return 2 * l * (1 + l * xp.expm1(-w))
    if kind is Matern32:
        return 2 * (2 * w - 3 + (3 + w) * xp.exp(-w)) / (w * w)
    return 2 * (8 * w - 15 + (15 + 7 * w + w * w) * xp.exp(-w)) / (3 * w * w)


def of_average(a_x: Values, a_y: Values, b: Any) -> Values:
    """What conditioning on an average of zero takes off ``d = kappa - 1``: ``(a(x) + a(y) + a(x) a(y) - b) / (1 + b)``.

    Of arrays of NumPy and of JAX: kernels that average to zero are ``k0(x, y) = d - of_average(a(x), a(y), b)``.
    """
    return (a_x + a_y + a_x * a_y - b) / (1 + b)


def less_average(k: Values, a_x: Values, a_y: Values, c: Any) -> Values:
    """``k(x, y) - a(x) - a(y) + c``: covariances of a function less its average, of whose growth nothing is taken."""
    return k - a_x - (a_y - c)


def over_normal(x: object, l: Any, mean: Any, sd: Any, xp: ModuleType = jnp) -> tuple[Any, Any]:
    """``a`` and ``b`` of the RBF kernel under ``N(mean, sd^2)``.

    ``1 + a = (1 + r)^-1/2 exp(-(x - m)^2 / 2 t)`` and ``1 + b = (1 + 2 r)^-1/2`` with ``r = (sd / l)^2`` and
    ``t = l^2 + sd^2``.
    """
    ratio, total = (sd / l) ** 2, l**2 + sd**2
    a = xp.expm1(-0.5 * xp.log1p(ratio) - 0.5 * (x - mean) ** 2 / total)
    return a, xp.expm1(-0.5 * xp.log1p(2 * ratio))


# --------------------------------------------------------------------------------------
# Averages of a function of one column over points: what kernels that average to zero are made of.
#
# Over thirty points they cost more than the kernels themselves. Points are taken one after the other, so that no
# matrix of rows by points is held, and derivatives are found beside the values: backwards, nothing is evaluated
# again.


# ``profile(gaps, *parameters)``, elementwise in the gaps, parameters are scalars.
Profile = Callable[..., Array]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def averages(
    profile: Profile, x: Float[Array, " N"], points: Float[Array, " Q"], weights: Float[Array, " Q"], *parameters: Array
) -> Float[Array, " N"]:
    """``sum_q w_q profile(x_n - s_q, *parameters)``."""
    return _sums(lambda point: (profile(x - point, *parameters),), points, weights)[0]


def _averages_jvp(profile: Profile, primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    x, points, weights, *parameters = primals
    moved = [at for at in range(len(parameters)) if not isinstance(tangents[3 + at], SymbolicZero)]
    moves_rows, moves_points = (not isinstance(one, SymbolicZero) for one in tangents[:2])

    def at(point: Array) -> tuple[Array, ...]:
        """The value, its slope in the gap where it is needed, and those in parameters."""
        gaps = x - point

        def slope(place: int) -> Array:
            own = lambda value: profile(gaps, *parameters[:place], value, *parameters[place + 1 :])  # noqa: E731
            return jax.jvp(own, (parameters[place],), (jnp.ones_like(parameters[place]),))[1]

        in_gap = (jax.jvp(lambda t: profile(t, *parameters), (gaps,), (jnp.ones_like(gaps),))[1],) * moves_rows
        return profile(gaps, *parameters), *in_gap, *map(slope, moved)

    value, *slopes = _sums(at, points, weights)
    change = jnp.zeros_like(value)
    if moves_rows:
        change = change + slopes[0] * tangents[0]
    for place, slope in zip(moved, slopes[moves_rows:], strict=True):
        change = change + slope * tangents[3 + place]
    rest = [(one, tangent) for one, tangent in zip((points, weights), tangents[1:3], strict=True)]
    if moves_points or not isinstance(tangents[2], SymbolicZero):  # rare: as a matrix
        known = [jnp.zeros_like(one) if isinstance(tangent, SymbolicZero) else tangent for one, tangent in rest]
        whole = lambda s, w: profile(x[:, None] - s[None, :], *parameters) @ w  # noqa: E731
        change = change + jax.jvp(whole, (points, weights), tuple(known))[1]
    return value, change


averages.defjvp(_averages_jvp, symbolic_zeros=True)


def _sums(function: Callable[[Array], tuple[Array, ...]], points: Array, weights: Array) -> tuple[Array, ...]:
    """``sum_q w_q function(s_q)`` of each array."""

    def add(total: tuple[Array, ...], one: tuple[Array, Array]) -> tuple[tuple[Array, ...], None]:
        return tuple(t + one[1] * value for t, value in zip(total, function(one[0]), strict=True)), None

    zeros = tuple(jnp.zeros(one.shape, one.dtype) for one in jax.eval_shape(function, points[0]))
    return lax.scan(add, zeros, (points, weights))[0]
