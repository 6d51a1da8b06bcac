"""Averages of a function of one column over points: what kernels that average to zero are made of.

Over thirty points they cost more than the kernels themselves. Points are taken one after the other, so that no matrix
of rows by points is held, and derivatives are found beside the values: backwards, nothing is evaluated again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Float

from numpyro_gp.arrays import Array

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
