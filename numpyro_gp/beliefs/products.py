"""Products with large lower triangles on a CPU, in bands of rows: most zeros of the upper right are left out.

BLAS has such products, XLA has none. From `SMALLEST_TRIANGLE` rows on a triangle is cut into `BANDS` bands, each a
rectangle that ends at its diagonal block: four take five eighths of a whole product. Rules of derivatives are written
so that their transposes, which are what a gradient computes, are in bands too: arrays with a derivative are cut by
`jax.lax.split`, whose transpose joins.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.linalg import add_to_diagonal, cholesky, congruence, identity_like, matmul, moved, nothing, outer_square

# Smaller products lose in speed what they save, and more bands run slower than what they leave out.
SMALLEST_TRIANGLE = 512
BANDS = 4
# Below `LARGE` rows in double precision, where four save little and hold more: with 512 inducing inputs a step of 1024
# rows stays below the 32 MiB above which glibc takes memory from the system anew at each call of a compiled function.
FEW, LARGE = 2, 1024


def bands_of(size: int, count: int = BANDS) -> list[tuple[int, int]]:
    """First row, and the row after the last, of each band: multiples of 16; one band where a triangle stays whole."""
    if size < SMALLEST_TRIANGLE or jax.default_backend() != "cpu":
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
        square, below = columns[n][..., : end - start, :], columns[n][..., end - start :, :]
        rows.append(jnp.concatenate([*before, square, _transpose(below)], axis=-1))
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
    forms, lead = [], (None,) * (inner.ndim - 2)
    for n, row in enumerate(blocks):
        start, end, diagonal = row[n]
        band = [row[m][-1] + _transpose(blocks[m][n][-1]) for m in range(n)]
        times = matmul(jnp.concatenate([*band, diagonal], axis=-1), rows[:end])
        forms.append(jnp.sum(rows[lead][..., start:end, :] * times, axis=-2))
    return sum(forms[1:], forms[0])


# --------------------------------------------------------------------------------------
# Mean and variance of ``N(m, S)`` over whitened values at very many rows, where no derivative is asked for.
#
# Half of the operations of one product, in blocks of rows that stay in a processor's cache. All that does not depend
# on the rows is found once for each posterior draw (`triangle_rows`), and `at_blocks` multiplies.


# Numbers of a block of ``k(Z, X)``: two of them and a quarter of a triangle fit into a processor's own cache.
CROSS_NUMBERS = 2**18
# Blocks of rows of a triangle, each multiplied with the columns that are not zero: ten of sixteen parts of a product.
TRIANGLE_PARTS = 4
# Relative to the prior variance, what makes ``I - S`` positive definite where the data say nothing.
SLACK = {8: 1e-12, 4: 2e-6}
# Relative to the prior variance, what rounding errors are a tenth of or less.
ROUNDED_PRIOR = {8: 1e-9, 4: 3e-4}

Vector = Float[Array, "*batch M"]
Factor = Float[Array, "*batch M M"]
RowMoments = tuple[Float[Array, "*batch N"], Float[Array, "*batch N"]]


class TriangleRows(NamedTuple):
    """What ``k = k(Z, x)`` is multiplied with.

    The mean is ``m^T W k``, the variance ``(1 + slack) k_xx + sum_i sign_i (B k)_i^2``.

    ``matrix`` is ``B``, a lower triangle where ``is_lower``, with ``m^T W`` below it. By itself that row would be
    multiplied inside of what makes ``k``, once more and down its columns: on a CPU that takes as long as all of ``B``.
    """

    matrix: Float[Array, "*batch M+1 M"]
    signs: Vector
    slack: Float[Array, ""]
    is_lower: Array


def triangle_rows(
    inverse: Float[Array, "M M"], mean: Vector, factor: Factor, left: Float[Array, "*#batch M M"] | None = None
) -> TriangleRows:
    """The rows of a belief whose ``S = C C^T`` the data have narrowed, ``S <= I``, or of any other.

    Less ``R R^T`` for ``left``, what a jitter leaves of the variance (`AbstractBasis.left_by_jitter`).

    With ``I - S + slack I = U U^T``, ``U`` upper: ``B = U^T W`` is a lower triangle, all signs are -1, and ``slack``
    times the prior variance on top leaves an error of at most ``slack`` times the variance, also where ``I - S`` is
    singular. Any other ``S`` has no such root: with ``S - I = V diag(t) V^T``, ``B = diag(|t|)^(1/2) V^T W`` and the
    signs of ``t``. Both are as accurate as features are, in float32 too, where ``W^T (S - I) W`` loses all digits to
    the condition of ``k(Z, Z)``.
    """
    covariance = outer_square(factor)
    if left is not None:
        covariance = covariance - jnp.broadcast_to(outer_square(left), covariance.shape)
    slack = jnp.asarray(SLACK[factor.dtype.itemsize], factor.dtype)
    narrowed = add_to_diagonal(-covariance, jnp.broadcast_to(1 + slack, factor.shape[:-1]))
    root = cholesky(narrowed[..., ::-1, ::-1])[..., ::-1, ::-1]
    is_lower = jnp.all(jnp.isfinite(root))

    def lower() -> tuple[Array, Array]:
        return matmul(jnp.swapaxes(root, -1, -2), inverse), -jnp.ones_like(mean)

    def any_other() -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(covariance - identity_like(covariance), symmetrize_input=False)
        rotated = jnp.swapaxes(vectors * jnp.sqrt(jnp.abs(values))[..., None, :], -1, -2)
        return matmul(rotated, inverse), jnp.broadcast_to(jnp.sign(values), mean.shape)

    matrix, signs = lax.cond(is_lower, lower, any_other)
    joined = jnp.concatenate([matrix, matmul(mean, inverse)[..., None, :]], axis=-2)
    return TriangleRows(joined, signs, jnp.where(is_lower, slack, 0), is_lower)


def _in_one(rows: TriangleRows, cross: Float[Array, "M N"]) -> RowMoments:
    products = matmul(rows.matrix, cross)
    return products[..., -1, :], jnp.sum(rows.signs[..., None] * products[..., :-1, :] ** 2, axis=-2)


def _in_parts(rows: TriangleRows, cross: Float[Array, "M N"]) -> RowMoments:
    size = cross.shape[0]
    ends = [-(-size * part // TRIANGLE_PARTS) for part in range(1, TRIANGLE_PARTS)]
    limits = pairwise([0, *ends, size + 1])
    *others, last = [matmul(rows.matrix[..., start:end, :end], cross[:end]) for start, end in limits]
    parts = jnp.stack([jnp.sum(part**2, axis=-2) for part in (*others, last[..., :-1, :])])
    return last[..., -1, :], -jnp.sum(parts, axis=0)


@custom_vmap
def _products_in_parts(rows: TriangleRows, cross: Float[Array, "M N"]) -> RowMoments:
    """``m^T W k`` and ``sum_i sign_i (B k)_i^2``, in parts of a triangle if it is one."""
    return lax.cond(rows.is_lower, _in_parts, _in_one, rows, cross)


@_products_in_parts.def_vmap
def _products_of_each(
    size: int, is_mapped: tuple[TriangleRows, bool], rows: TriangleRows, cross: Array
) -> tuple[RowMoments, tuple[bool, bool]]:
    """One product for each member: of a choice that they make apart, `vmap` would compute both sides."""
    axes = jax.tree.map(lambda mapped: 0 if mapped else None, is_mapped)
    return jax.vmap(_in_one, axes, axis_size=size)(rows, cross), (True, True)


def at_blocks(
    rows: TriangleRows,
    at: Callable[[Array], tuple[Array, Array]],
    X: Float[Array, "N D"],
    size: int,
    in_full: Callable[[Array, Array], Array],
) -> RowMoments:
    """Mean and variance at all rows, for ``at(X) = k(Z, X), diag k(X, X)`` and ``size`` inducing points.

    Where a variance is near its rounding errors, those of its block are computed again in their plain form, by
    ``in_full(k(Z, X), diag k(X, X))``. A block has every ``count``-th row, so that rows that lie on several devices
    stay there.
    """

    def moments(points: Array) -> RowMoments:
        cross, prior = at(points)
        mean, change = (_products_in_parts if jax.default_backend() == "cpu" else _in_one)(rows, cross)
        variance = jnp.broadcast_to((1 + rows.slack) * prior, change.shape) + change
        is_small = jnp.any(variance < ROUNDED_PRIOR[variance.dtype.itemsize] * jnp.broadcast_to(prior, variance.shape))
        return mean, lax.cond(is_small, in_full, lambda *_: variance, cross, prior)

    count = -(-len(X) * size // CROSS_NUMBERS) if jax.default_backend() == "cpu" else 1
    if count == 1:
        return moments(X)
    length = -(-len(X) // count)
    padded = jnp.concatenate([X, jnp.broadcast_to(X[-1:], (length * count - len(X), X.shape[1]))])
    results = lax.map(moments, jnp.swapaxes(padded.reshape(length, count, -1), 0, 1))
    # From (count, ..., length) to the rows in their order.
    mean, variance = (jnp.moveaxis(part, 0, -1).reshape(*part.shape[1:-1], -1)[..., : len(X)] for part in results)
    return mean, variance
