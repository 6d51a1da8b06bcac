"""Many rows as tables of counts: what a Gaussian fit needs of them, at a cost that does not grow with their number.

Each term reads one column, and a feature is a smooth function of it. A row is put on a grid of the column by the four
weights of cubic interpolation, and ``A W A^T`` is found from how often values of two columns meet. Columns of few
values have these as their grid, and nothing is interpolated. mgcv's ``bam(discrete=TRUE)`` rounds instead.
"""

from typing import Any, NamedTuple

import numpy as np

from numpyro_gp.gam.model.features import Features
from numpyro_gp.gam.model.model import Model
from numpyro_gp.gam.search.bound_formulas import Sums

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
    columns = tabulated_columns(model)
    if not columns:
        return None
    nodes = {at: nodes_of(X[:, at], model.layout.columns[at].levels is not None) for at in columns}
    size = max(map(len, nodes.values()))
    each = [interpolation(X[:, at], nodes[at], size) for at in columns]
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


def nodes_of(x: np.ndarray, is_category: bool) -> np.ndarray:
    """All values where they are few, else points between quantiles and an even grid."""
    values = np.unique(x)
    if is_category or len(values) <= GRID:
        return values
    at = np.linspace(0, 1, GRID)
    return np.unique(0.5 * (np.quantile(values, at) + values[0] + at * (values[-1] - values[0])))


def interpolation(x: np.ndarray, nodes: np.ndarray, size: int) -> Any:
    """Weights ``(N, Q)`` by which values at the nodes give a cubic through the nearest four; one at a node itself."""
    from scipy.sparse import csr_array

    count = min(len(nodes), 4)
    low = np.clip(np.searchsorted(nodes, x, side="right") - 2, 0, len(nodes) - count)
    places = low[:, None] + np.arange(count)
    near = nodes[places]
    values = np.ones(places.shape)
    for one in range(count):
        for other in range(count):
            if one != other:
                values[:, one] *= (x - near[:, other]) / (near[:, one] - near[:, other])
    starts = np.arange(0, count * len(x) + 1, count)
    return csr_array((values.ravel(), places.ravel(), starts), shape=(len(x), size))


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

    def each(leaf: np.ndarray, totals: np.ndarray, reads: np.ndarray) -> np.ndarray:
        return np.sum(leaf * totals[reads], axis=-1)

    moved = np.stack([with_all(one) for one in slopes]) if len(slopes) else np.zeros((0, len(values), len(values)))
    return Sums(
        with_all(values),
        each(values, tables.residual, of_rows),
        each(variances, tables.mass, tables.reads),
        moved,
        each(slopes, tables.residual, of_rows),
        each(variance_slopes, tables.mass, tables.reads),
    )
