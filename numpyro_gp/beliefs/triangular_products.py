"""Products with large lower triangles on a CPU, by halves: the zeros of the upper right quarter are left out.

BLAS has such products, XLA has none. From `SMALLEST` rows on a triangle is ``[[A, 0], [B, D]]``, and half as many rows
take half of the time that they save. Rules of derivatives are written so that their transposes, which are what a
gradient computes, are halves too: arrays with a derivative are cut by `jax.lax.split`, whose transpose joins.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.linalg import congruence, flipped, matmul, moved, outer_square

# Smaller products lose in speed what they save.
SMALLEST = 512


def half_of(size: int) -> int:
    """Rows of the upper half of a triangle, a multiple of 16; 0 where it stays whole."""
    return (size + 31) // 32 * 16 if size >= SMALLEST and jax.default_backend() == "cpu" else 0


def _cut(matrix: Float[Array, "*batch M N"], half: int, axis: int) -> list[Array]:
    sizes = [half, matrix.shape[axis] - half]
    return list(lax.split(matrix, sizes, axis=matrix.ndim + axis))


def _behind(zeros: int, matrix: Float[Array, "*batch M N"], axis: int) -> Array:
    """Zeros before a matrix."""
    return jnp.pad(matrix, [(zeros, 0) if n == matrix.ndim + axis else (0, 0) for n in range(matrix.ndim)])


def lower_times(lower: Float[Array, "*batch M M"], right: Float[Array, "*#batch M N"]) -> Float[Array, "*batch M N"]:
    """``L B``."""
    half = half_of(lower.shape[-1])
    if not half:
        return matmul(lower, right)
    upper = matmul(lower[..., :half, :half], right[..., :half, :])
    return jnp.concatenate([upper, matmul(lower[..., half:, :], right)], axis=-2)


def lower_moved(lower: Float[Array, "*#batch M M"], change: Float[Array, "*#batch M N"]) -> Float[Array, "*#batch M N"]:
    """``L dB`` in a derivative; its transpose is ``L^T G``."""
    half = half_of(lower.shape[-1])
    if not half:
        return moved(lower, change)
    first, second = _cut(change, half, -2)
    return moved(lower[..., :half], first) + _behind(half, moved(lower[..., half:, half:], second), -2)


def moved_lower(left: Float[Array, "*#batch M M"], change: Float[Array, "*#batch M M"]) -> Float[Array, "*#batch M M"]:
    """``A dL`` of a lower triangle in a derivative; its transpose is that triangle of ``A^T G``, but for two blocks."""
    half = half_of(change.shape[-1])
    if not half:
        return moved(left, change)
    first, second = _cut(change, half, -1)
    return jnp.concatenate([moved(left, first), moved(left[..., half:], second[..., half:, :])], axis=-1)


def lower_congruence(lower: Float[Array, "M M"], inner: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """``L X L^T`` in a derivative, for the change of a covariance, which is symmetric; the transpose is ``L^T G L``."""
    half = half_of(lower.shape[-1])
    if not half:
        return congruence(lower, inner)
    first, second = _cut(inner, half, -1)
    right = matmul(first, flipped(lower[:, :half])) + _behind(half, matmul(second, flipped(lower[half:, half:])), -1)
    return lower_moved(lower, right)


@jax.custom_jvp
def lower_outer_square(lower: Float[Array, "*batch M M"]) -> Float[Array, "*batch M M"]:
    """``L L^T`` of a lower triangle, whose derivative is one too."""
    half = half_of(lower.shape[-1])
    if not half:
        return outer_square(lower)
    top, below, corner = lower[..., :half, :half], lower[..., half:, :half], lower[..., half:, half:]
    beside = matmul(below, jnp.swapaxes(top, -1, -2))
    return jnp.block(
        [[outer_square(top), jnp.swapaxes(beside, -1, -2)], [beside, outer_square(below) + outer_square(corner)]]
    )


@lower_outer_square.defjvp
def _lower_outer_square_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (lower,), (change,) = primals, tangents
    half = half_of(lower.shape[-1])
    if not half:
        return jax.jvp(outer_square, primals, tangents)
    first, second = _cut(change, half, -1)
    own = matmul(first, jnp.swapaxes(lower[..., :half], -1, -2))
    corner = matmul(second[..., half:, :], jnp.swapaxes(lower[..., half:, half:], -1, -2))
    own = own + _behind(half, _behind(half, corner, -1), -2)
    return lower_outer_square(lower), own + jnp.swapaxes(own, -1, -2)
