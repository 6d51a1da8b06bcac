"""Neighbours that are chosen by what they tell together, beside dense linear algebra of NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp

RNG = np.random.default_rng(5)
X = RNG.uniform(size=(120, 3))
NOISE = 0.03  # that of the process which says what a row tells


def covariance(rows, lengthscale, noise):
    apart = np.sqrt(5 * (((rows[:, None] - rows[None]) / lengthscale) ** 2).sum(axis=-1))
    return (1 + apart + apart**2 / 3) * np.exp(-apart) + noise * np.eye(len(rows))


def left(dense, row, chosen):
    """Variance of a row given others."""
    given = np.array(chosen, int)
    return dense[row, row] - dense[row, given] @ np.linalg.solve(dense[np.ix_(given, given)], dense[given, row])


def lost(near, dense):
    """Kullback-Leibler divergence of the product over rows from the exact process."""
    every = [left(dense, row, [j for j in own if j >= 0]) for row, own in enumerate(np.asarray(near.index))]
    return 0.5 * (np.log(every).sum() - np.linalg.slogdet(dense)[1])


@pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 1000.0), (np.float64, 0.0)])
def test_each_is_the_row_that_leaves_the_least_variance(dtype, offset):
    units = np.array([0.5, 1.0, 0.7])
    rows = (X + offset).astype(dtype)
    near = ngp.neighbours(rows, 4, lengthscale=units, order="given", candidates=20)
    dense = covariance(rows.astype(float), units.astype(dtype).astype(float), NOISE)
    for row in (1, 3, 15, 60, 119):
        distances = (((rows[:row].astype(float) - rows[row]) / units) ** 2).sum(axis=1)
        candidates, chosen = np.argsort(distances)[:20].tolist(), []
        while len(chosen) < 4 and len(chosen) < row:
            rest = [j for j in candidates if j not in chosen]
            chosen.append(min(rest, key=lambda j: left(dense, row, [*chosen, j])))
        nearest_first = sorted(chosen, key=candidates.index) + [-1] * (4 - len(chosen))
        assert near.index[row].tolist() == nearest_first
    nearest = ngp.neighbours(rows, 4, lengthscale=units, order="given")
    assert near.index[119].tolist() != nearest.index[119].tolist()


def test_the_same_number_loses_half_as_much():
    dense = covariance(X, 0.8, 0.01)
    nearest, chosen = (lost(ngp.neighbours(X, 8, lengthscale=0.8, candidates=of), dense) for of in (None, 32))
    assert 0 < chosen < 0.55 * nearest
    assert lost(ngp.neighbours(X, 119, lengthscale=0.8, candidates=119), dense) == pytest.approx(0, abs=1e-9)


def test_as_many_candidates_as_neighbours_are_the_nearest():
    for candidates in (8, 9):
        near = ngp.neighbours(X, 8, candidates=candidates)
        is_same = np.asarray(near.index == ngp.neighbours(X, 8).index)
        assert is_same.all() == (candidates == 8)
    few = ngp.neighbours(X[:6], 3, candidates=64)  # all that there are
    assert sorted(few.index[few.order[3]].tolist()) == sorted(few.order[:3].tolist())


def test_rows_that_nothing_tells_of_have_the_nearest():
    rows = np.array([[0.0], [1e25], [3e25], [3.5e25], [9e25]])
    near = ngp.neighbours(rows, 2, order="given", candidates=4)
    assert near.index.tolist() == ngp.neighbours(rows, 2, order="given").index.tolist()


def test_equal_rows_count_where_they_are_asked_for():
    twice = np.concatenate([X, X])
    assert 0 not in ngp.neighbours(twice, 3, order="given", candidates=30).index[120]
    assert ngp.neighbours(twice, 3, order="given", replicates=True, candidates=30).index[120, 0] == 0
    many = np.repeat(X[:4], 10, axis=0)  # fewer different rows than neighbours
    near = ngp.neighbours(many, 6, order="given", candidates=20)
    assert all(j < 0 or not np.array_equal(many[j], many[row]) for row, own in enumerate(near.index) for j in own)
    density = ngp.neighbours(many, 6, order="given", replicates=True, candidates=20).index
    assert all(len({int(j) for j in own if j >= 0}) == (np.asarray(own) >= 0).sum() for own in density)


def test_fewer_candidates_than_neighbours_are_refused():
    with pytest.raises(ValueError, match=r"candidates must be at least 8, but got 4\. Pass 8 or more"):
        ngp.neighbours(X, 8, candidates=4)
    with pytest.raises(TypeError, match="candidates must be"):
        ngp.neighbours(X, 8, candidates=True)
    assert ngp.neighbours(jnp.asarray(X), 8, candidates=32).count == 8
