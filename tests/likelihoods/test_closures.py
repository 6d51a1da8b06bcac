"""Functions as pytrees: closed-over arrays are leaves, in cells, defaults, partials and nested functions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.likelihoods.closures import Closure


def lambdas(a):
    inner = lambda x: a * x  # noqa: E731
    return {
        "cell": lambda x: a * x,
        "default": lambda x, a=a: a * x,
        "nested": lambda x: inner(x),
        "partial": functools.partial(lambda a, x: a * x, a),
    }


@pytest.mark.parametrize("kind", ["cell", "default", "nested", "partial"])
def test_arrays_leave_transformations_as_leaves(kind):
    made = jax.vmap(lambda a: Closure(lambdas(a)[kind]))(jnp.arange(3.0))
    assert [leaf.shape for leaf in jax.tree.leaves(made)] == [(3,)]
    called = jax.vmap(lambda closure: closure(2.0))(made)
    np.testing.assert_array_equal(called, [0.0, 2.0, 4.0])


def test_plain_functions_have_no_leaves_and_equal_structure_and_other_contents_are_kept():
    assert jax.tree.leaves(Closure(jnp.sin)) == []
    assert jax.tree.structure(Closure(jnp.sin)) == jax.tree.structure(Closure(jnp.sin))
    assert jax.tree.structure(Closure(jnp.sin)) != jax.tree.structure(Closure(jnp.cos))
    scale, word = 3.0, "x"
    again = jax.tree.map(lambda leaf: leaf, Closure(lambda x: (scale * x, word)))
    assert again(2.0) == (6.0, "x")
