"""The search for the nearest rows, beside all distances sorted."""

import numpy as np
import pytest

from numpyro_gp.rows.nearest import earlier, nearest, twins_of


def by_sorting(rows, order, count, asked, twins=None):
    place, found = np.argsort(order), np.full((len(asked), count), -1)
    for at, row in enumerate(asked):
        before = np.flatnonzero(
            (place < place[row]) & (np.ones(len(rows), bool) if twins is None else twins != twins[row])
        )
        turn = before[np.argsort(((rows[before] - rows[row]) ** 2).sum(axis=1), kind="stable")][:count]
        found[at, : len(turn)] = turn
    return found


@pytest.mark.parametrize(("size", "columns"), [(300, 1), (700, 2), (500, 9)])  # by a tree, and by all distances
def test_rows_found_are_those_of_all_distances_sorted(rng, size, columns):
    rows, order = rng.normal(size=(size, columns)), rng.permutation(size)
    some = rng.permutation(size)[:40]
    for asked in (np.arange(size), some):
        assert np.array_equal(earlier(rows, order, 7, None, asked), by_sorting(rows, order, 7, asked))
    new = rng.normal(size=(30, columns))
    apart = ((rows[None] - new[:, None]) ** 2).sum(axis=-1)
    assert np.array_equal(nearest(rows, new, 9), np.argsort(apart, axis=1)[:, :9])
    own = ((rows[None] - rows[:, None]) ** 2).sum(axis=-1)
    assert np.array_equal(nearest(rows, rows, 5, np.arange(size)), np.argsort(own, axis=1)[:, 1:6])


@pytest.mark.parametrize("columns", [2, 9])
def test_equal_rows_do_not_count_for_each_other(rng, columns):
    rows = np.repeat(rng.normal(size=(60, columns)), 5, axis=0)
    twins, order = twins_of(rows), rng.permutation(300)
    assert twins_of(rows[::5]) is None
    assert all(len(set(twins[5 * at : 5 * at + 5])) == 1 for at in range(60))
    assert len(set(twins)) == 60
    found, place = earlier(rows, order, 6, twins, np.arange(300)), np.argsort(order)
    expected = by_sorting(rows, order, 6, np.arange(300), twins)
    apart = lambda index: np.where(index >= 0, ((rows[index] - rows[:, None]) ** 2).sum(axis=-1), np.inf)  # noqa: E731
    np.testing.assert_allclose(apart(found), apart(expected))  # equal rows tie
    assert (apart(found) > 0).all()
    assert ((place[found] < place[:, None]) | (found < 0)).all()


def test_rows_far_from_zero_are_told_apart(rng):
    """Distances in float32 of rows that are not centred would be zero."""
    rows = 1e4 + rng.normal(size=(300, 9))
    assert np.array_equal(
        earlier(rows, np.arange(300), 3, None, np.arange(300)), by_sorting(rows, np.arange(300), 3, range(300))
    )
