"""Rows at which terms are shown and inducing inputs stand: the points of grids, in NumPy."""

from collections.abc import Sequence

import numpy as np


def grid_points(axes: Sequence[np.ndarray]) -> np.ndarray:
    """The points ``(G, P)`` of a grid, the last axis fastest; of no axes one point without numbers."""
    if not axes:
        return np.zeros((1, 0))
    return np.stack([mesh.ravel() for mesh in np.meshgrid(*axes, indexing="ij")], axis=1)


def size_of_axis(size: int, count: int) -> int:
    """Points of each of ``count`` axes where a curve has ``size``: a surface has fewer on each."""
    return size if count == 1 else max(2, round(size / 2.5))
