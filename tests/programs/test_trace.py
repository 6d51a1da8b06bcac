"""A program has no inner calls; its two parts have the values of the whole, the factorisation only in the first."""

import gc
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.programs.trace import _parameters, as_function, bytes_of, is_traced, size_of, split, traced


def names(program):
    return [equation.primitive.name for equation in program.eqns]


def parts(function, fixed, moving):
    program, constants, structure = traced(function, fixed, moving)
    count = len(constants) + len(jax.tree.leaves(fixed))
    first, second = split(program, count)

    def whole(fixed, moving):
        early = (*constants, *jax.tree.leaves(fixed))
        handed = as_function(first)(*early)
        return jax.tree.unflatten(structure, as_function(second)(*early, *handed, *jax.tree.leaves(moving)))

    return first, second, whole


@jax.jit
def factor_of(a):
    """A user's helper: the split must see into it."""
    return jnp.linalg.cholesky(a @ a.T + 2.0 * jnp.eye(3))


def predict(draw, rows):
    """A small sparse prediction: factor of a matrix, features of the rows, and a literal."""
    features = jax.scipy.linalg.solve_triangular(factor_of(draw["a"]), draw["a"] @ rows["x"].T, lower=True)
    noise = jnp.broadcast_to(draw["s"] ** 2, rows["x"].shape[:1])
    return {"mean": draw["v"] @ features, "variance": 1.0 + noise + jnp.zeros(rows["x"].shape[0])}


@pytest.fixture
def arguments(rng):
    draw = {"a": jnp.asarray(rng.normal(size=(3, 2))), "v": jnp.asarray(rng.normal(size=3)), "s": jnp.asarray(0.3)}
    return draw, {"x": jnp.asarray(rng.normal(size=(50, 2)))}


@pytest.mark.long
def test_parts_compose_to_the_whole(arguments):
    draw, rows = arguments
    _, _, whole = parts(predict, draw, rows)
    for moving in (rows, jax.tree.map(lambda leaf: leaf + 0.1, rows)):
        jax.tree.map(np.testing.assert_allclose, whole(draw, moving), predict(draw, moving))
    draws = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), draw)
    mapped = jax.lax.map(lambda own: whole(own, rows), draws)
    np.testing.assert_allclose(mapped["mean"][1], predict(jax.tree.map(lambda x: 2 * x, draw), rows)["mean"])


def test_factorisation_stands_in_the_first_part_only_also_inside_a_jitted_helper(arguments):
    first, second, _ = parts(predict, *arguments)
    assert "cholesky" in names(first)
    assert "cholesky" not in str(second)
    assert "triangular_solve" not in names(first)


def test_the_factor_of_numbers_alone_is_found_once():
    """Of a kernel with nothing to learn at points of the model's own: it was found anew for each row of a service."""

    def function(draw, rows):
        factor = factor_of(jnp.linspace(0.0, 1.0, 6).reshape(3, 2))
        return draw * jnp.sum(factor) + rows

    first, second, whole = parts(function, jnp.asarray(2.0), jnp.arange(3.0))
    assert "cholesky" in names(first)
    assert "cholesky" not in str(second)
    assert "iota" not in names(second)
    np.testing.assert_allclose(whole(jnp.asarray(2.0), jnp.arange(3.0)), function(2.0, jnp.arange(3.0)))


def test_nothing_as_long_as_the_rows_is_handed_over(arguments):
    """The noise is a scalar that is spread over 50 rows: handing the spread array over would cost S N numbers."""
    first, _, _ = parts(predict, *arguments)
    assert max(atom.aval.size for atom in first.outvars) <= 9


def test_keys_constants_and_outputs_of_every_kind():
    constant = jnp.arange(4.0)

    def function(key, x):
        return jax.random.normal(key, (4,)) * constant, x + constant, 3.0, key, x

    key, x = jax.random.key(1), jnp.ones(4)
    got, wanted = parts(function, key, x)[2](key, x), function(key, x)
    np.testing.assert_allclose(got[0], wanted[0])
    np.testing.assert_allclose(got[1], wanted[1])
    assert float(got[2]) == 3.0
    assert (jax.random.key_data(got[3]) == jax.random.key_data(key)).all()
    np.testing.assert_allclose(got[4], x)


def test_inner_programs_are_written_out_with_their_constants():
    table = np.arange(3.0)
    inner = jax.jit(lambda x: jnp.tanh(x) + table)
    program, constants, structure = traced(lambda tree: {"a": inner(tree["x"]), "b": 2.0}, {"x": jnp.ones(3)})
    assert not any(equation.primitive.name in ("jit", "pjit") for equation in program.eqns)
    found = jax.tree.unflatten(structure, as_function(program)(*constants, jnp.ones(3)))
    np.testing.assert_allclose(found["a"], np.tanh(1.0) + table)
    assert float(found["b"]) == 2.0


def test_what_nothing_needs_is_left_out_of_loops_too_and_effects_stay():
    seen = []

    def function(x):
        jnp.linalg.cholesky(x)

        def body(_, y):
            jnp.linalg.inv(x)
            return y + 1.0

        jax.debug.callback(seen.append, jnp.tan(x[0, 0]))
        return jax.lax.fori_loop(0, 3, body, 2.0 * x)

    program, constants, _ = traced(function, jnp.eye(3))
    assert not set(names(program)) & {"cholesky", "lu"}
    assert "lu" not in str(program)
    np.testing.assert_allclose(as_function(program)(*constants, jnp.eye(3))[0], 2 * np.eye(3) + 3)
    jax.effects_barrier()
    np.testing.assert_allclose(seen, np.tan(1.0), rtol=1e-6)


def test_one_loop_of_a_helper_that_is_called_many_times_is_written_out_once():
    helper = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y) + 1.0, x))
    program, constants, _ = traced(lambda x: helper(helper(x) + 2.0), 1.0)
    loops = [equation for equation in program.eqns if equation.primitive.name == "scan"]
    assert len({id(equation.params["jaxpr"]) for equation in loops}) == 1 < len(loops)
    expected = 1.0
    for start in (0.0, 2.0):
        expected += start
        for _ in range(3):
            expected = np.tanh(expected) + 1.0
    np.testing.assert_allclose(as_function(program)(*constants, 1.0)[0], expected, rtol=1e-6)


def test_nothing_is_left_for_pythons_search_for_cycles(arguments):
    """Half of what a fit asked again took for this search was what its programs had been written out of."""
    traced(predict, *arguments)
    gc.collect()
    gc.disable()
    try:
        traced(predict, *arguments)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_rules_of_derivatives_are_written_out():
    def function(x):
        return jax.nn.relu(x) + jax.lax.map(jax.nn.softplus, x)

    program = traced(function, jnp.ones(2)).program
    assert "custom_jvp" not in str(program)
    np.testing.assert_allclose(as_function(program)(jnp.ones(2))[0], 1 + np.log1p(np.e) * np.ones(2))


def test_size_of_the_largest_array_and_where_operations_are_traced():
    program = traced(lambda x: jax.lax.fori_loop(0, 2, lambda _, y: y + jnp.ones(70).sum(), x), 1.0).program
    assert (size_of(program), bytes_of(program)) == (70, 560)
    program = traced(lambda x: (x * jnp.ones(70, "float32"), jnp.ones(40) + 1), jnp.float32(1.0)).program
    assert (size_of(program), bytes_of(program)) == (70, 320)
    program = traced(lambda x: jax.random.split(x, 5), jax.random.key(0)).program
    assert (size_of(program), bytes_of(program)) == (5, 40)  # of keys
    seen = []
    jax.make_jaxpr(lambda x: seen.append(is_traced()) or x)(1.0)
    assert seen == [True]
    assert not is_traced()


def test_a_callback_is_in_the_part_that_is_run_for_all():
    """It has no result that anything needs: a user's print in a mean function must not vanish."""
    seen = []

    def function(a, x):
        jax.debug.callback(seen.append, a)
        return a * x

    parts(function, jnp.ones(()), jnp.ones(4))[2](jnp.full((), 2.0), jnp.ones(4))
    jax.effects_barrier()
    assert [float(value) for value in seen] == [2.0]


class Pair(NamedTuple):
    first: object
    second: object


def test_programs_are_found_in_tuples_of_any_kind():
    """Also in a plain tuple of named ones, in which the first look at a parameter must not end."""
    sine, cosine = (jax.make_jaxpr(function)(1.0) for function in (jnp.sin, jnp.cos))
    for parameter in (sine, (sine,), Pair(sine, 3), (Pair(sine, None),), ((1, 2), (Pair((sine,), 0),))):
        changed = _parameters({"size": (1, 2), "held": parameter}, lambda _: cosine)
        assert cosine in jax.tree.leaves(changed, is_leaf=lambda leaf: leaf is cosine)
    plain = {"size": (1, 2), "name": "sin"}
    assert _parameters(plain, lambda _: cosine) is plain
