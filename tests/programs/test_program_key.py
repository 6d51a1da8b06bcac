"""The key of a program is all that it does: programs of equal keys give equal results."""

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.programs.compiled import COMPARED, program_key
from numpyro_gp.programs.trace import traced


def test_constants_count_by_their_numbers_and_large_ones_by_identity_and_types_are_in_the_key():
    """Inside of a branch, or of the body of a loop, JAX holds what a jitted helper closes over."""

    def branch(array):
        helper = jax.jit(lambda x: (x * array).sum())
        return program_key(traced(lambda x: jax.lax.cond(x > 0, helper, jnp.cos, x), 1.0).program)

    def loop(array):
        helper = jax.jit(lambda carry: carry * array)
        run = lambda x: jax.lax.scan(lambda c, y: (helper(c), y), x, jnp.arange(3.0))  # noqa: E731
        return program_key(traced(run, jnp.ones(2)).program)

    small, large = jnp.arange(3.0), jnp.zeros(COMPARED)
    assert branch(small) == branch(jnp.arange(3.0))
    assert branch(np.arange(3.0)) == branch(np.arange(3.0))
    assert branch(large) == branch(large)
    assert loop(jnp.array([1.0, 2.0])) == loop(jnp.array([1.0, 2.0]))
    assert loop(jnp.array([1.0, 2.0])) != loop(jnp.array([1.0, 3.0]))
    keys = [program_key(traced(lambda x, n=n: x * n, jnp.ones(2)).program) for n in (1.0, 2.0, 2.0)]
    assert keys[0] != keys[1] == keys[2]
    assert program_key(traced(lambda x: x * 2.0, jnp.ones(2, jnp.float32)).program) != keys[2]


def test_each_place_of_an_inner_program_counts():
    """What is said of a loop that stands in several places is found once: one other loop is another program."""

    def twice(one, other):
        helpers = [jax.jit(lambda x, f=f: jax.lax.fori_loop(0, 3, lambda _, y: f(y), x)) for f in (one, other)]
        return program_key(traced(lambda x: helpers[1](helpers[0](x)), 1.0).program)

    helper = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y), x))
    assert twice(jnp.sin, jnp.sin) == program_key(traced(lambda x: helper(helper(x)), 1.0).program)
    keys = [twice(*functions) for functions in ((jnp.sin, jnp.sin), (jnp.sin, jnp.cos), (jnp.cos, jnp.sin))]
    assert len(set(keys)) == 3


def test_axes_are_in_the_key():
    reduced = [traced(lambda x, axes=axes: jnp.sum(x, axes), jnp.ones((2, 3))).program for axes in ((0,), (1,), (0, 1))]
    assert len(set(map(program_key, reduced))) == 3
