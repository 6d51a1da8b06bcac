"""Where to put inducing points: rows of the data, or the centres of its clusters.

All functions run once, before a fit, on the training inputs ``(N, D)``, and return ``(M, D)``
*distinct* points: two equal inducing points make ``K_ZZ`` singular, so a request for more points
than there are distinct rows is refused. Distances use the columns as they are: scale them first.
Codes of categories have no mean: `kmeans` takes ``categorical=``, the others choose rows, whose codes are codes.
"""

import functools
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_key, check_points, check_positive, fail
from numpyro_gp.linalg import matmul

# --------------------------------------------------------------------------------------
# Centres of k-means: a start far apart, and Lloyd's steps, in blocks of rows.


# What Lloyd's loop carries: number of the step, centres, whether one moved, and whether rows lie in places far apart.
Carry = tuple[Array, Array, Array, Array]
# Share of the mean squared distance to the nearest centre up to which rounding of the product form changes no centre.
TOLD_APART = 0.01

# Rows whose distances to all centres are held at once: 4096 x 1000 doubles are 33 MB.
BLOCK_ROWS = 4096


def distances_to(X: Array, point: Array) -> Array:
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
        distances = jnp.minimum(distances, distances_to(X, X[index]))
        return indices.at[number].set(index), distances, distinct

    # Any row, without the sum of ones, which the compiler would work out by itself: ten seconds of 400 000 rows.
    draw = jax.random.uniform(jax.random.fold_in(key, 0), dtype=X.dtype) * X.shape[0]
    row = jnp.minimum(draw.astype(int), X.shape[0] - 1)
    first = (jnp.zeros(size, int).at[0].set(row), distances_to(X, X[row]), jnp.asarray(1))
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


__all__ = ["enough", "kmeans", "greedy_variance", "random_subset"]


class HasMatrix(Protocol):
    """What choosing rows asks of a kernel."""

    def matrix(self, X1: Array, X2: Array) -> Array:
        """Covariances ``(N1, N2)``."""

    def diagonal(self, X: Array) -> Array:
        """Variances ``(N,)``."""


def kmeans(
    key: Array, X: ArrayLike, num_inducing: int, num_iterations: int = 30, *, categorical: Sequence[int] | None = None
) -> Array:
    """Inducing inputs as dense as the data: the centres of ``M`` clusters, by k-means.

    The start is k-means++ (Arthur & Vassilvitskii 2007), then come Lloyd's iterations.

    Minimises ``sum_n min_m |x_n - z_m|^2``. Memory is ``O(N D + 4096 M)``, time ``O(N M D)`` an
    iteration. A cluster that loses all its points restarts at the row farthest from its centre.

    Parameters
    ----------
    key
        Random key of the start.
    X
        Inputs, ``(N, D)``.
    num_inducing
        M, at most the number of distinct rows.
    num_iterations
        Upper limit of Lloyd's iterations; they end earlier once no centre moves.
    categorical
        Columns that hold codes of categories, which have no mean: a centre takes the code that most of its rows
        have. Two codes are at a distance of 1, so scale the other columns first.

    Returns
    -------
    Array
        Centres ``(M, D)``; in general not rows of ``X``.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.array([[0.0], [0.2], [5.0], [5.2]])
    >>> sorted(round(float(z), 3) for z in ngp.inducing.kmeans(jax.random.key(0), X, 2)[:, 0])
    [0.1, 5.1]
    """
    X = check_request(X, num_inducing)
    check_count("num_iterations", num_iterations, minimum=0)
    if categorical is not None:
        wanted = np.atleast_1d(np.asarray(categorical)).tolist()
        numbers = [check_count("categorical", column, minimum=0) for column in wanted]
        if not numbers or max(numbers) >= X.shape[1] or len(set(numbers)) < len(numbers):
            cure = "Pass the columns of codes, such as categorical=[2]."
            fail("categorical", f"different columns of X, 0 to {X.shape[1] - 1}", f"{categorical}", cure)
        # Codes as indicators of their level; a centre has the level of which it has most.
        rows, size = np.asarray(X), int(num_inducing)
        levels = [np.unique(rows[:, column]) for column in numbers]
        others = [column for column in range(rows.shape[1]) if column not in numbers]
        unit = np.sqrt(0.5).astype(rows.dtype)
        shown = [unit * (rows[:, [column]] == own) for column, own in zip(numbers, levels, strict=True)]
        wide = np.asarray(kmeans(key, np.concatenate([rows[:, others], *shown], axis=1), size, num_iterations))
        centres, start = np.empty((size, rows.shape[1]), rows.dtype), len(others)
        centres[:, others] = wide[:, :start]
        for column, own in zip(numbers, levels, strict=True):
            centres[:, column] = own[np.argmax(wide[:, start : start + len(own)], axis=1)]
            start += len(own)
        # Clusters of mixed codes may come to the same centre: rows that are none take the place of the second.
        _, first = np.unique(centres, axis=0, return_index=True)
        known = {tuple(centre) for centre in centres[first].tolist()}
        rest = (row for row in dict.fromkeys(map(tuple, rows.tolist())) if row not in known)
        for number in sorted(set(range(size)) - set(first.tolist())):
            centres[number] = next(rest)
        return jnp.asarray(centres)
    found: tuple[Array, Array] = clusters(check_key("key", key), *centred(X), int(num_inducing), num_iterations)
    check_distinct(num_inducing, found[1])
    return found[0]


def greedy_variance(kernel: HasMatrix, X: ArrayLike, num_inducing: int, key: Array | None = None) -> Array:
    """Inducing inputs where the data leave most to say: rows of ``X`` chosen one by one by variance (Burt et al. 2019).

    At each step the row is chosen whose variance given the earlier ones is largest. This is the pivoted Cholesky
    factorisation of ``k(X, X)``: the trace of ``k(X, X) - Q(X, X)``, which the bound pays for, falls greedily. Time
    ``O(N M^2)``, memory ``O(N M)``; no ``N x N`` matrix.

    Once the variance that is left is at the level of rounding the kernel cannot tell rows apart,
    and the remaining points are those farthest from all chosen ones (in the units of ``X``).

    Parameters
    ----------
    kernel
        Object with ``matrix(X1, X2)`` and ``diagonal(X)``, at the hyper-parameters the fit starts from.
    X
        Inputs, ``(N, D)``.
    num_inducing
        M, at most the number of distinct rows.
    key
        Random order of the rows, which decides among equal variances: the first point of every
        stationary kernel. None takes the first row.

    Returns
    -------
    Array
        Rows of ``X`` in the order in which they were chosen, ``(M, D)``: the first ``m`` are the
        answer to ``num_inducing=m``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> from types import SimpleNamespace
    >>> rbf = SimpleNamespace(
    ...     matrix=lambda a, b: jnp.exp(-0.5 * (a - b.T) ** 2), diagonal=lambda a: jnp.ones(a.shape[0])
    ... )
    >>> ngp.inducing.greedy_variance(rbf, jnp.array([[0.0], [0.1], [3.0], [1.5]]), 3)[:, 0].tolist()
    [0.0, 3.0, 1.5]
    """
    X = check_request(X, num_inducing)
    if key is not None:
        X = jax.random.permutation(check_key("key", key), X)
    indices, distinct, *_ = pivots(kernel, X, int(num_inducing))
    check_distinct(num_inducing, distinct)
    return X[indices]


def enough(kernel: HasMatrix, X: ArrayLike, tolerance: float = 0.01) -> int:
    """How many inducing inputs a process needs at the data: the fewest that leave less than a share of its variance.

    The smallest M with ``tr(k(X, X) - Q(X, X)) <= tolerance tr k(X, X)`` for the M rows that `greedy_variance` chooses,
    at these hyper-parameters: take those of a fit (shorter lengthscales need more). Inducing inputs that are trained
    need fewer. With little noise let the share be below that of the noise, ``noise**2 / variance``. Time
    ``O(N M^2)``, memory ``O(N M)``.

    Parameters
    ----------
    kernel
        As for `greedy_variance`.
    X
        Inputs, ``(N, D)``.
    tolerance
        Share of the prior variance that may be left unexplained, above 0 and below 1; refused where so little is
        rounding, in single precision from some 1e-5 to 1e-3 on, the more the more points.

    Returns
    -------
    int
        M, at most the number of distinct rows.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.linspace(0.0, 10.0, 100)[:, None]
    >>> [ngp.inducing.enough(ngp.kernels.Matern52(1.0, lengthscale), X, 0.05) for lengthscale in (4.0, 2.0, 1.0)]
    [4, 7, 12]
    """
    X = check_request(X, 1)
    share = float(check_positive("tolerance", tolerance))
    if not share < 1:
        fail("tolerance", "a share, below 1", share, "Pass tolerance=0.01.")
    size, rows = min(32, len(X)), len(X)
    while True:
        _, distinct, left, told = pivots(kernel, X, size)
        result = np.flatnonzero(np.asarray(left)[: int(told)] <= share)
        if not result.size and int(told) < int(distinct):
            least = f"at least {float(left[int(told) - 1]):.2g}, below which all is rounding in {left.dtype}"
            cure = "Pass a larger one, or compute in double precision: JAX_ENABLE_X64=1."
            fail("tolerance", least, f"{share:.3g}", cure)
        if result.size or size == rows:
            return min(int(result[0]) + 1 if result.size else size, int(distinct))
        size = min(2 * size, rows)


def pivots(kernel: HasMatrix, X: Array, size: int) -> tuple[Array, Array, Array, Array]:
    """A pivoted Cholesky factorisation: row indices, the number of distinct ones, what is left, how many are told.

    What is left ``(size,)`` is the share of the trace after each row. Rows behind those that were told apart by their
    variance are the farthest. A kernel that is not finite at ``X`` is refused.
    """

    @jax.jit
    def chosen(X: Array) -> tuple[Array, ...]:
        prior = jnp.asarray(kernel.diagonal(X))
        # Rounding of the sum of `size` squares that is subtracted from the largest variance.
        rounding = 10.0 * size * float(jnp.finfo(prior.dtype).eps) * jnp.max(prior)

        def choose(number: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            indices, factor, left, distances, distinct, told, shares = carry
            exhausted = jnp.max(left) <= rounding
            index = jnp.where(exhausted, jnp.argmax(distances), jnp.argmax(left))
            column = jnp.asarray(kernel.matrix(X, X[index][None, :]))[:, 0] - matmul(factor[:, index], factor)
            root = jnp.sqrt(jnp.where(exhausted, 1.0, left[index]))
            row = jnp.where(exhausted, jnp.zeros_like(column), column / root)
            left = jnp.maximum(left - jnp.square(row), 0.0).at[index].set(0.0)
            distinct = distinct + (distances[index] > 0)
            distances = jnp.minimum(distances, distances_to(X, X[index]))
            shares = shares.at[number].set(jnp.sum(left) / jnp.sum(prior))
            told = told + ~exhausted
            return indices.at[number].set(index), factor.at[number].set(row), left, distances, distinct, told, shares

        factor, shares = jnp.zeros((size, X.shape[0]), prior.dtype), jnp.zeros(size, prior.dtype)
        none, far = jnp.asarray(0), jnp.full(X.shape[0], jnp.inf, X.dtype)
        start = (jnp.zeros(size, int), factor, prior, far, none, none, shares)
        indices, factor, _, _, distinct, told, shares = lax.fori_loop(0, size, choose, start)
        is_finite = jnp.all(jnp.isfinite(prior)) & jnp.all(jnp.isfinite(factor))
        return indices, distinct, shares, told, is_finite

    indices, distinct, left, told, is_finite = chosen(X)
    if not is_finite:
        cure = "Check its hyper-parameters: variance and lengthscale must be positive and finite."
        fail("kernel", "finite at X", "NaN or infinite variances", cure)
    return indices, distinct, left, told


def random_subset(key: Array, X: ArrayLike, num_inducing: int) -> Array:
    """Inducing inputs in no time: ``M`` rows of ``X`` drawn without replacement, all of them different.

    Parameters
    ----------
    key : PRNG key
    X : array (N, D)
    num_inducing : int
        M, at most the number of distinct rows.

    Returns
    -------
    Array (M, D)
        Rows of ``X``; a row equal to an earlier draw is passed over.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.inducing.random_subset(jax.random.key(0), jnp.ones((9, 2)) * jnp.arange(9.0)[:, None], 4).shape
    (4, 2)
    """
    X = check_request(X, num_inducing)
    rows = jax.random.permutation(check_key("key", key), X)
    _, first = np.unique(np.asarray(rows[:num_inducing]), axis=0, return_index=True)
    if len(first) < num_inducing:  # a search through all rows only where the first draws repeat
        _, first = np.unique(np.asarray(rows), axis=0, return_index=True)
        check_distinct(num_inducing, len(first))
    return rows[np.sort(first)[:num_inducing]]


def check_request(X: ArrayLike, num_inducing: int) -> Array:
    """``X`` as floats; refuse more inducing points than rows."""
    if isinstance(X, jax.core.Tracer):
        cure = "Choose inducing points outside jit, vmap and grad, before the fit."
        fail("X", "known", "a traced array", cure, TypeError)
    X = check_points("X", X)
    check_count("num_inducing", num_inducing)
    if num_inducing > X.shape[0]:
        cure = f"Pass num_inducing={X.shape[0]} or less; with inducing=X the process is not approximated."
        fail("num_inducing", f"at most the number of rows of X, {X.shape[0]}", num_inducing, cure)
    return X


def check_distinct(num_inducing: int, distinct: int | Array) -> None:
    """Refuse more inducing points than distinct rows (``distinct`` counts up to the request)."""
    if int(distinct) < num_inducing:
        required = f"at most the number of distinct rows of X, {int(distinct)}, because X has duplicates"
        fail("num_inducing", required, num_inducing, f"Pass num_inducing={int(distinct)} or less.")
