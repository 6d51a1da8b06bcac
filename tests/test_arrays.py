"""Immutable values: pytrees whose checks run for users and not for JAX."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import pytest

from numpyro_gp.arrays import ArrayLike, value_type


@value_type(static=("label",))
class Sample:
    value: ArrayLike
    label: str = "a"

    def __post_init__(self):
        if getattr(self.value, "ndim", 0) > 1:
            raise ValueError("one axis")


def test_checks_run_for_users_and_not_inside_transformations():
    with pytest.raises(ValueError, match="one axis"):
        Sample(jnp.ones((2, 2)))
    stacked = jax.vmap(lambda x: Sample(x))(jnp.ones((3, 2)))  # stacking makes a value that a user could not
    assert stacked.value.shape == (3, 2)


def test_structure_and_leaves():
    leaves, structure = jax.tree.flatten(Sample(1.0, "b"))
    assert leaves == [1.0]
    assert jax.tree.unflatten(structure, [2.0]).label == "b"
    assert jax.tree.structure(Sample(1.0, "a")) != structure
    assert jax.tree_util.keystr(jax.tree_util.tree_flatten_with_path(Sample(1.0))[0][0][0]) == ".value"


def test_values_do_not_change_and_can_be_pickled():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sample(1.0).value = 2.0
    assert pickle.loads(pickle.dumps(Sample(3.0, "c"))).label == "c"
