"""Chunks of rows against the whole, groups of draws against all at once, kept against computed again."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.posterior import chunks

KEY = jax.random.key(0)
INDEX = np.arange(5, dtype=np.int32)

# Rows stand on the first axis.
FIRST = {"x": 0}


def function(fixed, draw, part):
    rows, offset = part
    own = jax.tree.map(lambda leaf: leaf[draw[1]], fixed)
    factor = jnp.linalg.cholesky(own["a"] * jnp.eye(2) + 1.0)
    return {"value": rows["x"] @ factor @ own["v"], "offset": offset + jnp.zeros(rows["x"].shape[0])}


@pytest.fixture
def problem(rng):
    fixed = {"a": jnp.asarray(rng.uniform(1, 2, 5)), "v": jnp.asarray(rng.normal(size=(5, 2)))}
    rows = {"x": jnp.asarray(rng.normal(size=(7, 2)))}
    factors = [np.linalg.cholesky(a * np.eye(2) + 1.0) for a in np.asarray(fixed["a"])]
    expected = np.stack([np.asarray(rows["x"]) @ L @ v for L, v in zip(factors, np.asarray(fixed["v"]))])
    return fixed, rows, expected


@pytest.mark.parametrize("chunk_size", [3, 7])
def test_every_way_gives_the_same_numbers(problem, monkeypatch, chunk_size):
    fixed, rows, expected = problem
    for held, kept in ((2**28, 2**28), (1, 2**28), (100, 0)):
        monkeypatch.setattr(chunks, "HELD_BYTES", held)
        monkeypatch.setattr(chunks, "KEPT_BYTES", kept)
        found = chunks.predict_chunks(function, fixed, (KEY, INDEX), rows, 7, chunk_size, FIRST)
        assert sum(found.sizes) == 7
        values = [chunk["value"][:, :size] for chunk, size in zip(found, found.sizes)]
        np.testing.assert_allclose(np.concatenate(values, axis=1), expected, rtol=1e-12)
        starts = np.cumsum([0, *found.sizes[:-1]])
        assert [float(chunk["offset"][0, 0]) for chunk in found] == starts.tolist()


def test_every_draw_has_its_own_key():
    draws = lambda fixed, draw, part: jax.random.normal(draw[0], (2,)) + 0 * part[0]["x"]  # noqa: E731
    found = chunks.predict_chunks(draws, {}, (KEY, INDEX), {"x": jnp.zeros(2)}, 2, 2, FIRST)
    wanted = jax.vmap(lambda key: jax.random.normal(key, (2,)))(jax.random.split(KEY, 5))
    np.testing.assert_array_equal(found[0], wanted)


def test_computed_again_chunks_are_a_sequence_and_pickle(problem, monkeypatch):
    fixed, rows, _ = problem
    monkeypatch.setattr(chunks, "KEPT_BYTES", 0)
    found = chunks.predict_chunks(function, fixed, (KEY, INDEX), rows, 7, 3, FIRST)
    assert len(found) == 3
    np.testing.assert_array_equal(found[-1]["value"], found[2]["value"])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found))[1]["value"], found[1]["value"])
    with pytest.raises(IndexError):
        found[3]
