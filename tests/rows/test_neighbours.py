"""Rows with their neighbours as a value."""

import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.neighbours.value import joint_rows
from tests.compiling import counted
from tests.precision import x64

X = np.random.default_rng(1).normal(size=(40, 2))


def test_units_are_lengthscales_and_shapes_stay():
    near = ngp.neighbours(X, 5, order="given")
    wide = near.rescaled([1.0, 1e6])
    assert wide.index[30].tolist() == np.argsort(np.abs(X[:30, 0] - X[30, 0]))[:5].tolist()
    assert [np.shape(leaf) for leaf in jax.tree.leaves(wide)] == [np.shape(leaf) for leaf in jax.tree.leaves(near)]
    assert np.array_equal(wide.order, near.order)
    assert wide.find(X[:1], 3).index[0].tolist() == np.argsort(np.abs(X[:, 0] - X[0, 0]))[:3].tolist()
    run = jax.jit(lambda near, idx: near[idx].inputs.sum() + near[idx].index.sum())
    run(near, jnp.arange(4))
    with counted() as programs:
        assert float(run(near.rescaled(3.0), jnp.arange(4))) != 0
        run(wide, jnp.arange(4, 8))
    assert programs.count <= 2  # what `rescaled` itself sends to the device; not `run`


def test_rows_of_a_plate_and_new_rows():
    near = ngp.neighbours(X, 5)
    some = near[jnp.array([3, 30])]
    assert np.array_equal(some.inputs, X[[3, 30]])
    assert np.array_equal(some.index, np.asarray(near.index)[[3, 30]])
    assert near[:3].rows.tolist() == [0, 1, 2]
    found = near.find(X[:3], 1000)  # at most all of them
    assert (found.size, found.index.shape) == (3, (3, 40))
    assert found.index[:, 0].tolist() == [0, 1, 2]
    assert np.array_equal(found[jnp.array([1])].index, found.index[1:2])


def test_some_rows_stand_for_all():
    some = np.array([30, 3, 17])
    near, whole = ngp.neighbours(X, 5, rows=some), ngp.neighbours(X, 5)
    assert near.index.shape == (3, 5)
    drawn = near[jnp.arange(40)]
    assert drawn.rows.tolist() == [*(some.tolist() * 13), 3]
    assert np.array_equal(drawn.index, np.asarray(whole.index)[drawn.rows])


@pytest.mark.parametrize(("size", "count", "batch"), [(7, 3, 2), (8, 3, 3), (6, 3, 1), (7, 5, 3)])
def test_some_rows_stand_for_all_as_often_as_each_other(size, count, batch):
    """Over all minibatches that a plate may draw: rows with a number more than others were drawn more often."""
    near = ngp.neighbours(X[:size], 2, rows=np.arange(count))
    batches = jnp.asarray(list(itertools.permutations(range(size), batch)))
    drawn = np.asarray(jax.vmap(lambda idx: near[idx].rows)(batches))
    assert (np.bincount(drawn.ravel(), minlength=count) == drawn.size // count).all()


def test_neighbours_are_pickled_printed_saved_and_loaded(tmp_path, rng):
    path, single = tmp_path / "near.npz", ngp.neighbours(X.astype(np.float32), 5)
    for near in (
        single,
        ngp.neighbours(rng.normal(size=(9, 2)), 3, lengthscale=[1.0, 2.0], others=True),
        ngp.neighbours(rng.normal(size=(9, 2)), 3, replicates=True, rows=np.array([4, 1]), candidates=5),
    ):
        near.save(path)
        for again in (ngp.Neighbours.load(path), pickle.loads(pickle.dumps(near))):
            assert jax.tree.structure(again) == jax.tree.structure(near)
            for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(near), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
    assert (repr(single), single.inputs.dtype) == ("Neighbours(40 rows, 2 columns, 5 neighbours)", jnp.float32)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"path must be a file written by Neighbours\.save, .* near\.save"):
        ngp.Neighbours.load(path)
    np.savez(path, format="another")
    with pytest.raises(ValueError, match="of format 'numpyro_gp neighbours 1', but got 'another'"):
        ngp.Neighbours.load(path)


def test_rows_of_a_file_in_double_precision_are_said_to_be_rounded(tmp_path):
    """Hours since 1970 in seconds, found in double precision and read in single: rows 3600 apart come 128 apart."""
    rows = np.stack([1.7e9 + 3600 * np.arange(40), np.arange(40)], axis=1)
    with x64(True):
        ngp.neighbours(rows, 3).save(tmp_path / "near.npz")
        ngp.Neighbours.load(tmp_path / "near.npz")
    with x64(False), pytest.warns(UserWarning, match="file of neighbours loses digits in single .* in column 0"):
        ngp.Neighbours.load(tmp_path / "near.npz")


def test_rows_may_be_numbered_in_one_byte():
    X = np.random.default_rng(0).uniform(size=(400, 2))
    for near in (ngp.neighbours(X, 4), ngp.neighbours(X, 4, rows=np.arange(300))):
        own, wanted = near[np.array([0, 3, 127], np.int8)], near[np.array([0, 3, 127])]
        np.testing.assert_array_equal(own.rows, wanted.rows)
        np.testing.assert_array_equal(own.index, wanted.index)


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ngp.neighbours(X, 40), "num_neighbours must be less than the number of rows, 40, but got 40. Pass 39"),
        (
            lambda: ngp.neighbours(X[:1], 1),
            "X must be of two rows or more, but got one. Pass X itself in place of near",
        ),
        (lambda: ngp.neighbours(X, 3, order="maxmin"), "order must be 'random', 'given' or the numbers of the rows"),
        (lambda: ngp.neighbours(X, 3, order=np.arange(5)), "order must be the numbers from 0 to 39"),
        (lambda: ngp.neighbours(X, 3, lengthscale=[1.0] * 3), r"lengthscale must be a number or of shape \(2,\)"),
        (lambda: ngp.neighbours(X, 3, rows=[0, 0]), "rows must be different whole numbers from 0 to 39"),
        (
            lambda: ngp.neighbours(X, 3, rows=X[:, 0] > 0),
            r"from 0 to 39, .* Pass their numbers, np.flatnonzero\(rows\)",
        ),
        (
            lambda: ngp.neighbours(X, 3.0),
            r"num_neighbours must be a whole number, but got 3.0 \(float\). Pass an int: 3",
        ),
        (lambda: ngp.neighbours(X, 3, replicates="no"), "replicates must be True or False"),
        (lambda: ngp.neighbours(X, 3).find(X[:, :1]), "X_new must be an array with 2 columns"),
        (lambda: ngp.neighbours(X, 3).find(X)[0], "idx must be a slice or numbers of rows, but got 0. Pass rows"),
        (
            lambda: list(ngp.neighbours(X, 3).find(X)),
            "idx must be a slice or numbers of rows, but got 0",
        ),  # never ended
        (lambda: ngp.neighbours(X, 3)[0.5], "idx must be whole numbers of rows"),
        (
            lambda: ngp.neighbours(X, 3)[np.array([2, 40])],
            "idx must be numbers from 0 to 39, but got numbers from 2 to 40",
        ),
        (lambda: jax.jit(lambda X: ngp.neighbours(X, 3).index)(X), "X must be known, but got a traced array"),
        (lambda: jax.jit(lambda n: n.rescaled(2.0).index)(ngp.neighbours(X, 3)), "near of near.rescaled must be known"),
        (lambda: jax.jit(lambda n: n.find(X).index)(ngp.neighbours(X, 3)), "near of near.find must be known"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
