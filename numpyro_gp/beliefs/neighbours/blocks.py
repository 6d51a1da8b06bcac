"""Rows behind their neighbours: one covariance, and what one factor of it says (mathematics.md section 16.2).

A block ``B_i = (N(i), i)`` is a row behind the rows that it is conditioned on, its own place last. With a scale and a
noise for each place ``S = s s^T k(B_i, B_i) + diag(e)``; a place that is not taken has scale 0 and noise 1, and needs
no mask anywhere else. All is read off ``x = L^-T e_last``: ``x_last = 1 / sd``, ``x_N = -S_N^-1 c / sd``.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from numpyro_gp.arrays import Array, ArrayLike, T
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.linalg import add_to_diagonal
from numpyro_gp.programs.trace import ANY_POINT

# Blocks of more rows leave the cache of a processor: then so many at a time. A minibatch is not computed twice.
BLOCKS_TOGETHER = 128
BLOCKS_AT_ONCE = 256
# Numbers in the blocks of new rows that are looked at together.
NUMBERS_TOGETHER = 2**21
# Least noise of a datum by bytes of a number, in units of the kernel's variance there.
LEAST_NOISE = {8: 1e-8, 4: 1e-4}
# Least number on a diagonal, in smallest numbers of the type: no pivot is zero where a process has no variance, as a
# Wiener process at its origin.
LEAST_PIVOT = 1e6
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class NeighbourBlocks(NamedTuple):
    """Rows of the data behind their neighbours.

    Attributes
    ----------
    inputs : Array (B, K + 1, D)
        Neighbours, then the row itself.
    rows : Array (B, K)
        Numbers of the neighbours in the data, 0 where there is none.
    taken : Array (B, K)
        Whether there is one.
    """

    inputs: Float[Array, "B L D"]
    rows: Int[Array, "B K"]
    taken: Bool[Array, "B K"]

    @classmethod
    def of(cls, inputs: Array, index: Array, own: Array) -> "NeighbourBlocks":
        """Those of rows ``own`` ``(B, D)``, whose neighbours are the rows ``index`` ``(B, K)`` of ``inputs``."""
        rows = jnp.maximum(index, 0)
        return cls(jnp.concatenate([inputs[rows], own[:, None]], axis=1), rows, index >= 0)

    def behind(self, neighbours: Array, own: ArrayLike, empty: float = 0.0) -> Array:
        """Numbers ``(B, K + 1)`` of neighbours, then that of the row itself; ``empty`` in places that are not taken."""
        kept = jnp.where(self.taken, neighbours, jnp.asarray(empty, neighbours.dtype))
        last = jnp.broadcast_to(jnp.asarray(own, kept.dtype), kept.shape[:1])
        return jnp.concatenate([kept, last[:, None]], axis=1)

    def covariance(
        self, kernel: Kernel, noise: Array, scale: Array | None = None, jitter: ArrayLike = 0.0
    ) -> Float[Array, "B L L"]:
        """``s s^T k + diag(e)`` for noises and scales ``(B, K + 1)``, as `behind` makes them; None for scales of one.

        Each place has ``jitter`` times the variance of ``s f`` there as well, as noise.
        """
        gram = jax.vmap(kernel.matrix)(self.inputs)
        scales = self.behind(jnp.ones(self.taken.shape, gram.dtype), 1.0) if scale is None else scale
        gram = gram * scales[:, :, None] * scales[:, None, :]
        added = noise + jitter * jnp.diagonal(gram, axis1=-2, axis2=-1)
        return add_to_diagonal(gram, jnp.maximum(added, LEAST_PIVOT * jnp.finfo(gram.dtype).tiny))


def least_noise(dtype: Any) -> float:
    """Noise of a datum that no data remove, in units of the kernel's variance: 1e-8 in float64, 1e-4 in float32."""
    return LEAST_NOISE[jnp.dtype(dtype).itemsize]


def _last_row(covariance: Float[Array, "B L L"]) -> tuple[Float[Array, "B L L"], Float[Array, "B L"]]:
    """``L`` of ``S = L L^T``, and ``x = L^-T e_last``."""
    factor = lax.linalg.cholesky(covariance, symmetrize_input=False)
    size = covariance.shape[-1]
    last = jnp.broadcast_to((jnp.arange(size) == size - 1).astype(covariance.dtype), covariance.shape[:-1])
    return factor, _solve(factor, last, transpose=True)


def _solve(factor: Array, right: Array, transpose: bool = False) -> Array:
    solution = lax.linalg.triangular_solve(factor, right[..., None], left_side=True, lower=True, transpose_a=transpose)
    return solution[..., 0]


@jax.custom_jvp
def row_factor(covariance: Float[Array, "B L L"]) -> Float[Array, "B L"]:
    """``x = L^-T e_last`` alone, with a derivative that passes the factorisation by."""
    return _last_row(covariance)[1]


@row_factor.defjvp
def _row_factor_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """``x = S^-1 e / x_last``, so that ``dx = -S^-1 dS x + x (x^T dS x) / 2``."""
    factor, x = _last_row(primals[0])
    moved = jnp.sum(tangents[0] * x[..., None, :], axis=-1)
    solved = _solve(factor, _solve(factor, moved), transpose=True)
    return x, 0.5 * x * jnp.sum(x * moved, axis=-1, keepdims=True) - solved


def of_rows(values: Float[Array, "..."], rows: Int[Array, "..."]) -> Array:
    """Numbers of rows, of which there are one for all or one for each."""
    return jnp.broadcast_to(values, rows.shape) if values.ndim == 0 else values[rows]


def row_after_row(
    weights: Float[Array, "N K"], scale: Float[Array, " N"], index: Int[Array, "N K"], order: Array, white: Array
) -> Array:
    """Draws ``f_i = a_i . f_N(i) + sd_i v_i`` of standard normal noise ``v (..., N)``, the rows in their order."""
    flat = white.reshape(-1, len(scale)).T.astype(scale.dtype)  # rows first
    weights, index = jnp.where(index >= 0, weights, 0), jnp.maximum(index, 0)

    def step(values: Array, i: Array) -> tuple[Array, None]:
        mean = jnp.sum(weights[i][:, None] * values[index[i]], axis=0)
        return values.at[i].set(mean + scale[i] * flat[i]), None

    values, _ = lax.scan(step, jnp.zeros_like(flat), order)
    return values.T.reshape(white.shape)


def by_parts(
    function: Callable[..., T], *rows: Array, at_once: int = BLOCKS_AT_ONCE, together: int = BLOCKS_TOGETHER
) -> T:
    """``function`` of arrays with B rows each, some rows at a time and again for derivatives; results have B rows.

    Memory then does not grow with B, but by what goes in and what comes out.
    """
    size = rows[0].shape[0]
    if size <= at_once:
        return function(*rows)
    count = -(-size // together)
    missing = count * together - size

    def cut(array: Array) -> Array:
        with jax.named_scope(ANY_POINT):  # copies of the last row, whose results are dropped
            more = jnp.concatenate([array, jnp.repeat(array[-1:], missing, axis=0)]) if missing else array
        return more.reshape(count, together, *array.shape[1:])

    results = lax.map(jax.checkpoint(lambda part: function(*part)), tuple(map(cut, rows)))
    return jax.tree.map(lambda part: part.reshape(count * together, *part.shape[2:])[:size], results)
