"""Of the nearest earlier rows those that tell most about a row together (mathematics.md section 16.1).

The nearest rows often lie side by side, and each says what the others have said. Greedy selection (Huan and others,
2023) takes the next row by what it adds to those that it has: with the same number of rows the density of the data is
closer to that of the exact process, and a step costs what it cost.
"""

import numpy as np

# Rows at a time, at most: what they hold stays in the cache of a core. And numbers that their factors hold, at most.
BLOCK, HELD = 128, 2**23
# Of the variance, in the process that says what a row adds. Values from 0.01 to 0.1 do alike.
NOISE = 0.03


def most_informative(scaled: np.ndarray, asked: np.ndarray, near: np.ndarray, count: int) -> np.ndarray:
    """Numbers ``(R, K)`` of the K candidates that leave the least variance of a row, one by one; nearest first.

    The next one is ``argmax_j cov(i, j | S)^2 / var(j | S)``, by which ``var(i | S)`` falls, ``S`` what is chosen.

    Parameters
    ----------
    scaled : array (N, D)
        Rows in units of lengthscales.
    asked : array (R,)
        Numbers of the rows to choose for.
    near : array (R, C)
        Their candidates, nearest first, -1 where there are fewer.
    count : int
        K, at most C.
    """
    found = np.full((len(asked), count), -1, near.dtype)
    step = max(1, min(BLOCK, HELD // (count * near.shape[1])))
    for at in range(0, len(asked), step):
        some, own = near[at : at + step], scaled[asked[at : at + step]]
        # Seen from their own row positions in single precision keep their digits; those too far to tell are cut.
        apart = np.clip(scaled[np.maximum(some, 0)] - own[:, None], -1e6, 1e6).astype(np.float32)
        places = np.sort(_chosen(apart, some >= 0, count), axis=1)
        with_none = np.pad(some, ((0, 0), (0, 1)), constant_values=-1)
        found[at : at + step] = np.take_along_axis(with_none, places, axis=1)
    return found


def _chosen(apart: np.ndarray, exists: np.ndarray, count: int) -> np.ndarray:
    """Places ``(B, K)`` of the chosen candidates ``(B, C, D)``, C where there are none left: a Cholesky with pivots."""
    here, (size, width) = np.arange(len(apart)), exists.shape
    squares = np.einsum("bcd,bcd->bc", apart, apart)
    covariance, variance = _correlation(squares), np.full((size, width), 1 + NOISE, np.float32)
    factor, is_free = np.zeros((size, count, width), np.float32), exists.copy()
    places = np.full((size, count), width)
    for step in range(count):
        gains = np.where(is_free, covariance**2 / variance, -1)
        best = gains.argmax(axis=1)
        places[:, step] = np.where(is_free[here, best], best, width)
        is_free[here, best] = False
        cross = (apart @ apart[here, best][:, :, None])[:, :, 0]
        column = _correlation(squares + squares[here, best][:, None] - 2 * cross)
        column -= (factor[here, None, :step, best] @ factor[:, :step])[:, 0]
        root = np.sqrt(variance[here, best])[:, None]
        factor[:, step] = column / root
        covariance = covariance - factor[:, step] * (covariance[here, best][:, None] / root)
        variance = np.maximum(variance - factor[:, step] ** 2, NOISE)  # what no other row can take away
    return places


def _correlation(squares: np.ndarray) -> np.ndarray:
    """Matern 5/2 by squared distances: of all kernels that of the data is seldom far from it."""
    distance = np.sqrt(5 * np.maximum(squares, 0))
    return (1 + distance + distance**2 / 3) * np.exp(-distance)
