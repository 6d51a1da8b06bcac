"""Programs that are kept: nothing is compiled twice, and nothing that changed is missed."""

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.primitives import programs
from numpyro_gp.primitives.programs import LARGE, as_function, run, run_once, traced


def test_inner_programs_are_written_out_with_their_constants():
    table = np.arange(3.0)
    inner = jax.jit(lambda x: jnp.tanh(x) + table)
    program, constants, structure = traced(lambda tree: {"a": inner(tree["x"]), "b": 2.0}, {"x": jnp.ones(3)})
    assert not any(equation.primitive.name in ("jit", "pjit") for equation in program.eqns)
    found = jax.tree.unflatten(structure, as_function(program)(*constants, jnp.ones(3)))
    np.testing.assert_allclose(found["a"], np.tanh(1.0) + table)
    assert float(found["b"]) == 2.0


def test_the_same_program_is_compiled_once_and_another_one_is_seen():
    """A closed-over array is an argument; a Python number, a method or a type is part of the program."""

    def function(array, number, power):
        return lambda x: jax.jit(lambda x: jnp.sum(array * x) ** power)(x) + number

    programs._programs.clear()
    x, one = jnp.ones(3), jnp.arange(3.0)
    for array in (one, 2 * one):
        np.testing.assert_allclose(run(function(array, 1.0, 2), x), jnp.sum(array) ** 2 + 1.0)
    assert len(programs._programs) == 1
    assert float(run(function(one, -0.0, 2), x)) == 9.0
    assert float(run(function(one, 0.0, 2), x)) == 9.0
    assert float(run(function(one, 5.0, 2), x)) == 14.0
    assert float(run(function(one, 5.0, 3), x)) == 32.0
    assert run(function(one, 5.0, 3), x.astype(jnp.float32)).dtype == jnp.float64
    assert len(programs._programs) == 6
    single = run(lambda x: x + jnp.asarray(1.0, jnp.float32), jnp.ones(3, jnp.float32))
    assert single.dtype == jnp.float32


def test_few_programs_are_kept(monkeypatch):
    monkeypatch.setattr(programs, "SIZE", 2)
    programs._programs.clear()
    for number in (1.0, 2.0, 3.0):
        assert float(run(lambda x, number=number: x * number, jnp.asarray(2.0))) == 2 * number
    assert len(programs._programs) == 2


def test_loops_and_rules_of_derivatives():
    """`softplus` has a rule of its own, a new object at each trace: it is no part of the key."""

    def function(x):
        return jax.lax.scan(lambda c, row: (c + jax.nn.softplus(row), c), 0.0, x)

    programs._programs.clear()
    x = jnp.arange(3.0)
    for _ in range(2):
        np.testing.assert_allclose(run(function, x)[0], np.log1p(np.exp(np.arange(3.0))).sum(), rtol=1e-12)
    assert len(programs._programs) == 1
    np.testing.assert_allclose(jax.grad(lambda x: run(function, x)[0])(x), jax.nn.sigmoid(x), rtol=1e-12)


def test_a_program_that_runs_once_is_compiled_quickly_on_a_cpu_unless_its_arrays_are_large(monkeypatch):
    """Options of another backend would be refused there, or slow down what it is bought for."""
    asked = []
    monkeypatch.setattr(jax, "jit", lambda function, *, compiler_options: asked.append(compiler_options))
    loop = lambda size: lambda x: jax.lax.fori_loop(0, 2, lambda _, y: y + jnp.ones(size).sum(), x)  # noqa: E731
    small, large = (traced(loop(size), 1.0)[0] for size in (LARGE, LARGE + 1))
    run_once(small)
    run_once(large)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    run_once(small)
    assert asked[0]["xla_backend_optimization_level"] == 0
    assert asked[1:] == [None, None]


def test_a_program_that_runs_once_gives_its_results():
    held = jnp.arange(3.0) ** 2
    program, constants, _ = traced(lambda x: (jnp.sin(x) + held, x @ x), jnp.arange(3.0))
    first, second = run_once(program)(*constants, jnp.arange(3.0))
    np.testing.assert_allclose(first, np.sin(np.arange(3.0)) + np.asarray(held), rtol=1e-12)
    assert second == 5.0


def test_constants_inside_of_loops_are_in_the_key():
    """A table that a jitted helper in a loop reads is a constant of that helper's program: another one is seen."""

    def function(table):
        lookup = jax.jit(lambda row: jnp.sum(row * table))
        return lambda x: jax.lax.scan(lambda c, row: (c + lookup(row), None), 0.0, x)[0]

    for table, wanted in ((np.arange(3.0), 6.0), (np.full(3, 2.0), 12.0)):
        np.testing.assert_allclose(run(function(table), jnp.ones((2, 3))), wanted)
