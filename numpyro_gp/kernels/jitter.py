"""The least jitter with which a Gram matrix has a factor (mathematics.md section 1.3).

Jitter is part of the model: the whitened values stand for ``f(Z)`` with noise of variance ``eps`` that no data remove.
So it is no larger than rounding asks for: none for one row and for a diagonal matrix, else the first of an increasing
sequence at which rounding errors stay below half of it. Without rounding every squared pivot of ``K + eps I`` is at
least ``eps``; pivots say so without a second factorisation.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float
from scipy.linalg import get_lapack_funcs

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_nonnegative, fail
from numpyro_gp.linalg import Square, add_to_diagonal, factor_of, factorise, factorise_from

# Where the search begins, by bytes of a number. In float32 rounding errors of a factor grow by `PER_ROW` with its rows.
FIRST_JITTER = {8: 1e-6, 4: 1e-5}
PER_ROW = 8e-8
# Where a failure would be worse than noise: draws inside of a step, preconditioners.
AMPLE = {8: 1e-6, 4: 1e-4}
# How the sequence goes on, and how often: up to a thousand times where it began.
GROWTH = 10**0.5
TRIES = 6


class Steady(NamedTuple):
    """``K + eps I``, ``eps``, and ``L, W`` with ``L L^T = K + eps I`` and ``W = L^-1``."""

    matrix: Float[Array, "*batch M M"]
    amount: Float[Array, "*batch"]
    factor: Float[Array, "*batch M M"]
    inverse: Float[Array, "*batch M M"]


def least_jitter(dtype: np.dtype, size: int) -> float:
    """Relative jitter that the search begins with: 1e-6 in float64; in float32 1e-5, and with the rows up to 1e-4."""
    least = FIRST_JITTER[dtype.itemsize]
    return least if dtype.itemsize == 8 else min(1e-4, max(least, PER_ROW * size))


def ample_jitter(dtype: np.dtype) -> float:
    """Relative jitter that is enough for any matrix, at once."""
    return AMPLE[dtype.itemsize]


def jittered(matrix: Square, jitter: float, own: bool = False) -> tuple[Square, Array]:
    """``K + eps I`` and ``eps = jitter * mean(diag K)``.

    ``own``: each row has an ``eps`` of its own, ``jitter * diag(K)``, that of the mean where this is zero.
    """
    if check_nonnegative("jitter", jitter).ndim:
        fail("jitter", "a scalar", f"shape {jnp.shape(jitter)}", "Map over a batch of values with jax.vmap.")
    amount = jitter * unit_of(matrix, own)
    return add_to_diagonal(matrix, amount), amount if own else amount[..., 0]


def steady(matrix: Square, jitter: float | None = None, own: bool = False) -> Steady:
    """`jittered`, with its factor and the inverse of that; None finds the least jitter, NaN where none is enough."""
    if jitter is not None:
        raised, amount = jittered(matrix, jitter, own)
        return Steady(raised, amount, *factorise(raised))
    unit = unit_of(matrix, own)
    relative, factor = least_factor(matrix, unit)
    amount = relative[..., None] * unit
    raised = add_to_diagonal(matrix, amount)
    return Steady(raised, amount if own else amount[..., 0], *factorise_from(raised, factor))


def unit_of(matrix: Square, own: bool) -> Float[Array, "*batch #M"]:
    """What a jitter is relative to: the mean of the diagonal, or each of its entries."""
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    return scales(diagonal) if own else jnp.mean(diagonal, axis=-1, keepdims=True)


def least_factor(
    matrix: Float[Array, "*batch M M"], unit: Float[Array, "*#batch #M"], start: ArrayLike | None = None
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch M M"]]:
    """The least jitter relative to ``unit`` and the factor with it, for each matrix of a batch, as constants.

    ``start``: a jitter relative to ``unit`` to begin with, in place of `least_jitter`.
    """
    matrix, unit = lax.stop_gradient((matrix, unit))
    size = matrix.shape[-1]
    is_own = jnp.eye(size, dtype=bool)[(None,) * (matrix.ndim - 2)]
    least = least_jitter(matrix.dtype, size)

    def tried(relative: Array) -> tuple[Array, Array, Bool[Array, "*batch"]]:
        # No scatter, which takes longer to compile than the loop that it would stand in.
        factor = factor_of(jnp.where(is_own, matrix + (relative[..., None] * unit)[..., None], matrix))
        pivots = jnp.square(jnp.diagonal(factor, axis1=-2, axis2=-1))
        return relative, factor, ~jnp.all(pivots >= 0.5 * relative[..., None] * unit, axis=-1)

    def once_more(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        count, relative, _, is_lost = state
        more = jnp.maximum(least, GROWTH * relative)
        return count + 1, *tried(jnp.where(is_lost & (count > 0), more, relative))

    if start is None:
        is_coupled = jnp.any((matrix != 0) & ~is_own, axis=(-2, -1))
        start = jnp.where(is_coupled, least, 0)
    first = lax.stop_gradient(jnp.asarray(start, matrix.dtype))
    first = jnp.broadcast_to(first, matrix.shape[:-2])
    if size == 1:
        return tried(first)[:2]
    # The first try is a turn of the loop: a second copy of it would be traced and compiled beside.
    begin = (jnp.zeros((), int), first, jnp.zeros_like(matrix), jnp.ones(first.shape, bool))
    last = lax.while_loop(lambda state: (state[0] <= TRIES) & jnp.any(state[3]), once_more, begin)
    return last[1], last[2]


def least_jitter_of(matrix: np.ndarray, dtype: np.dtype) -> float:
    """What `least_factor` finds of one matrix ``(M, M)`` where programs compute in ``dtype``, in NumPy."""
    if np.array_equal(matrix, np.diag(np.diagonal(matrix))):
        return 0.0
    least, unit, rounded = least_jitter(dtype, len(matrix)), np.mean(np.diagonal(matrix)), matrix.astype(dtype)
    (potrf,) = get_lapack_funcs(("potrf",), (rounded,))
    relative = least
    for _ in range(TRIES):
        factor, info = potrf(rounded + np.asarray(relative * unit * np.eye(len(matrix)), dtype), lower=1)
        if info == 0 and (np.diagonal(factor) ** 2 >= 0.5 * relative * unit).all():
            break
        relative = max(least, GROWTH * relative)
    return relative


def scales(variances: Float[Array, "*batch M"]) -> Float[Array, "*batch M"]:
    """The variances, and their mean in place of those that are zero."""
    return jnp.where(variances > 0, variances, jnp.mean(variances, axis=-1, keepdims=True))
