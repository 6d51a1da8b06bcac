"""Which rows are looked at where there are too many to look at all."""

import numpy as np


def some_rows(count: int, most: int) -> np.ndarray:
    """Return the numbers of at most ``most`` of ``count`` rows, in order: always the same ones, chosen at random.

    Every k-th row of a table that is sorted by time may be of the same unit.
    """
    if count <= max(1, most):
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[: max(1, most)])
