"""Random numbers in NumPy are those of `jax.random`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.programs.threefry import normal, part_of, split, words_of
from tests.precision import x64

KEY = jax.random.key(2**31 + 7)


@pytest.mark.parametrize("is_double", [True, False])
def test_keys_and_normals_are_those_of_jax(is_double):
    with x64(is_double):
        keys = jax.random.split(KEY, 4)
        own = split(words_of(KEY), 4)
        np.testing.assert_array_equal(own, jax.random.key_data(keys))
        wanted = jax.vmap(lambda key: jax.random.normal(key, (7,)))(keys)
        found = normal(own, 7, wanted.dtype)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-14 if is_double else 2e-6)
        np.testing.assert_array_equal(normal(own, 3, wanted.dtype), found[:, :3])  # whatever comes after


def test_a_part_is_that_of_a_split():
    same = lambda one, other: np.array_equal(*map(jax.random.key_data, (one, other)))  # noqa: E731
    assert same(part_of(KEY, 1), jax.random.split(KEY)[1])
    assert same(part_of(None, 0), jax.random.split(jax.random.key(0))[0])
    other = jax.random.key(3, impl="rbg")
    assert words_of(other) is None
    assert same(part_of(other, 1), jax.random.split(other)[1])
    old = jax.random.PRNGKey(3)
    assert words_of(old) is None
    assert jnp.array_equal(part_of(old, 1), jax.random.split(old)[1])
