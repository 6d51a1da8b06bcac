"""Chunks of rows against the whole, groups of draws against all at once, kept against computed again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.posterior import chunks


def function(draw, part):
    rows, offset = part
    factor = jnp.linalg.cholesky(draw["a"] * jnp.eye(2) + 1.0)
    return {"value": rows["x"] @ factor @ draw["v"], "offset": offset + jnp.zeros(rows["x"].shape[0])}


@pytest.fixture
def problem(rng):
    draws = {"a": jnp.asarray(rng.uniform(1, 2, 5)), "v": jnp.asarray(rng.normal(size=(5, 2)))}
    rows = {"x": jnp.asarray(rng.normal(size=(7, 2)))}
    factors = [np.linalg.cholesky(a * np.eye(2) + 1.0) for a in np.asarray(draws["a"])]
    expected = np.stack([np.asarray(rows["x"]) @ L @ v for L, v in zip(factors, np.asarray(draws["v"]))])
    return draws, rows, expected


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 100])
@pytest.mark.parametrize(("held", "kept"), [(2**28, 2**28), (1, 2**28), (2**28, 0), (40, 0)])
def test_every_way_gives_the_same_numbers(problem, monkeypatch, chunk_size, held, kept):
    draws, rows, expected = problem
    monkeypatch.setattr(chunks, "HELD_BYTES", held)
    monkeypatch.setattr(chunks, "KEPT_BYTES", kept)
    found = chunks.predict_chunks(function, draws, rows, chunk_size)
    assert sum(found.sizes) == 7
    values = [chunk["value"][:, :size] for chunk, size in zip(found, found.sizes)]
    np.testing.assert_allclose(np.concatenate(values, axis=1), expected, rtol=1e-12)
    starts = np.cumsum([0, *found.sizes[:-1]])
    assert [float(chunk["offset"][0, 0]) for chunk in found] == starts.tolist()


def test_the_factorisation_runs_once_for_each_draw_not_for_each_chunk(problem):
    draws, rows, _ = problem
    programs = []
    original = chunks.stage

    def spy(*arguments):
        programs.append(original(*arguments))
        return programs[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "stage", spy)
        chunks.predict_chunks(function, draws, rows, 2)
    staged = programs[0]
    shared = staged.once(staged.constants)
    one = jax.tree.map(lambda leaf: leaf[0], draws)
    own = staged.prepare(staged.constants, shared, one)
    part = ({"x": rows["x"][:2]}, jnp.asarray(0))
    assert "cholesky" in str(jax.make_jaxpr(staged.prepare)(staged.constants, shared, one))
    assert "cholesky" not in str(jax.make_jaxpr(staged.finish)(staged.constants, shared, own, part))


def test_computed_again_chunks_are_a_sequence(problem, monkeypatch):
    draws, rows, _ = problem
    monkeypatch.setattr(chunks, "KEPT_BYTES", 0)
    found = chunks.predict_chunks(function, draws, rows, 3)
    assert len(found) == 3
    np.testing.assert_array_equal(found[-1]["value"], found[2]["value"])
    with pytest.raises(IndexError):
        found[3]
