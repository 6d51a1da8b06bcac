"""The nearest rows, of those before a row in an ordering or of all: NumPy and SciPy, before anything is traced.

A tree of SciPy's answers where columns, or those that rows lie in, are few for the number of rows. Else all distances
are computed, some rows at a time, and of them only the least of each group of 16 is sorted: the K nearest rows lie in
the K groups whose nearest are nearest. Both are exact, and take those of a random order of rows that are equally near:
by their numbers all that a table sorted by its targets has beside a row would be of one class.
"""

from typing import Any

import numpy as np

# Rows whose distances are held at a time: at most so many, and so many distances.
HELD_ROWS = 256
HELD_DISTANCES = 2**25
GROUP = 16  # rows of a group
TREE_COLUMNS = 6  # columns in which a tree is quicker whatever the number of rows
ROWS_PER_LEAF = 100  # in more of them it asks for so many rows in each corner of the space
EQUAL = 1e-6  # relative difference of squared distances that rounding makes, as of rows on either side
SAMPLE = 1000  # rows that say in how many columns all lie


def earlier(
    scaled: np.ndarray, order: np.ndarray, count: int, twins: np.ndarray | None, asked: np.ndarray
) -> np.ndarray:
    """Numbers ``(R, K)`` of the K nearest rows that come before each of the rows ``asked``, -1 where there are fewer.

    Parameters
    ----------
    scaled : array (N, D)
        Rows in units of lengthscales.
    order : array (N,)
        Numbers of the rows, first to last.
    count : int
        K.
    twins : array (N,), optional
        A number that equal rows share: rows do not count for their equals. None lets them.
    asked : array (R,)
        Rows to search for.
    """
    size = len(scaled)
    place = np.empty(size, np.int64)
    place[order] = np.arange(size)
    rows, kinds = scaled[order], None if twins is None else twins[order]
    columns = _dimension(scaled)
    turn = np.argsort(place[asked], kind="stable")  # in the order of the ordering: the first need to look at few rows
    sorted_places, start = place[asked][turn], 0
    index = np.full((len(turn), count), -1, np.int32)
    while start < len(turn):
        # Rows that share one look at those before them: for trees at most twice as many.
        stop = min(len(turn), start + _rows_at_once(size))
        if _has_tree(size, columns):
            first = sorted_places[start]
            stop = int(np.searchsorted(sorted_places, max(2 * first, first + HELD_ROWS), side="right"))
        at = sorted_places[start:stop]
        last = at[-1] + 1
        places = _before(rows[:last], at, count, None if kinds is None else kinds[:last], columns)
        index[turn[start:stop]] = np.where(places >= 0, order[places], -1)
        start = stop
    return index


def _dimension(scaled: np.ndarray) -> float:
    """Estimate in how many columns rows lie: one more, to be safe, than Levina and Bickel (2004) by ten neighbours."""
    columns = int(scaled.shape[1])
    some = np.ldexp(scaled[:: max(1, len(scaled) // SAMPLE)][:SAMPLE], -_exponent(scaled))
    if columns <= TREE_COLUMNS or len(some) < SAMPLE:
        return columns
    centred = some - some.mean(axis=0)
    squares = np.maximum(_distances(some, some, SAMPLE, np.float64)[0] + (centred**2).sum(axis=1)[:, None], 0)
    ten = np.sort(np.partition(squares, 10, axis=1)[:, :11], axis=1)[:, 1:]
    # A row with an equal one says nothing of the dimension.
    ten = ten[ten[:, 0] > 1e-12 * ten[:, -1]]
    logs = np.log(ten) / 2
    apart = np.mean(logs[:, -1:] - logs[:, :-1]) if len(ten) else 0.0
    return float(np.clip(1 + 1 / apart, TREE_COLUMNS + 0.1, columns)) if apart > 0 else columns


def _has_tree(size: int, columns: float) -> bool:
    return columns <= TREE_COLUMNS or ROWS_PER_LEAF * 2.0**columns <= size


def _rows_at_once(size: int) -> int:
    return int(max(1, min(HELD_ROWS, HELD_DISTANCES // size)))


def _before(rows: np.ndarray, asked: np.ndarray, count: int, kinds: np.ndarray | None, columns: float) -> np.ndarray:
    """Places of the nearest of the rows before each of ``own``, nearest first."""
    step = _rows_at_once(len(rows))
    if not _has_tree(len(rows), columns):
        parts = [asked[at : at + step] for at in range(0, len(asked), step)]
        return np.concatenate([_by_distances(rows[part], rows, count, part, kinds) for part in parts])
    tree, index = Tree(rows), np.full((len(asked), count), -1)
    left, wanted = np.arange(len(asked)), 2 * count + 8
    while len(left):
        wanted = min(wanted, len(rows))
        at = asked[left]
        if len(left) * wanted > max(HELD_DISTANCES // 8, 4 * (count + 4) * len(asked)):
            # Many rows equal these: all distances take less than a tree's answers, and do not grow in memory.
            for start in range(0, len(left), step):
                some = left[start : start + step]
                index[some] = _by_distances(rows[asked[some]], rows, count, asked[some], kinds)
            break
        places = tree.query(rows[at], wanted)
        counts = places < at[:, None]
        if kinds is not None:
            counts &= kinds[places] != kinds[at][:, None]
        turn = np.argsort(~counts, axis=1, kind="stable")[:, :count]
        kept = np.where(np.take_along_axis(counts, turn, 1), np.take_along_axis(places, turn, 1), -1)
        index[left, : kept.shape[1]] = kept
        is_short = counts.sum(axis=1) < np.minimum(count, at)
        left = left[is_short] if wanted < len(rows) else left[:0]
        wanted *= 3
    return index


def nearest(scaled: np.ndarray, new: np.ndarray, count: int, without: np.ndarray | None = None) -> np.ndarray:
    """Numbers ``(B, K)`` of the K nearest of the rows ``(N, D)`` for each new row, nearest first.

    ``without``: the number of a row ``(B,)`` that does not count, as that of the row itself.
    """
    wanted, tree = count + (without is not None), None
    if _has_tree(len(scaled), _dimension(scaled)):
        tree = Tree(scaled)
    step, parts = HELD_ROWS * GROUP if tree is not None else _rows_at_once(len(scaled)), []
    for at in range(0, len(new), step):
        rows = new[at : at + step]
        places = _by_distances(rows, scaled, wanted) if tree is None else tree.query(rows, wanted)
        if without is not None:
            is_own = places == without[at : at + step, None]
            turn = np.argsort(is_own, axis=1, kind="stable")[:, :count]
            places = np.take_along_axis(places, turn, 1)
        parts.append(places.astype(np.int32))
    return np.concatenate(parts)


def around(scaled: np.ndarray, count: int, twins: np.ndarray | None, asked: np.ndarray) -> np.ndarray:
    """Numbers ``(R, K)`` of the K nearest of all other rows of each of the rows ``asked``; arguments as in `earlier`.

    Where equal rows do not count the different ones are searched, however many equal each, and then their rows listed.
    """
    if twins is None:
        return nearest(scaled, scaled[asked], count, asked)
    order = _shuffled(len(scaled))
    members, sizes = order[np.argsort(twins[order], kind="stable")], np.bincount(twins)
    starts = np.cumsum(sizes) - sizes
    different, (numbers, back) = scaled[members[starts]], np.unique(twins[asked], return_inverse=True)
    index = np.full((len(asked), count), -1, np.int32)
    if len(different) == 1:
        return index
    kinds = nearest(different, different[numbers], min(count, len(different) - 1), numbers)
    apart = squared_distances_to(different[numbers], different, kinds)
    # Of kinds as far as another, as on both sides of a row, some of each: a number that they share.
    ranks = np.cumsum(np.diff(apart, axis=1, prepend=0) > EQUAL * apart, axis=1)
    rng = np.random.default_rng(2)
    for at in range(0, len(asked), HELD_ROWS):
        some, some_ranks = kinds[back[at : at + HELD_ROWS]], ranks[back[at : at + HELD_ROWS]]
        many = np.arange(min(count, int(sizes[some].max())))
        turn = some_ranks[:, :, None] + rng.random((*some.shape, len(many)))
        turn[many >= sizes[some][:, :, None]] = np.inf
        first = rng.integers(sizes[some])[:, :, None]
        rows = members[starts[some][:, :, None] + (first + many) % sizes[some][:, :, None]]
        turn, rows = turn.reshape(len(some), -1), rows.reshape(len(some), -1)
        best = np.argsort(turn, axis=1)[:, :count]
        listed = np.where(np.isfinite(np.take_along_axis(turn, best, 1)), np.take_along_axis(rows, best, 1), -1)
        index[at : at + HELD_ROWS, : listed.shape[1]] = listed
    return index


def _shuffled(size: int) -> np.ndarray:
    """The order in which rows are searched: another than `ngp.neighbours` conditions in."""
    return np.random.default_rng(1).permutation(size)


def _exponent(*arrays: np.ndarray) -> int:
    """A power of two, by which no number is above one: squares of rows in any units are then numbers."""
    return int(np.frexp(max(np.abs(array).max(initial=0.0) for array in arrays))[1])


def squared_distances_to(wanted: np.ndarray, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Squared distances ``(B, K)`` to rows by their places, column by column, in units in which they are numbers."""
    exponent, total = _exponent(wanted, rows), np.zeros(places.shape)
    for target, column in zip(np.ldexp(wanted, -exponent).T, np.ldexp(rows, -exponent).T, strict=True):
        total += np.square(target[:, None] - column[places])
    return total


class Tree:
    """SciPy's tree of rows, for those who ask it again and again."""

    def __init__(self, rows: np.ndarray) -> None:
        from scipy.spatial import cKDTree  # takes longer to import than all of this library

        self._order, self._exponent = _shuffled(len(rows)), _exponent(rows)
        self._tree = cKDTree(np.ldexp(rows[self._order], -self._exponent))

    def query(self, new: np.ndarray, count: int) -> np.ndarray:
        """Numbers ``(B, K)`` of the nearest rows of each new row, nearest first."""
        far = 1e100  # from where rounding has made all distances equal, and their squares are still numbers
        new = np.clip(np.ldexp(new, -self._exponent), -far, far)
        return self._order[self._tree.query(new, count)[1].reshape(len(new), count)]


def _by_distances(
    wanted: np.ndarray, rows: np.ndarray, count: int, before: np.ndarray | None = None, kinds: np.ndarray | None = None
) -> np.ndarray:
    """Places ``(B, K)`` of the nearest rows, -1 where there are fewer.

    ``before``: only rows below these places count, of other ``kinds`` than those there. Distances are found in
    float32, and those of the candidates again in full. Where the rounding of float32 may have hidden a nearer row, as
    in a tight cluster that is far from the mean of all, the distances of that row are found in float64, and where that
    is not enough, as of columns in other units by powers of ten, by differences.
    """
    order, exponent = _shuffled(len(rows)), _exponent(wanted, rows)
    wanted, shuffled = np.ldexp(wanted, -exponent), np.ldexp(rows[order], -exponent)
    places, unsure = np.full((len(wanted), count), -1), np.arange(len(wanted))
    for dtype in (np.float32, np.float64, None):
        left, step = [], max(1, _rows_at_once(len(rows)) // (1 if dtype is np.float32 else 2))
        for at in range(0, len(unsure), step):
            some = unsure[at : at + step]
            hidden = None if before is None else order[None] >= before[some, None]
            if before is not None and kinds is not None:
                hidden |= kinds[order][None] == kinds[before[some]][:, None]
            places[some], is_sure = _candidates(wanted[some], shuffled, count, hidden, dtype)
            left.append(some[~is_sure])
        unsure = np.concatenate([unsure[:0], *left])
    return np.where(places >= 0, order[places], -1)


def _candidates(
    wanted: np.ndarray,
    rows: np.ndarray,
    count: int,
    hidden: np.ndarray | None,
    dtype: type[np.floating[Any]] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """`_by_distances` with the first look in a precision, or by differences; and where that was enough, ``(B,)``."""
    size = -(-len(rows) // GROUP)
    squares, lengths = _distances(wanted, rows, GROUP * size, dtype)
    if hidden is not None:
        squares[:, : len(rows)][hidden] = np.inf
    groups = squares.reshape(len(wanted), GROUP, size).min(axis=1)
    here, least = np.arange(len(wanted))[:, None], np.full(len(wanted), np.inf)
    # One group more than there are rows to be found, for distances that are nearly equal.
    some = min(count + 1, size)
    best = np.arange(size)[None] + 0 * here
    if some < size:
        best = np.argpartition(groups, some, axis=1)
        least, best = groups[here[:, 0], best[:, some]], best[:, :some]
    places = (best[:, :, None] + size * np.arange(GROUP)).reshape(len(wanted), -1)
    nearby, keep = squares[here, places], count + GROUP
    if keep < places.shape[1]:
        turn = np.argpartition(nearby, keep, axis=1)[:, : keep + 1]
        least = np.minimum(least, nearby[here[:, 0], turn[:, keep]])
        places, nearby = places[here, turn[:, :keep]], nearby[here, turn[:, :keep]]
    apart = wanted[:, None] - rows[np.minimum(places, len(rows) - 1)]
    exact = np.where(np.isfinite(nearby), np.einsum("bkd,bkd->bk", apart, apart), np.inf)
    turn = np.argsort(exact, axis=1, kind="stable")[:, :count]
    places, exact = places[here, turn], exact[here, turn]
    missing = ((0, 0), (0, count - places.shape[1]))
    places = np.pad(np.where(np.isfinite(exact), places, -1), missing, constant_values=-1)
    last = np.where(np.isfinite(exact[:, -1]), exact[:, -1], 0)  # where there are fewer rows none is hidden
    is_sure = ~np.isfinite(least) | (last == 0)
    if dtype is None:
        return places, is_sure | True
    # What `_distances` says at most of a row that is nearer: it is no longer than |a| and the root of the last square,
    # and rounding adds at most D + 4 units of that.
    most = lengths + np.sqrt(last)
    rounding = (rows.shape[1] + 4) * (np.finfo(dtype).eps / 2 * (most**2 + 2 * lengths * most) + np.finfo(dtype).tiny)
    is_sure |= least > last - lengths**2 + rounding
    return places, is_sure | (rounding <= EQUAL / 1000 * last)


def _distances(
    wanted: np.ndarray, rows: np.ndarray, size: int, dtype: type[np.floating[Any]] | None
) -> tuple[np.ndarray, np.ndarray]:
    """``|b|^2 - 2 a.b`` ``(B, size)`` and ``|a|``; without a ``dtype`` squared distances, by differences, and zeros."""
    if dtype is None:
        squares = np.full((len(wanted), size), np.inf)
        squares[:, : len(rows)] = 0
        for target, column in zip(wanted.T, rows.T, strict=True):
            squares[:, : len(rows)] += np.square(target[:, None] - column)
        return squares, np.zeros(len(wanted))
    centre = rows.mean(axis=0)
    right = np.zeros((size, rows.shape[1] + 1), dtype)
    right[: len(rows), :-1], right[len(rows) :, -1] = rows - centre, np.inf
    right[: len(rows), -1] = (right[: len(rows), :-1] ** 2).sum(axis=1)
    target = wanted - centre
    left = np.concatenate([-2 * target, np.ones((len(wanted), 1))], axis=1).astype(dtype)
    return np.asarray(left @ right.T), np.linalg.norm(target, axis=1)


def twins_of(rows: np.ndarray) -> np.ndarray | None:
    """A number for each row that equal rows share; None where all are different."""
    order = np.lexsort(rows.T)
    is_new = np.any(rows[order][1:] != rows[order][:-1], axis=1)
    kinds = np.zeros(len(rows), np.int64)
    kinds[order[1:]] = np.cumsum(is_new)
    return None if is_new.all() else kinds


# --------------------------------------------------------------------------------------
# Of the nearest earlier rows those that tell most about a row together (mathematics.md section 16.1).
#
# The nearest rows often lie side by side, and each says what the others have said. Greedy selection (Huan and others,
# 2023) takes the next row by what it adds to those that it has: with the same number of rows the density of the data is
# closer to that of the exact process, and a step costs what it cost.


# Rows at a time, at most: what they hold stays in the cache of a core. And numbers that their factors hold, at most.
CHOSEN_ROWS, CHOSEN_NUMBERS = 128, 2**23
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
    chosen = np.full((len(asked), count), -1, near.dtype)
    step = max(1, min(CHOSEN_ROWS, CHOSEN_NUMBERS // (count * near.shape[1])))
    for at in range(0, len(asked), step):
        some, points = near[at : at + step], scaled[asked[at : at + step]]
        # Seen from their own row positions in single precision keep their digits; those too far to tell are cut.
        apart = np.clip(scaled[np.maximum(some, 0)] - points[:, None], -1e6, 1e6).astype(np.float32)
        # A Cholesky with pivots. Places ``(B, K)`` of the chosen candidates, C where there are none left.
        here, (size, width), is_free = np.arange(len(apart)), some.shape, some >= 0
        squares = np.einsum("bcd,bcd->bc", apart, apart)
        covariance, variance = _correlation(squares), np.full((size, width), 1 + NOISE, np.float32)
        factor, places = np.zeros((size, count, width), np.float32), np.full((size, count), width)
        for done in range(count):
            gains = np.where(is_free, covariance**2 / variance, -1)
            best = gains.argmax(axis=1)
            places[:, done] = np.where(is_free[here, best], best, width)
            is_free[here, best] = False
            cross = (apart @ apart[here, best][:, :, None])[:, :, 0]
            column = _correlation(squares + squares[here, best][:, None] - 2 * cross)
            column -= (factor[here, None, :done, best] @ factor[:, :done])[:, 0]
            root = np.sqrt(variance[here, best])[:, None]
            factor[:, done] = column / root
            covariance = covariance - factor[:, done] * (covariance[here, best][:, None] / root)
            variance = np.maximum(variance - factor[:, done] ** 2, NOISE)  # what no other row can take away
        places = np.sort(places, axis=1)
        with_none = np.pad(some, ((0, 0), (0, 1)), constant_values=-1)
        chosen[at : at + step] = np.take_along_axis(with_none, places, axis=1)
    return chosen


def _correlation(squares: np.ndarray) -> np.ndarray:
    """Matern 5/2 by squared distances: of all kernels that of the data is seldom far from it."""
    distance = np.sqrt(5 * np.maximum(squares, 0))
    return (1 + distance + distance**2 / 3) * np.exp(-distance)
