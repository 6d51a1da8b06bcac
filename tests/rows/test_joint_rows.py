"""Rows that are drawn together: the nearest of the data and of the new rows before them."""

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.neighbours.joint_rows import joint_rows


@pytest.mark.parametrize("columns", [2, 9])
def test_each_has_the_nearest_of_the_data_and_of_new_rows_before_it(columns):
    """By a tree in two columns, and by all distances in nine."""
    rng = np.random.default_rng(columns)
    X, new, units = rng.normal(size=(30, columns)), rng.normal(size=(12, columns)), rng.uniform(0.5, 2, size=columns)
    found = joint_rows(ngp.neighbours(X, 2), new, 8, units)
    order, every = np.asarray(found.order), np.concatenate([X, new]) / units
    assert sorted(order) == list(range(12))
    for place, row in enumerate(order):
        allowed = np.append(np.arange(30), 30 + order[:place])
        distances = ((every[allowed] - every[30 + row]) ** 2).sum(axis=1)
        assert list(found.index[row]) == list(allowed[np.argsort(distances)][:8])


def test_few_rows_have_fewer():
    near = ngp.neighbours(np.arange(3.0)[:, None], 1)
    found = joint_rows(near, np.array([[0.2], [1.2]]), 10, np.ones(1))
    first, second = np.asarray(found.order)
    assert list(found.index[first]) == [*np.argsort(np.abs(np.arange(3) - [0.2, 1.2][first])), -1]
    assert sorted(found.index[second]) == [0, 1, 2, 3 + first]
    assert joint_rows(near, np.array([[0.2]]), 2, np.ones(1)).index.tolist() == [[0, 1]]
