"""Centres of k-means: a start far apart, and Lloyd's steps, in blocks of rows."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.linalg import matmul

# What Lloyd's loop carries: number of the step, centres, whether one moved, and whether rows lie in places far apart.
Carry = tuple[Array, Array, Array, Array]
# Share of the mean squared distance to the nearest centre up to which rounding of the product form changes no centre.
TOLD_APART = 0.01

# Rows whose distances to all centres are held at once: 4096 x 1000 doubles are 33 MB.
BLOCK_ROWS = 4096


def squared_distances(X: Array, point: Array) -> Array:
    """``|x_n - point|^2`` by differences, exactly zero for duplicates; shape ``(N,)``."""
    return jnp.sum(jnp.square(X - point[None, :]), axis=1)


def plus_plus(key: Array, X: Array, size: int) -> tuple[Array, Array]:
    """Row indices of a k-means++ start, each drawn in proportion to its squared distance to those before it.

    Also the number of distinct rows among them, which is less than ``size`` where X has no more.
    """

    def choose(number: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        indices, distances, distinct = carry
        cumulative = jnp.cumsum(distances)
        draw = jax.random.uniform(jax.random.fold_in(key, number), dtype=X.dtype) * cumulative[-1]
        index = jnp.minimum(jnp.searchsorted(cumulative, draw, side="right"), X.shape[0] - 1)
        # Rounding of the sum can point at a row that is a centre already.
        index = jnp.where(distances[index] > 0, index, jnp.argmax(distances))
        distinct = distinct + (distances[index] > 0)
        distances = jnp.minimum(distances, squared_distances(X, X[index]))
        return indices.at[number].set(index), distances, distinct

    start = (jnp.zeros(size, int), jnp.ones(X.shape[0], X.dtype), jnp.asarray(0))
    first = choose(jnp.asarray(0), start)
    first = (first[0], squared_distances(X, X[first[0][0]]), first[2])
    indices, _, distinct = lax.fori_loop(1, size, choose, first)
    return indices, distinct


def assign(X: Array, centres: Array, is_far: ArrayLike = True) -> tuple[Array, Array, Array]:
    """Sums ``(M, D)`` and counts ``(M,)`` of the rows nearest to each centre, and ``min_m |x_n - z_m|^2`` ``(N,)``.

    ``is_far``: by differences, whose error is that of the inputs, as rows in places far apart need it; else by the
    product ``|z|^2 - 2 x.z``, which takes a fraction of the time in many columns.
    """
    size, columns = centres.shape
    rows = min(BLOCK_ROWS, X.shape[0])
    blocks = -(-X.shape[0] // rows)
    padding = blocks * rows - X.shape[0]
    padded = jnp.pad(X, ((0, padding), (0, 0))).reshape(blocks, rows, columns)
    real = (jnp.arange(blocks * rows) < X.shape[0]).reshape(blocks, rows)
    squares = jnp.sum(jnp.square(centres), axis=1)

    def by_differences(points: Array) -> Array:
        def add(column: Array, total: Array) -> Array:
            return total + jnp.square(points[:, column, None] - centres[None, :, column])

        total = lax.fori_loop(0, columns, add, jnp.zeros((rows, size), X.dtype))
        return jnp.argmin(total, axis=1)

    def by_products(points: Array) -> Array:
        return jnp.argmin(squares[None, :] - matmul(2.0 * points, centres.T), axis=1)

    def block(carry: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        points, is_real = inputs
        labels = lax.cond(is_far, by_differences, by_products, points)
        member = jax.nn.one_hot(labels, size, dtype=X.dtype) * is_real[:, None].astype(X.dtype)
        distances = jnp.sum(jnp.square(points - centres[labels]), axis=1)
        return (carry[0] + matmul(member.T, points), carry[1] + jnp.sum(member, axis=0)), distances

    start = (jnp.zeros_like(centres), jnp.zeros(size, X.dtype))
    (sums, counts), distances = lax.scan(block, start, (padded, real))
    return sums, counts, distances.reshape(-1)[: X.shape[0]]


def lloyd(X: Array, centres: Array, num_iterations: int) -> Array:
    """Move every centre to the mean of its rows until none moves; an empty one to a far row."""
    rounding = jnp.finfo(X.dtype).eps * jnp.max(jnp.sum(jnp.square(X), axis=1))

    def move(carry: Carry) -> Carry:
        number, centres, _, is_far = carry
        sums, counts, distances = assign(X, centres, is_far)
        means = sums / jnp.maximum(counts, 1.0)[:, None]
        empty = counts == 0
        _, farthest = lax.top_k(distances, centres.shape[0])
        seeds = X[farthest[jnp.cumsum(empty) - 1]]  # the j-th empty cluster takes the j-th farthest row
        moved = jnp.where(empty[:, None], seeds, means)
        return number + 1, moved, jnp.any(moved != centres), rounding > TOLD_APART * jnp.mean(distances)

    start = (jnp.asarray(0), centres, jnp.asarray(True), jnp.asarray(True))
    return lax.while_loop(lambda carry: (carry[0] < num_iterations) & carry[2], move, start)[1]


@jax.jit
def centred(X: Array) -> tuple[Array, Array]:
    """Inputs less their mean, and the mean: the product form of the distance needs centred inputs.

    A program of its own: fused into distances, equal rows would be at one of rounding from each other.
    """
    offset = jnp.mean(X, axis=0, keepdims=True)
    return X - offset, offset


@functools.partial(jax.jit, static_argnames="size")
def clusters(key: Array, X: Array, offset: Array, size: int, num_iterations: int) -> tuple[Array, Array]:
    """Centres of k-means of centred inputs, moved back, and the number of distinct rows among those it began with."""
    indices, distinct = plus_plus(key, X, size)
    return lloyd(X, X[indices], num_iterations) + offset, distinct
