"""Stacks of components of one size: taken apart and put together in their order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import block_diag

from numpyro_gp.beliefs.members import Stacked, Stacks, alike, picked


def test_equal_entries_are_found_in_order():
    assert alike(["b", "a", "b", "c", "a"]) == ((0, 2), (1, 4), (3,))


@pytest.mark.parametrize("places", [np.array([[1, 2], [3, 4]]), np.array([[4, 0], [2, 2]])])
def test_places_are_picked_and_so_are_their_gradients(places):
    values = jnp.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(picked(values, places), np.asarray(values)[places])
    weights = jnp.arange(8.0).reshape(2, 2, 2)
    slope = jax.grad(lambda x: jnp.sum(weights * picked(x, places)))(values)
    wanted = np.zeros((5, 2))
    np.add.at(wanted, places, np.asarray(weights))
    np.testing.assert_array_equal(slope, wanted)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 1, 2), (1, 2, 2)])
def test_apart_and_together(sizes):
    """Rows of component c are c, whatever the sizes; stacks of components that do not follow each other as well."""
    blocks = [(1.0 + c) * (jnp.eye(size) + jnp.tril(jnp.ones((size, size)), -1)) for c, size in enumerate(sizes)]
    stacks = Stacks.of(blocks)
    rows = jnp.asarray(np.repeat(np.arange(3.0), sizes))[:, None] * jnp.ones((1, 2))
    apart = stacks.apart(rows)
    for own, stack in zip(stacks.members, apart, strict=True):
        np.testing.assert_array_equal(stack[:, :, 0], np.broadcast_to(np.array(own)[:, None], stack.shape[:2]))
    np.testing.assert_array_equal(stacks.together(apart), rows)
    np.testing.assert_array_equal(stacks.in_order([stack[:, 0, 0] for stack in apart]), np.arange(3.0))
    np.testing.assert_array_equal(stacks.squares(apart)[:, 0], np.arange(3.0) ** 2 * np.array(sizes))
    held = Stacked(stacks, tuple(stacks.stacked(blocks)))  # a tuple of them, and blocks of one diagonal
    assert len(held) == 3
    for found, unstacked, wanted in zip(held, stacks.unstacked(stacks.stacked(blocks)), blocks, strict=True):
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(unstacked, wanted)
    assert Stacks.of(held) == stacks
    np.testing.assert_array_equal(stacks.diagonal(stacks.stacked(held)), block_diag(*blocks))
    with pytest.raises(IndexError):
        held[3]
