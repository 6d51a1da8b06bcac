"""Cholesky factors, and what is solved with them.

`factorise` gives a factor *and* its inverse, by halves (batched for matrices with leading axes, and under ``vmap``).
What follows from it, features, draws and gradients, is a matrix product, faster than a solve on CPU and much faster on
GPU; `small_cholesky` unrolls factors of up to 16 rows into array operations (mathematics.md section 12).
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.programs.private import factor_in_rows

Square = Float[Array, "*batch M M"]
# A triangular factor of up to this many rows is inverted by one solve, a larger one in blocks.
SOLVED_SIZE = 64
# Smaller factors are read across their columns in no time.
IN_ROWS = 256
# Running sums down the rows of a matrix are products of blocks of so many rows.
SUMMED_SIZE = 32
# Below this size a batch of factorisations is unrolled into array operations over the batch.
UNROLLED_SIZE = 16


def matmul(left: ArrayLike, right: ArrayLike) -> Array:
    """``A B`` in the precision of its operands: of float32 a GPU would take ten bits by default, a TPU seven."""
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def row_times(rows: Float[Array, "*batch M"], matrix: Float[Array, "M N"]) -> Float[Array, "*batch N"]:
    """``a B`` for few rows and a large matrix that is made for them; a single row gets one of zeros beneath it.

    By itself it would be multiplied inside of what makes ``B``, once more and down its columns. On a CPU, for a kernel
    of 1000 x 1024 numbers in float32, that takes 4.3 ms in place of 1.0, and with its gradient 14 in place of 2.
    """
    if math.prod(rows.shape[:-1]) != 1:
        return matmul(rows, matrix)
    row = rows.reshape(1, -1)
    product = matmul(jnp.concatenate([row, jnp.zeros_like(row)]), matrix)
    return product[0].reshape(*rows.shape[:-1], matrix.shape[-1])


def einsum(subscripts: str, *operands: ArrayLike) -> Array:
    """``jnp.einsum`` in the precision of its operands, as `matmul`."""
    return jnp.einsum(subscripts, *operands, precision=lax.Precision.HIGHEST)


def add_to_diagonal(matrix: Square, values: Float[Array, "*batch #M"]) -> Square:
    """``A + diag(v)``; its derivative in ``v`` reads the diagonal alone."""
    rows, dtype = jnp.arange(matrix.shape[-1]), jnp.result_type(matrix, values)
    diagonal = matrix.astype(dtype).at[..., rows, rows]
    return diagonal.add(values.astype(dtype), unique_indices=True, indices_are_sorted=True)


def cholesky(matrix: Square) -> Square:
    """Lower factor of a symmetric matrix; NaN where it is not positive definite, never repaired.

    LAPACK and cuSOLVER read by columns: given ``A^T = A``, what makes ``A`` stays in rows.
    """
    if matrix.dtype.itemsize < 4:
        cure = "Pass the inducing inputs, or the inputs of gp_regression, as X.astype(jax.numpy.float32)."
        fail("a covariance that is factorised", "of float32 or float64 numbers", f"{matrix.dtype}", cure, TypeError)
    return lax.linalg.cholesky(jnp.swapaxes(matrix, -1, -2), symmetrize_input=False)


def factor_of(matrix: Square) -> Square:
    """`cholesky` of a constant, as `factorise` and the search of a jitter need it: it has no derivative.

    From `IN_ROWS` rows on a CPU is asked for the factor in rows. XLA would read that of `cholesky` across its columns,
    number by number, which takes as long again as the factor itself.
    """
    matrix = lax.stop_gradient(matrix)
    if matrix.shape[-1] < IN_ROWS or matrix.dtype.itemsize < 4:
        return cholesky(matrix)
    return lax.platform_dependent(matrix, cpu=factor_in_rows, default=cholesky)


def solve_lower(
    factor: Float[Array, "M M"], right: Float[Array, " M *columns"], transpose: bool = False
) -> Float[Array, " M *columns"]:
    """``L^-1 B`` or ``L^-T B`` for one factor and right sides ``(M,)`` or ``(M, R)``."""
    return solve_triangular(factor, right, trans=int(transpose), lower=True)


def factorise(matrix: Square) -> tuple[Square, Square]:
    """Lower factor ``L`` of a positive definite matrix, and ``W = L^-1``."""
    return factorise_from(matrix, factor_of(matrix))


@jax.custom_jvp
def factorise_from(matrix: Square, factor: Square) -> tuple[Square, Square]:  # noqa: ARG001
    """``L`` and ``W = L^-1`` of a matrix whose ``L`` is found already, and a constant; derivatives are those of both.

    They are written with ``W``: for ``E = W dK W^T`` and ``Phi`` = lower triangle with its diagonal halved,
    ``dL = L Phi(E)`` and ``dW = -Phi(E) W``. Its transpose needs three matrix products, where differentiating Cholesky
    and the solve separately needs four triangular solves and three products.
    """
    return factor, inverse_lower(factor)


@factorise_from.defjvp
def _factorise_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    factor, inverse = factorise_from(*primals)
    lower = half_diagonal(congruence(inverse, tangents[0]))
    return (factor, inverse), (moved(factor, lower), matmul(-lower, inverse))


def inverse_lower(factor: Square) -> Square:
    """``L^-1``, by halves: ``[[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]``.

    A solve with the identity does not see that the result is triangular, and on a CPU runs at a third of the speed
    of a product: in halves down to 64 rows, M = 512 takes 5 ms in place of 12. Pieces of one size are one batch, so
    that the program has as many operations as there are sizes.
    """
    size, pieces = factor.shape[-1], 1
    while -(-size // pieces) > SOLVED_SIZE:
        pieces *= 2
    length = -(-size // pieces)
    whole, more = factor, pieces * length - size
    if more:  # rows and columns, ones on their diagonal
        below = jnp.eye(size + more, dtype=factor.dtype)[size:]
        below = jnp.broadcast_to(below, (*factor.shape[:-2], *below.shape))
        whole = jnp.concatenate([jnp.pad(factor, [(0, 0)] * (factor.ndim - 1) + [(0, more)]), below], axis=-2)
    blocks = _blocks_of(whole, length, 0)
    inverse = lax.linalg.triangular_solve(blocks, identity_like(blocks), left_side=True, lower=True)
    while inverse.shape[-3] > 1:
        length = inverse.shape[-1]
        pairs = inverse.reshape(*inverse.shape[:-3], -1, 2, length, length)
        upper, lower = pairs[..., 0, :, :], pairs[..., 1, :, :]
        corner = matmul(-lower, matmul(_blocks_of(whole, length, 1), upper))
        above = jnp.concatenate([upper, jnp.zeros_like(upper)], axis=-1)
        inverse = jnp.concatenate([above, jnp.concatenate([corner, lower], axis=-1)], axis=-2)
    return inverse[..., 0, :size, :size]


def _blocks_of(matrix: Square, length: int, below: int) -> Float[Array, "*batch K L L"]:
    """Square blocks on the diagonal; for ``below=1`` those below each first of two."""
    down = length * below
    at = range(0, matrix.shape[-1], length * (1 + below))
    return jnp.stack([matrix[..., i + down : i + down + length, i : i + length] for i in at], axis=-3)


def flipped(matrix: Float[Array, "*batch M N"]) -> Float[Array, "*batch N M"]:
    """``A^T`` as an array of its own, for a product ``A^T B``.

    Where both operands are summed over their first axes, XLA takes 2 to 3 times as long in float64 on a CPU, and a
    tenth to a quarter longer in float32.
    """
    return lax.optimization_barrier(jnp.swapaxes(matrix, -1, -2))


@jax.custom_jvp
def materialised(values: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """The values themselves; what their derivative is multiplied with waits until it is computed.

    XLA's CPU computes ``h_n`` again for each entry of ``A_mn h_n``, and an inverse error function in it takes as long
    as five products do. It drops `jax.lax.optimization_barrier` before that, so the transpose is a product with a one.
    """
    return values


@materialised.defjvp
def _materialised_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (change,) = tangents
    pair = matmul(change[..., None], jnp.ones((1, 2), change.dtype))
    return primals[0], pair[..., 0]


def moved(left: Float[Array, "*#batch K M"], change: Float[Array, "*#batch M N"]) -> Float[Array, "*#batch K N"]:
    """``A dB`` in a derivative, written ``(dB^T flipped(A))^T`` so that its transpose is ``flipped(A) G``."""
    return jnp.swapaxes(matmul(jnp.swapaxes(change, -1, -2), flipped(left)), -1, -2)


def moved_columns(change: Float[Array, "N K"], right: Float[Array, "M K"]) -> Float[Array, "M N"]:
    """``B dA^T`` in a derivative, for few columns; its transpose is ``(B^T G)^T``, and its parts arrays of their own.

    XLA would turn it into a product of ``G^T``, whose first axis Eigen copies number by number: on a CPU, for M = 512,
    N = 1024 and K = 9, that takes 3 times as long in float64 and 15 to 40 times in float32.
    """
    return moved(right, lax.optimization_barrier(change.T))


@jax.custom_jvp
def product(left: Float[Array, "*batch K M"], right: Float[Array, "*batch M N"]) -> Float[Array, "*batch K N"]:
    """``A B``, with derivatives whose transposes are products in their fast form."""
    return matmul(left, right)


@product.defjvp
def _product_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    left, right = primals
    return matmul(left, right), matmul(tangents[0], right) + moved(left, tangents[1])


def congruence(outer: Float[Array, "*batch K M"], inner: Square) -> Float[Array, "*batch K K"]:
    """``W (X + X^T)/2 W^T``; the transpose is ``W^T G W`` with both products in their fast form."""
    return moved(outer, matmul(0.5 * (inner + jnp.swapaxes(inner, -1, -2)), flipped(outer)))


def half_diagonal(matrix: Square) -> Square:
    """``Phi``: the lower triangle with its diagonal halved, the derivative of a Cholesky factor at the identity."""
    return jnp.tril(matrix) - 0.5 * matrix * identity_like(matrix)


def identity_like(matrix: Square) -> Square:
    """``I`` for each matrix of a batch."""
    return jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)


def nothing(matrix: Square) -> Square:
    """Zeros that ``vmap`` knows to be of each member: those of `jnp.zeros_like` are one for all."""
    return jnp.where(False, matrix, 0)


@jax.custom_jvp
def outer_square(factor: Float[Array, "*batch M K"]) -> Square:
    """``C C^T``, with a derivative whose transpose is one product, ``(G + G^T) C``, and not two."""
    return matmul(factor, jnp.swapaxes(factor, -1, -2))


@outer_square.defjvp
def _outer_square_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    half = matmul(tangents[0], jnp.swapaxes(primals[0], -1, -2))
    return outer_square(*primals), half + jnp.swapaxes(half, -1, -2)


@jax.custom_jvp
def lower_product(
    gram: Float[Array, "M M"],  # noqa: ARG001
    values: Float[Array, " M"],
    factor: Float[Array, "M M"],
    inverse: Float[Array, "M M"],  # noqa: ARG001
) -> Float[Array, " M"]:
    """``L v`` for ``L, W = factorise(K)``: a value of a Gaussian process at all its inducing inputs.

    Its derivative is written in ``K``: ``(Phi(W dK W^T) v)_i = (W dK)_i . C_i`` with ``C_i = sum_{j <= i} v_j W_j``,
    the last term halved, where through the factor it costs three products. ``W`` and ``C`` are lower triangular, so
    that the first half of the rows needs a quarter of ``K`` alone. ``W`` is used by the derivative alone.
    """
    return matmul(factor, values)


@lower_product.defjvp
def _lower_product_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    _, values, factor, inverse = primals
    gram_dot, values_dot, _, _ = tangents
    # C_i in products of blocks: a cumulative sum takes twice as long on a CPU.
    scaled_rows, count = values[:, None] * inverse, -(-len(values) // SUMMED_SIZE)
    blocks = jnp.pad(scaled_rows, ((0, count * SUMMED_SIZE - len(values)), (0, 0)))
    blocks = blocks.reshape(count, SUMMED_SIZE, len(values))
    within = matmul(half_diagonal(jnp.ones((SUMMED_SIZE, SUMMED_SIZE), blocks.dtype)), blocks)
    before = matmul(jnp.tril(jnp.ones((count, count), blocks.dtype), -1), jnp.sum(blocks, axis=1))
    sums = (within + before[:, None]).reshape(-1, len(values))[: len(values)]
    change, half = 0.5 * (gram_dot + gram_dot.T), _first_half(len(values))
    upper = jnp.sum(moved(inverse[:half, :half], change[:half, :half]) * sums[:half, :half], axis=1)
    lower = jnp.sum(moved(inverse[half:], change) * sums[half:], axis=1)
    return matmul(factor, values), matmul(factor, values_dot + jnp.concatenate([upper, lower]))


def _first_half(size: int) -> int:
    """Rows of the upper of two halves of a triangle, a multiple of eight."""
    return (size + 15) // 16 * 8


def lower_square(factor: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """``W^T W`` of a lower triangle, by halves: half of the operations of a product."""
    half = _first_half(factor.shape[-1])
    upper, corner, lower = factor[:half, :half], factor[half:, :half], factor[half:, half:]
    first, second = matmul(flipped(upper), upper) + matmul(flipped(corner), corner), matmul(flipped(lower), lower)
    beside = matmul(flipped(lower), corner)
    return jnp.block([[first, beside.T], [beside, second]])


def inverse_factors(precision: Float[Array, "M M"]) -> tuple[Float[Array, "M M"], Float[Array, "M M"]]:
    """Lower ``C`` with ``C C^T = precision^-1``, by one Cholesky of the index-reversed matrix, and ``C^-1``."""
    factor, inverse = factorise(precision[::-1, ::-1])
    return inverse.T[::-1, ::-1], factor.T[::-1, ::-1]


def inverse_factor(precision: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Lower ``C`` with ``C C^T = precision^-1``."""
    return inverse_factors(precision)[0]


def symmetric_gradient(root: Array, root_inverse: Array, cotangent: Array) -> Array:
    """Gradient with respect to ``S = C C^T``, symmetric, from the gradient with respect to ``C``."""
    lower = half_diagonal(matmul(flipped(root), cotangent))
    return matmul(matmul(flipped(root_inverse), 0.5 * (lower + lower.T)), root_inverse)


def small_cholesky(matrix: Float[Array, "*batch K K"]) -> Float[Array, "*batch K K"]:
    """Lower factors of many small matrices, unrolled over K up to 16 (batched LAPACK beyond)."""
    size = matrix.shape[-1]
    if size > UNROLLED_SIZE:
        return cholesky(matrix)
    columns: list[Array] = []
    for j in range(size):
        column = matrix[..., j:, j]
        for previous in columns:
            column = column - previous[..., j:] * previous[..., j : j + 1]
        column = column / jnp.sqrt(column[..., :1])
        columns.append(jnp.concatenate([jnp.zeros((*matrix.shape[:-2], j), matrix.dtype), column], axis=-1))
    return jnp.stack(columns, axis=-1)


def half_log_det(factor: Square) -> Float[Array, "*batch"]:
    """``sum_i log L_ii``: half the log determinant of ``L L^T``."""
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
