"""A program has no inner calls; its two parts have the values of the whole, the factorisation only in the first."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.programs.trace import _parameters, as_function, split, traced


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
