"""The bound with the terms integrated out and its gradient, in NumPy (mathematics.md section 14.6).

Gaussian noise needs sums over the rows only: each is of a size that does not grow with them. Other likelihoods need the
mean and variance of ``f`` at each row, and the pseudo-data there.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from numpyro_gp.gam.model.features import Features, factored
from numpyro_gp.gam.model.model import Model


class ExpectedTotal(NamedTuple):
    """The sum over rows of weight ``w``, its slopes in hyper-parameters ``(d,)``, and those in means and variances."""

    value: float
    of_free: np.ndarray
    of_mean: np.ndarray
    of_variance: np.ndarray


class Sums(NamedTuple):
    """Sums over rows of weights ``w`` with ``t = w (y - offset)``, for components of unit variance.

    Attributes
    ----------
    gram : array (M, M)
        ``A W A^T``.
    projected : array (M,)
        ``A t``.
    prior : array (C,)
        ``sum_n w_n k_c(x_n, x_n)``.
    gram_slopes : array (P, M, M)
        ``A' W A^T`` with slopes ``A'`` of the features.
    projected_slopes, prior_slopes : array (P, M), (P, C)
    """

    gram: np.ndarray
    projected: np.ndarray
    prior: np.ndarray
    gram_slopes: np.ndarray
    projected_slopes: np.ndarray
    prior_slopes: np.ndarray


class RowPseudoData(NamedTuple):
    """What data say about ``f`` at each row ``(N,)``: a normal density by its natural parameters.

    About several functions ``(N, J)`` and ``(N, J, J)``.
    """

    shift: np.ndarray
    weight: np.ndarray

    @property
    def has_doubt(self) -> bool:
        """Whether a row leaves more doubt than there was; none of softmax does."""
        return self.weight.ndim == 1 and bool((self.weight < 0).any())

    @classmethod
    def by(cls, expected: ExpectedTotal, mean: np.ndarray) -> "RowPseudoData":
        """Those of a natural step of length one, from the slopes of the expected log density at a marginal mean.

        Of what is not log-concave, as Student's t far from its centre, a weight may be negative: cut at zero the step
        would be none that leads uphill.
        """
        weight = -2 * expected.of_variance
        moved = weight * mean if mean.ndim == 1 else np.einsum("nij,nj->ni", weight, mean)
        return cls(expected.of_mean + moved, weight)


class BoundValue(NamedTuple):
    """The negative bound without the density of the hyper-parameters, its slopes, and the belief behind it.

    Attributes
    ----------
    loss : float
    of_scales, of_lengths, of_noise : array (C,), (C, P), float
    precision, projected : array (M, M), (M,)
        ``A W A^T`` and ``A (shift - W offset)`` of the components with their scales.
    """

    loss: float
    of_scales: np.ndarray
    of_lengths: np.ndarray
    of_noise: float
    precision: np.ndarray
    projected: np.ndarray


def summed(features: Features, weights: np.ndarray, residual: np.ndarray) -> Sums:
    """Sums over rows with weights ``w`` and ``t``, both ``(N,)``."""
    values, variances, slopes, variance_slopes = features
    weighted, half = values * weights, values * np.sqrt(weights)
    return Sums(
        half @ half.T,  # of one matrix: BLAS finds half of it
        values @ residual,
        variances @ weights,
        slopes @ weighted.T,
        slopes @ residual,
        variance_slopes @ weights,
    )


def inverse_of(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """The inverse of a positive definite matrix, and half of the logarithm of its determinant."""
    if not np.isfinite(matrix).all():  # which LAPACK need not see
        raise np.linalg.LinAlgError("the matrix must be finite")
    root, inner = factored(matrix)
    return inner.T @ inner, float(np.log(np.diagonal(root)).sum())


def gaussian_bound(
    sums: Sums, mass: float, squares: float, scales: np.ndarray, noise: float, sizes: np.ndarray
) -> BoundValue:
    """With Gaussian noise: the belief is optimal, so that slopes are those at a belief that stays.

    ``mass`` is ``sum_n w_n``, and ``squares`` are ``sum_n w_n (y_n - offset_n)^2``.
    """
    eye, first, s = np.eye(sizes.sum()), np.cumsum(sizes) - sizes, np.repeat(scales, sizes)
    gram, projected, rate = s[:, None] * sums.gram * s, s * sums.projected, noise**-2
    prior = scales**2 @ sums.prior
    S, half_log = inverse_of(eye + rate * gram)
    v = rate * (S @ projected)
    misfit = squares - 2 * v @ projected + v @ gram @ v + prior - np.trace(gram) + np.sum(S * gram)
    kl = 0.5 * (np.trace(S) + v @ v - len(v)) + half_log
    loss = kl + 0.5 * mass * np.log(2 * np.pi * noise**2) + 0.5 * rate * misfit
    of_gram, of_projected = 0.5 * rate * (np.outer(v, v) - eye + S), -rate * v
    of_scales = np.add.reduceat(2 * (of_gram * sums.gram) @ s + of_projected * sums.projected, first)
    of_scales = of_scales + rate * scales * sums.prior
    inner = s[:, None] * of_gram * s
    of_lengths = [
        np.add.reduceat(2 * np.sum(inner * one, axis=1) + s * of_projected * residual, first)
        + 0.5 * rate * scales**2 * spread
        for one, residual, spread in zip(sums.gram_slopes, sums.projected_slopes, sums.prior_slopes, strict=True)
    ]
    of_noise = mass / noise - misfit / noise**3
    by_component = np.reshape(np.transpose(of_lengths), (len(scales), -1))  # (C, P), also where P is 0
    return BoundValue(loss, of_scales, by_component, of_noise, rate * gram, rate * projected)


def bound_at_pseudo_data(
    features: Features,
    scales: np.ndarray,
    sizes: np.ndarray,
    pseudo_data: RowPseudoData,
    offset: np.ndarray,
    expected: Callable[[np.ndarray, np.ndarray], ExpectedTotal],
) -> tuple[BoundValue, np.ndarray, np.ndarray, ExpectedTotal]:
    """With pseudo-data ``(shift, weight)`` that stay, of a belief that need not be the best one.

    Of one function, or of ``J`` with the same features and independent priors, one behind the other: the belief has
    all covariances between them. Weights may be negative, as long as the belief has a covariance: else `inverse_of`
    fails. ``expected`` gives the expected log density of all rows at means and (co)variances, and its slopes in both.
    Mean and (co)variance of ``f`` at each row come back, too.
    """
    values, variances, slopes, variance_slopes = features
    s, first, N = np.repeat(scales, sizes), np.cumsum(sizes) - sizes, values.shape[1]
    shift, weight = pseudo_data.shift.reshape(N, -1), pseudo_data.weight
    A, M, J = s[:, None] * values, len(values), shift.shape[1]
    weight = weight.reshape(N, J, J)
    shift = shift - weight.sum(axis=2) * offset[:, None]
    places = [slice(j * M, (j + 1) * M) for j in range(J)]
    pairs, scratch = [(i, j) for i in range(J) for j in range(i + 1)], np.empty_like(A)

    def summed_squares(each: np.ndarray) -> np.ndarray:
        """``sum_n W_n x A_n A_n^T`` of matrices ``(N, J, J)``."""
        whole = np.empty((J * M, J * M))
        for i, j in pairs:
            w = each[:, i, j]
            sign = np.sign(w.sum())
            if i == j and np.all(sign * w >= 0):  # a matrix times its transpose: BLAS finds half of it
                np.multiply(A, np.sqrt(np.abs(w)), out=scratch)
                block = sign * (scratch @ scratch.T)
            else:
                block = np.multiply(A, w, out=scratch) @ A.T
            whole[places[i], places[j]] = whole[places[j], places[i]] = block
        return whole

    gram, projected = summed_squares(weight), (A @ shift).T.ravel()
    S, half_log = inverse_of(np.eye(J * M) + gram)
    v = S @ projected
    left = scales**2 @ variances - np.einsum("mn,mn->n", A, A)
    # Of a pair both of its blocks together: rows and covariances are symmetric.
    SA = {(i, j): 0.5 * (S[places[i], places[j]] + S[places[j], places[i]]) @ A for i, j in pairs}
    covariance = np.empty(weight.shape)
    for i, j in pairs:
        own = np.einsum("mn,mn->n", A, SA[i, j]) + (i == j) * np.maximum(left, 0)
        covariance[:, i, j] = covariance[:, j, i] = own
    mean = (offset[:, None] + A.T @ v.reshape(J, M).T).reshape(pseudo_data.shift.shape)
    variance = covariance.reshape(pseudo_data.weight.shape)
    total = expected(mean, variance)
    loss = 0.5 * (np.trace(S) + v @ v - len(v)) + half_log - total.value
    of_mean, of_variance = total.of_mean.reshape(N, J), total.of_variance.reshape(N, J, J)
    of_left = np.where(left > 0, np.trace(of_variance, axis1=1, axis2=2), 0)
    # The slope through A at a belief that stays, and through the belief that follows A.
    away = S @ (v - (A @ of_mean).T.ravel())
    of_gram = S @ (0.5 * gram + summed_squares(of_variance)) @ S - 0.5 * (np.outer(away, v) + np.outer(v, away))
    of_A = np.concatenate([away, -v]).reshape(2 * J, M).T @ np.concatenate([shift, of_mean], axis=1).T
    of_A += np.multiply(A, 2 * of_left, out=scratch)  # these arrays are large: no more passes than there must be
    for i, j in pairs:
        twice = 2 - (i == j)
        np.multiply(A, twice * weight[:, i, j], out=scratch)
        of_A += (of_gram[places[i], places[j]] + of_gram[places[j], places[i]]) @ scratch
        of_A -= np.multiply(SA[i, j], 2 * twice * of_variance[:, i, j], out=scratch)
    of_scales = np.add.reduceat(np.einsum("mn,mn->m", of_A, values), first) - 2 * scales * (variances @ of_left)
    of_lengths = [
        np.add.reduceat(s * np.einsum("mn,mn->m", of_A, one), first) - scales**2 * (spread @ of_left)
        for one, spread in zip(slopes, variance_slopes, strict=True)
    ]
    by_component = np.reshape(np.transpose(of_lengths), (len(scales), -1))  # (C, P), also where P is 0
    return BoundValue(loss, of_scales, by_component, 0.0, gram, projected), mean, variance, total


# --------------------------------------------------------------------------------------
# Many rows as tables of counts: what a Gaussian fit needs of them, at a cost that does not grow with their number.
#
# Each term reads one column, and a feature is a smooth function of it. A row is put on a grid of the column by the
# four weights of cubic interpolation, and ``A W A^T`` is found from how often values of two columns meet. Columns of
# few values have these as their grid, and nothing is interpolated. mgcv's ``bam(discrete=TRUE)`` rounds instead.


# Values of a grid, and of all grids together.
GRID, MOST = 200, 5000


class Tables(NamedTuple):
    """Counts of rows on the grids of ``D`` columns.

    Attributes
    ----------
    grid : array (Q, D')
        One value of each encoded column in a row.
    counts : array (D, D, Q, Q)
        ``P_d^T W P_e`` with weights ``P_d (N, Q)`` of interpolation.
    residual, mass : array (D, Q)
        ``P_d^T t`` and ``P_d^T w``.
    reads : array (C,)
        The number of the column of each component.
    """

    grid: np.ndarray
    counts: np.ndarray
    residual: np.ndarray
    mass: np.ndarray
    reads: np.ndarray


def tabulated_columns(model: Model) -> list[int]:
    """The columns that the terms read, where each reads one and their grids are not too many; else none."""
    parts = [part.columns for part in model.layout.read_terms]
    columns = sorted({at for own in parts for at in own})
    return [] if any(len(own) > 1 for own in parts) or GRID * len(columns) > MOST else columns


def tabulated(model: Model, X: np.ndarray, weights: np.ndarray, residual: np.ndarray) -> Tables | None:
    """Tables of rows with weights ``w`` and ``t = w (y - offset)``; None where a term reads more than one column."""
    from scipy.sparse import csr_array

    columns = tabulated_columns(model)
    if not columns:
        return None
    nodes = {at: np.unique(X[:, at]) for at in columns}
    for at, values in nodes.items():  # all where they are few, else points between quantiles and an even grid
        if model.layout.columns[at].levels is None and len(values) > GRID:
            part = np.linspace(0, 1, GRID)
            even = values[0] + part * (values[-1] - values[0])
            nodes[at] = np.unique(0.5 * (np.quantile(values, part) + even))
    size, each = max(map(len, nodes.values())), []
    for at in columns:  # weights ``(N, Q)`` of a cubic through the nearest four nodes; one at a node itself
        known, x, count = nodes[at], X[:, at], min(len(nodes[at]), 4)
        low = np.clip(np.searchsorted(known, x, side="right") - 2, 0, len(known) - count)
        places = low[:, None] + np.arange(count)
        near, values = known[places], np.ones(places.shape)
        for one, other in itertools.permutations(range(count), 2):
            values[:, one] *= (x - near[:, other]) / (near[:, one] - near[:, other])
        starts = np.arange(0, count * len(x) + 1, count)
        each.append(csr_array((values.ravel(), places.ravel(), starts), shape=(len(x), size)))
    grid = np.repeat(X[:1], size, axis=0)
    for at in columns:
        grid[:, at] = np.pad(nodes[at], (0, size - len(nodes[at])), mode="edge")
    counts = np.empty((len(columns), len(columns), size, size))
    for d, first in enumerate(each):
        heavy = first.multiply(weights[:, None]).tocsr().T
        for e, second in enumerate(each[: d + 1]):
            counts[d, e] = (heavy @ second).toarray()
            counts[e, d] = counts[d, e].T
    reads = np.array([*(columns.index(part.columns[0]) for part in model.layout.read_terms), 0])
    projected, mass = (np.stack([one.T @ values for one in each]) for values in (residual, weights))
    return Tables(grid, counts, projected, mass, reads)


def summed_tables(features: Features, tables: Tables, sizes: np.ndarray) -> Sums:
    """`bounds.summed` from features at the grids."""
    values, variances, slopes, variance_slopes = features
    of_rows = np.repeat(tables.reads, sizes)
    count, size = len(tables.counts), values.shape[1]
    weighted = np.empty((len(values), count, size))  # A_d P_d^T W P_e for each column e
    for d in range(count):
        own = of_rows == d
        weighted[own] = np.einsum("mq,eqr->mer", values[own], tables.counts[d], optimize=True)

    def with_all(rows: np.ndarray) -> np.ndarray:
        found = np.empty((len(values), len(values)))
        for e in range(count):
            found[of_rows == e] = rows[of_rows == e] @ weighted[:, e].T
        return found

    moved = np.stack([with_all(one) for one in slopes]) if len(slopes) else np.zeros((0, len(values), len(values)))
    residual, mass = tables.residual[of_rows], tables.mass[tables.reads]
    return Sums(
        with_all(values),
        np.sum(values * residual, axis=-1),
        np.sum(variances * mass, axis=-1),
        moved,
        np.sum(slopes * residual, axis=-1),
        np.sum(variance_slopes * mass, axis=-1),
    )
