"""The search for the nearest rows, beside all distances sorted."""

import numpy as np
import pytest

from numpyro_gp.neighbours import search as nearest_rows
from numpyro_gp.neighbours.search import Tree, around, earlier, nearest, twins_of


def by_sorting(rows, order, count, asked, twins=None):
    place, found = np.argsort(order), np.full((len(asked), count), -1)
    for at, row in enumerate(asked):
        before = np.flatnonzero(
            (place < place[row]) & (np.ones(len(rows), bool) if twins is None else twins != twins[row])
        )
        turn = before[np.argsort(((rows[before] - rows[row]) ** 2).sum(axis=1), kind="stable")][:count]
        found[at, : len(turn)] = turn
    return found


def test_rows_that_lie_in_few_of_many_columns_are_found_by_a_tree(rng):
    """On a surface of three dimensions in twelve columns; where rows fill them, and where all are equal, by distances."""
    rows = np.sin(rng.normal(size=(8000, 3)) @ rng.normal(size=(3, 12))) + 1e-3 * rng.normal(size=(8000, 12))
    filled, equal = rng.normal(size=(8000, 12)), np.ones((8000, 12))
    has_tree = [nearest_rows._has_tree(8000, nearest_rows._dimension(one)) for one in (rows, filled, equal)]
    assert has_tree == [True, False, False]
    order, asked = rng.permutation(8000), rng.permutation(8000)[:20]
    assert np.array_equal(earlier(rows, order, 7, None, asked), by_sorting(rows, order, 7, asked))


def test_many_equal_rows_take_no_more_memory(rng, monkeypatch):
    """Answers of a tree would grow up to all pairs of rows; then all distances are computed, some rows at a time."""
    monkeypatch.setattr(nearest_rows, "HELD_DISTANCES", 2**12)
    rows, order, asked = np.repeat(rng.normal(size=(4, 1)), 60, axis=0), rng.permutation(240), np.arange(240)
    twins, most = twins_of(rows), []
    tree = nearest_rows.Tree(rows)
    monkeypatch.setattr(nearest_rows, "Tree", lambda rows: Asked(type(tree)(rows), most))
    found, expected = earlier(rows, order, 3, twins, asked), by_sorting(rows, order, 3, asked, twins)
    apart = lambda index: np.where(index >= 0, np.abs(rows[index, 0] - rows), np.inf)  # noqa: E731
    np.testing.assert_allclose(apart(found), apart(expected))
    assert ((np.argsort(order)[found] < np.argsort(order)[:, None]) | (found < 0)).all()
    assert 0 < max(most) <= 240 * 28  # twice the first question, 2 K + 8 of each row


class Asked:
    """A tree that notes how many answers it gives at a time."""

    def __init__(self, tree, most):
        self.tree, self.most = tree, most

    def query(self, rows, count):
        self.most.append(len(rows) * count)
        return self.tree.query(rows, count)


def test_rows_are_equal_only_where_all_columns_are():
    """Beside a column of nanoseconds, whose sum with another column keeps nothing of that one."""
    rows = np.stack([1.6e18 + 1e9 * np.repeat(np.arange(4.0), 2), np.tile([0.0, 1.0], 4)], axis=1)
    assert twins_of(rows) is None
    kinds = twins_of(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, -0.0]]))
    assert kinds[0] == kinds[2] != kinds[1]


@pytest.mark.parametrize("columns", [1, 9])
@pytest.mark.parametrize("has_twins", [True, False])
def test_of_rows_as_near_as_each_other_those_of_a_random_order_are_taken(columns, has_twins):
    """A table that is sorted by its targets, as of classes: all 32 neighbours of a row were of the first class.

    Of 32 out of 100 rows, half of a class, 16 are expected and 2.4 the standard deviation.
    """
    rows = np.zeros((101, columns))
    rows[:100, 0] = 1 if has_twins else np.where(np.arange(100) % 2, 1, -1)
    rows[:100, -1] += 0 if has_twins else 1e-9 * np.arange(100)[::-1]  # no twins, and ties but for rounding
    twins, last, order = twins_of(rows) if has_twins else None, np.array([100]), np.arange(101)
    if not has_twins:
        rows[:100, -1] = rows[:100, 0] if columns == 1 else 0
    found = [around(rows, 32, twins, last), nearest(rows, rows[100:], 32, last), earlier(rows, order, 32, twins, last)]
    found.append(Tree(rows[:100]).query(rows[100:], 32))
    for index in found:
        assert len(set(index[0].tolist()) - {100}) == 32
        assert 6 <= (index < 50).sum() <= 26


def test_of_places_on_both_sides_of_a_row_both_are_taken():
    kinds = np.repeat(np.arange(3), 50)
    found = around(0.1 * kinds[:, None], 16, kinds, np.flatnonzero(kinds == 1))
    assert ((found < 50).sum(axis=1) > 0).all()
    assert ((found >= 100).sum(axis=1) > 0).all()
    assert len(np.unique(found)) == 100  # equal rows are not all given the same of the next
