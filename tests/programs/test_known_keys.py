"""Keys and bits that are found before a program is compiled are those of the program, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.programs.known_keys import MOST, with_known_keys
from numpyro_gp.programs.program_key import key_of
from numpyro_gp.programs.trace import as_function, traced
from tests.precision import x64

KEY = jax.random.key(2**31 + 11)


def draws(key):
    """What a start does: keys of keys, several at once, and numbers of several kinds."""
    first, second, *others = jax.random.split(key, 5)
    normals = jax.random.normal(first, (4, 3)), jax.random.uniform(jax.random.split(second)[1])
    return normals, jax.random.bits(others[0], (7,), jnp.uint32), jax.random.split(key, (2, 3))[1, 0], others[1:]


def found(function, key):
    """The program without the keys it knows, and its results."""
    whole = traced(lambda: function(key))
    program, constants = with_known_keys(whole.program, whole.constants)
    return program, jax.tree.unflatten(whole.structure, as_function(program)(*constants))


def numbers(tree):
    """The numbers of a tree, of its keys their words."""
    is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("is_double", [True, False])
def test_they_are_those_of_jax_and_the_program_has_none(is_double):
    with x64(is_double):
        program, results = found(draws, KEY)
        assert not any("random" in equation.primitive.name for equation in program.eqns)
        for own, wanted in zip(numbers(results), numbers(draws(KEY)), strict=True):
            assert own.dtype == wanted.dtype
            np.testing.assert_array_equal(own, wanted)
        assert key_of(program) == key_of(found(draws, jax.random.key(3))[0]), "another program for another key"


@pytest.mark.parametrize("impl", ["rbg", None])
def test_other_generators_and_old_keys_are_left_to_the_program(impl):
    key = jax.random.PRNGKey(3) if impl is None else jax.random.key(3, impl=impl)
    program, results = found(draws, key)
    assert any(equation.primitive.name == "random_split" for equation in program.eqns)
    for own, wanted in zip(numbers(results), numbers(draws(key)), strict=True):
        np.testing.assert_array_equal(own, wanted)


def test_many_numbers_are_drawn_in_the_program():
    for size, is_left in ((MOST, False), (MOST + 1, True)):
        program, result = found(lambda key, size=size: jax.random.normal(jax.random.split(key)[0], (size,)), KEY)
        assert is_left == any(equation.primitive.name == "random_bits" for equation in program.eqns)
        np.testing.assert_array_equal(result, jax.random.normal(jax.random.split(KEY)[0], (size,)))
