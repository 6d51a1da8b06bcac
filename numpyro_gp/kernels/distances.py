"""Squared distances between rows, with derivatives that are finite where rows are equal."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.kernels.hyperparameters import inner_products
from numpyro_gp.linalg import moved_columns

# Rows and columns of a matrix in single precision whose distances are found by differences, at little more cost there.
FEW_ROWS, FEW_COLUMNS = 300, 16
# Columns up to which those between two sets of rows are found by differences there, which takes less time on a CPU.
FEWEST_COLUMNS = 4


def squared_distances(A: Float[Array, "N1 D"], B: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
    """``|a_i - b_j|^2``: by differences in few columns, whose error is that of the inputs, and the product in more."""
    return _differences(A, B) if A.shape[1] == 1 else _in_columns(A, B)


def _differences(A: Float[Array, "N1 1"], B: Float[Array, "N2 1"]) -> Float[Array, "N1 N2"]:
    return jnp.square(A - B.T)


def _differences_of_one(A: Float[Array, "N 1"], B: Float[Array, "N 1"]) -> Float[Array, "N N"]:
    """Of a column and itself: in ``a_i - a_j`` a compiler that has fused the scaling rounds only one of the two."""
    return jnp.square(jnp.maximum(A, B.T) - jnp.minimum(A, B.T))


def _by_columns(
    of_one: Callable[[Array, Array], Array], A: Float[Array, "N1 D"], B: Float[Array, "N2 D"]
) -> Float[Array, "N1 N2"]:
    """The sum over columns of their squared differences."""
    found = jnp.zeros((A.shape[0], B.shape[0]), jnp.result_type(A, B))
    for column in range(A.shape[1]):
        found = found + of_one(*(rows[:, column : column + 1] for rows in (A, B)))
    return found


@jax.custom_jvp
def _in_columns(A: Float[Array, "N1 D"], B: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
    """``|a_i|^2 + |b_j|^2 - 2 a_i . b_j``; rounding below zero is cut off, the derivative is that of the distance.

    Of rows R lengthscales apart rounding of the product is ``1e-7 R^2``, which in single precision is soon more than a
    jitter: in few columns by differences.
    """
    if jnp.finfo(A.dtype).bits <= 32 and A.shape[1] <= FEWEST_COLUMNS:
        return _by_columns(_differences, A, B)
    norms = jnp.sum(A * A, axis=1)[:, None] + jnp.sum(B * B, axis=1)[None, :]
    return jnp.maximum(norms - 2 * inner_products(A, B), 0)


@_in_columns.defjvp
def _in_columns_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (A, B), (change_A, change_B) = primals, tangents
    return _in_columns(A, B), 2 * (inner_products(*_pair(A, change_A, B)) + moved_columns(*_pair(B, change_B, A)))


def _pair(A: Float[Array, "N1 D"], change: Float[Array, "N1 D"], B: Float[Array, "N2 D"]) -> tuple[Array, Array]:
    """``(a_i . da_i, da_i)`` and ``(1, -b_j)``, whose inner products are ``(a_i - b_j) . da_i``.

    The column of ones lets one product take sums as well, in its transpose too.
    """
    left = jnp.concatenate([jnp.sum(A * change, axis=1, keepdims=True), change], axis=1)
    return left, jnp.concatenate([jnp.ones((len(B), 1), B.dtype), -B], axis=1)


@jax.custom_jvp
def squared_distances_gram(A: Float[Array, "N D"]) -> Float[Array, "N N"]:
    """``|a_i - a_j|^2``: symmetric to the last bit; it and its derivatives are exactly zero on the diagonal.

    By differences in one column, and of few rows or columns in single precision: rows that are near to each other and
    many lengthscales from the mean of all, as in blocks of neighbours, are then as far apart as they are.
    """
    is_single, most = jnp.finfo(A.dtype).bits <= 32, FEW_COLUMNS if A.shape[0] <= FEW_ROWS else FEWEST_COLUMNS
    if A.shape[1] == 1 or (is_single and A.shape[1] <= most):
        return _by_columns(_differences_of_one, A, A)
    products, norms = inner_products(A, A), jnp.sum(A * A, axis=1)
    # On a CPU a large product of rows with themselves is symmetric to the last bit, and reading it by columns as well
    # would take several times as long as the product does. Of few rows, and on other devices, it takes no time.
    is_even = A.shape[0] > FEW_ROWS and jax.default_backend() == "cpu"
    twice = 2 * products if is_even else products + products.T
    return _off_diagonal(jnp.maximum((norms[:, None] + norms[None, :]) - twice, 0))


@squared_distances_gram.defjvp
def _squared_distances_gram_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    if primals[0].shape[1] == 1:
        change = jax.jvp(lambda A: _differences(A, A), primals, tangents)[1]
    else:
        # Two products: the transpose of ``half + half.T`` reads a matrix by rows and by columns at once.
        left, right = _pair(primals[0], tangents[0], primals[0])
        change = 2 * (inner_products(left, right) + moved_columns(left, right))
    return squared_distances_gram(*primals), _off_diagonal(change)


def _off_diagonal(matrix: Float[Array, "N N"]) -> Float[Array, "N N"]:
    return jnp.where(jnp.eye(len(matrix), dtype=bool), 0, matrix)
