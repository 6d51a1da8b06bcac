"""Products with large lower triangles on a CPU, in bands of rows: most zeros of the upper right are left out.

BLAS has such products, XLA has none. From `SMALLEST` rows on a triangle is cut into `BANDS` bands, each a rectangle
that ends at its diagonal block: four take five eighths of a whole product. Rules of derivatives are written so that
their transposes, which are what a gradient computes, are in bands too: arrays with a derivative are cut by
`jax.lax.split`, whose transpose joins.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.linalg import congruence, matmul, moved, nothing, outer_square

# Smaller products lose in speed what they save, and more bands run slower than what they leave out.
SMALLEST = 512
BANDS = 4
# Below `LARGE` rows in double precision, where four save little and hold more: with 512 inducing inputs a step of 1024
# rows stays below the 32 MiB above which glibc takes memory from the system anew at each call of a compiled function.
FEW, LARGE = 2, 1024


def bands_of(size: int, count: int = BANDS) -> list[tuple[int, int]]:
    """First row, and the row after the last, of each band: multiples of 16; one band where a triangle stays whole."""
    if size < SMALLEST or jax.default_backend() != "cpu":
        return [(0, size)]
    rows = -(-size // (16 * count)) * 16
    return [(start, min(start + rows, size)) for start in range(0, size, rows)]


def _with_bands(matrix: Float[Array, "*batch M N"], axis: int, few: bool = False) -> list[tuple[int, int, Array]]:
    """The bands of an axis, each with its part of the matrix; ``few``: only `FEW` where `LARGE` says so."""
    size, is_double = matrix.shape[axis], matrix.dtype.itemsize == 8
    bands = bands_of(size, FEW if few and is_double and size < LARGE else BANDS)
    if len(bands) == 1:
        return [(*bands[0], matrix)]
    parts = lax.split(matrix, [end - start for start, end in bands], axis=matrix.ndim + axis)
    return [(start, end, part) for (start, end), part in zip(bands, parts, strict=True)]


def _transpose(matrix: Float[Array, "*batch M N"]) -> Float[Array, "*batch N M"]:
    return jnp.swapaxes(matrix, -1, -2)


def _sum_behind(parts: list[tuple[int, Array]], *axes: int) -> Array:
    """The sum of matrices, each behind so many zeros along the axes."""
    (_, total), *others = parts
    for zeros, part in others:
        total = total + jnp.pad(part, [(zeros if n - part.ndim in axes else 0, 0) for n in range(part.ndim)])
    return total


def lower_times(lower: Float[Array, "*batch M M"], right: Float[Array, "*#batch M N"]) -> Float[Array, "*batch M N"]:
    """``L B``."""
    rows = [matmul(lower[..., start:end, :end], right[..., :end, :]) for start, end in bands_of(lower.shape[-1])]
    return jnp.concatenate(rows, axis=-2)


def lower_moved(lower: Float[Array, "*#batch M M"], change: Float[Array, "*#batch M N"]) -> Float[Array, "*#batch M N"]:
    """``L dB`` in a derivative; its transpose is ``L^T G``."""
    bands = _with_bands(change, -2)
    # A band of single precision is turned as its product reads it, in less time than by a copy.
    is_turned = len(bands) > 1 and lower.ndim == 2 and lower.dtype.itemsize == 4
    product = matmul if is_turned else moved
    return _sum_behind([(start, product(lower[..., start:, start:end], part)) for start, end, part in bands], -2)


def symmetric_moved(
    symmetric: Float[Array, "*#batch M M"], change: Float[Array, "*#batch M M"]
) -> Float[Array, "*#batch M M"]:
    """``A dL`` of a symmetric matrix and a lower triangle in a derivative; its transpose is a triangle of ``A G``."""
    bands = _with_bands(change, -1, few=True)
    columns = [_transpose(matmul(_transpose(part[..., at:, :]), symmetric[..., at:, :])) for at, _, part in bands]
    return jnp.concatenate(columns, axis=-1)


def lower_congruence(lower: Float[Array, "M M"], inner: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower triangle of ``L X L^T`` in a derivative, for symmetric ``X``; what stands above it is arbitrary.

    Its transpose is ``L^T G L`` for a lower triangle ``G``.
    """
    if len(bands_of(lower.shape[-1])) == 1:
        return congruence(lower, inner)
    bands = _with_bands(lower_moved(lower, inner), -1)
    parts = [(start, matmul(part[start:], lower[start:, start:end].T)) for start, end, part in bands]
    return _sum_behind(parts, -1, -2)


@jax.custom_jvp
def lower_outer_square(lower: Float[Array, "*batch M M"]) -> Float[Array, "*batch M M"]:
    """``L L^T`` of a lower triangle, whose derivative is one too."""
    bands = bands_of(lower.shape[-1])
    if len(bands) == 1:
        return outer_square(lower)
    columns = [matmul(lower[..., start:, :end], _transpose(lower[..., start:end, :end])) for start, end in bands]
    rows = []
    for n, (start, end) in enumerate(bands):
        before = [columns[m][..., start - first : end - first, :] for m, (first, _) in enumerate(bands[:n])]
        own, below = columns[n][..., : end - start, :], columns[n][..., end - start :, :]
        rows.append(jnp.concatenate([*before, own, _transpose(below)], axis=-1))
    return jnp.concatenate(rows, axis=-2)


@lower_outer_square.defjvp
def _lower_outer_square_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    half = _moved_by_transpose(*primals, *tangents)
    return lower_outer_square(*primals), half + _transpose(half)


@jax.custom_jvp
def outer_square_in_forms(lower: Float[Array, "*batch M M"]) -> Float[Array, "*batch M M"]:
    """Zero, whose derivative ``2 dL L^T`` is that of ``L L^T`` in quadratic forms: for rules that are written in it."""
    return nothing(lower)


@outer_square_in_forms.defjvp
def _outer_square_in_forms_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return outer_square_in_forms(*primals), 2 * _moved_by_transpose(*primals, *tangents)


def _moved_by_transpose(lower: Array, change: Array) -> Array:
    """``dL L^T``; its transpose is a lower triangle of ``G L``."""
    bands = _with_bands(change, -1)
    parts = [(at, matmul(part[..., at:, :], _transpose(lower[..., at:, at:end]))) for at, end, part in bands]
    return _sum_behind(parts, -1, -2)


def quadratic_forms(inner: Float[Array, "*batch M M"], rows: Float[Array, "M N"]) -> Float[Array, "*batch N"]:
    """``A_n^T Y A_n`` in a derivative, linear in ``Y``; its transpose is ``A diag(h) A^T``, one corner by the other."""
    blocks = [_with_bands(part, -1, few=True) for _, _, part in _with_bands(inner, -2, few=True)]
    found, lead = [], (None,) * (inner.ndim - 2)
    for n, own in enumerate(blocks):
        start, end, diagonal = own[n]
        band = [own[m][-1] + _transpose(blocks[m][n][-1]) for m in range(n)]
        times = matmul(jnp.concatenate([*band, diagonal], axis=-1), rows[:end])
        found.append(jnp.sum(rows[lead][..., start:end, :] * times, axis=-2))
    return sum(found[1:], found[0])
