"""Mean and variance of ``N(m, S)`` over whitened values at very many rows, where no derivative is asked for.

Half of the operations of one product, in blocks of rows that stay in a processor's cache. All that does not depend on
the rows is found once for each posterior draw (`rows_of`), and `at_blocks` multiplies.
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
from numpyro_gp.linalg import add_to_diagonal, cholesky, identity_like, matmul, outer_square

# Numbers of a block of ``k(Z, X)``: two of them and a quarter of a triangle fit into a processor's own cache.
BLOCK = 2**18
# Blocks of rows of a triangle, each multiplied with the columns that are not zero: ten of sixteen parts of a product.
PARTS = 4
# Relative to the prior variance, what makes ``I - S`` positive definite where the data say nothing.
SLACK = {8: 1e-12, 4: 2e-6}
# Relative to the prior variance, what rounding errors are a tenth of or less.
ROUNDED = {8: 1e-9, 4: 3e-4}

Vector = Float[Array, "*batch M"]
Factor = Float[Array, "*batch M M"]
Moments = tuple[Float[Array, "*batch N"], Float[Array, "*batch N"]]


class Rows(NamedTuple):
    """What ``k = k(Z, x)`` is multiplied with.

    The mean is ``m^T W k``, the variance ``(1 + slack) k_xx + sum_i sign_i (B k)_i^2``.

    ``matrix`` is ``B``, a lower triangle where ``is_lower``, with ``m^T W`` below it. By itself that row would be
    multiplied inside of what makes ``k``, once more and down its columns: on a CPU that takes as long as all of ``B``.
    """

    matrix: Float[Array, "*batch M+1 M"]
    signs: Vector
    slack: Float[Array, ""]
    is_lower: Array


def rows_of(
    inverse: Float[Array, "M M"], mean: Vector, factor: Factor, left: Float[Array, "M M"] | None = None
) -> Rows:
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
    return Rows(joined, signs, jnp.where(is_lower, slack, 0), is_lower)


def _in_one(rows: Rows, cross: Float[Array, "M N"]) -> Moments:
    products = matmul(rows.matrix, cross)
    return products[..., -1, :], jnp.sum(rows.signs[..., None] * products[..., :-1, :] ** 2, axis=-2)


def _in_parts(rows: Rows, cross: Float[Array, "M N"]) -> Moments:
    size = cross.shape[0]
    ends = [-(-size * part // PARTS) for part in range(1, PARTS)]
    limits = pairwise([0, *ends, size + 1])
    *others, last = [matmul(rows.matrix[..., start:end, :end], cross[:end]) for start, end in limits]
    parts = jnp.stack([jnp.sum(part**2, axis=-2) for part in (*others, last[..., :-1, :])])
    return last[..., -1, :], -jnp.sum(parts, axis=0)


@custom_vmap
def _products(rows: Rows, cross: Float[Array, "M N"]) -> Moments:
    """``m^T W k`` and ``sum_i sign_i (B k)_i^2``, in parts of a triangle if it is one."""
    return lax.cond(rows.is_lower, _in_parts, _in_one, rows, cross)


@_products.def_vmap
def _products_of_each(
    size: int, is_mapped: tuple[Rows, bool], rows: Rows, cross: Array
) -> tuple[Moments, tuple[bool, bool]]:
    """One product for each member: of a choice that they make apart, `vmap` would compute both sides."""
    axes = jax.tree.map(lambda mapped: 0 if mapped else None, is_mapped)
    return jax.vmap(_in_one, axes, axis_size=size)(rows, cross), (True, True)


def at_blocks(
    rows: Rows,
    at: Callable[[Array], tuple[Array, Array]],
    X: Float[Array, "N D"],
    size: int,
    in_full: Callable[[Array, Array], Array],
) -> Moments:
    """Mean and variance at all rows, for ``at(X) = k(Z, X), diag k(X, X)`` and ``size`` inducing points.

    Where a variance is near its rounding errors, those of its block are computed again in their plain form, by
    ``in_full(k(Z, X), diag k(X, X))``. A block has every ``count``-th row, so that rows that lie on several devices
    stay there.
    """

    def moments(points: Array) -> Moments:
        cross, prior = at(points)
        mean, change = (_products if jax.default_backend() == "cpu" else _in_one)(rows, cross)
        variance = jnp.broadcast_to((1 + rows.slack) * prior, change.shape) + change
        is_small = jnp.any(variance < ROUNDED[variance.dtype.itemsize] * jnp.broadcast_to(prior, variance.shape))
        return mean, lax.cond(is_small, in_full, lambda *_: variance, cross, prior)

    count = -(-len(X) * size // BLOCK) if jax.default_backend() == "cpu" else 1
    if count == 1:
        return moments(X)
    length = -(-len(X) // count)
    padded = jnp.concatenate([X, jnp.broadcast_to(X[-1:], (length * count - len(X), X.shape[1]))])
    found = lax.map(moments, jnp.swapaxes(padded.reshape(length, count, -1), 0, 1))
    # From (count, ..., length) to the rows in their order.
    mean, variance = (jnp.moveaxis(one, 0, -1).reshape(*one.shape[1:-1], -1)[..., : len(X)] for one in found)
    return mean, variance
