"""The two parts of a staged function: same values as the whole, and the factorisation only in the first."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.posterior.staging import stage


def names(function, *arguments):
    """Primitives of a traced function, inner programs included."""
    found = []

    def walk(program):
        for equation in program.eqns:
            found.append(equation.primitive.name)
            for value in equation.params.values():
                if hasattr(value, "jaxpr"):
                    walk(value.jaxpr)

    walk(jax.make_jaxpr(function)(*arguments).jaxpr)
    return found


def parts(function, fixed, moving):
    constants, once, prepare, finish = stage(function, fixed, moving)
    shared = once(constants)
    return functools.partial(prepare, constants, shared), functools.partial(finish, constants, shared)


def predict(draw, rows):
    """A small sparse prediction: factor of a matrix, features of the rows, a constant array and a literal."""
    gram = draw["a"] @ draw["a"].T + 2.0 * jnp.eye(3)
    factor = jnp.linalg.cholesky(gram)
    features = jax.scipy.linalg.solve_triangular(factor, draw["a"] @ rows["x"].T, lower=True)
    noise = jnp.broadcast_to(draw["s"] ** 2, rows["x"].shape[:1])
    return {"mean": draw["v"] @ features, "variance": 1.0 + noise + jnp.zeros(rows["x"].shape[0]), "factor": factor}


@pytest.fixture
def arguments(rng):
    draw = {"a": jnp.asarray(rng.normal(size=(3, 2))), "v": jnp.asarray(rng.normal(size=3)), "s": jnp.asarray(0.3)}
    return draw, {"x": jnp.asarray(rng.normal(size=(50, 2)))}


def test_parts_compose_to_the_whole(arguments, rng):
    draw, rows = arguments
    prepare, finish = parts(predict, draw, rows)
    other = jax.tree.map(lambda leaf: leaf + 0.1, rows)
    for moving in (rows, other):
        jax.tree.map(np.testing.assert_allclose, finish(prepare(draw), moving), predict(draw, moving))
    draws = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), draw)
    mapped = jax.lax.map(lambda r: finish(r, rows), jax.jit(jax.vmap(prepare))(draws))
    np.testing.assert_allclose(mapped["mean"][1], predict(jax.tree.map(lambda x: 2 * x, draw), rows)["mean"])


def test_factorisation_stands_in_the_first_part_only(arguments):
    draw, rows = arguments
    prepare, finish = parts(predict, draw, rows)
    residuals = prepare(draw)
    assert "cholesky" in names(prepare, draw)
    assert "cholesky" not in names(finish, residuals, rows)
    assert "triangular_solve" not in names(prepare, draw)


def test_nothing_as_long_as_the_rows_is_handed_over(arguments):
    """The noise is a scalar that is spread over 50 rows: handing the spread array over would cost S N numbers."""
    draw, rows = arguments
    prepare, _ = parts(predict, draw, rows)
    assert max(leaf.size for leaf in prepare(draw)) <= 9


def test_keys_constants_and_outputs_of_every_kind():
    constant = jnp.arange(4.0)

    def function(key, x):
        return jax.random.normal(key, (4,)) * constant, x + constant, 3.0, key, x

    key, x = jax.random.key(1), jnp.ones(4)
    prepare, finish = parts(function, key, x)
    got, wanted = finish(prepare(key), x), function(key, x)
    np.testing.assert_allclose(got[0], wanted[0])
    np.testing.assert_allclose(got[1], wanted[1])
    assert float(got[2]) == 3.0
    assert (jax.random.key_data(got[3]) == jax.random.key_data(key)).all()
    np.testing.assert_allclose(got[4], x)


def test_what_needs_no_argument_runs_once_and_captured_arrays_are_arguments():
    """A captured matrix stays one constant, its factor is shared: as residuals they would be copied for each draw."""
    matrix = 4.0 * jnp.eye(30)

    def function(a, x):
        return jnp.linalg.cholesky(matrix) @ (a * x) + matrix[0]

    staged = stage(function, jnp.ones(()), jnp.ones(30))
    assert [leaf.size for leaf in staged.constants] == [900]
    shared = staged.once(staged.constants)
    own = staged.prepare(staged.constants, shared, jnp.asarray(2.0))
    assert sum(leaf.size for leaf in own) <= 1
    assert "cholesky" in names(staged.once, staged.constants)
    assert "cholesky" not in names(staged.prepare, staged.constants, shared, jnp.asarray(2.0))
    other = [4 * staged.constants[0]]
    shared = staged.once(other)
    got = staged.finish(other, shared, staged.prepare(other, shared, jnp.asarray(2.0)), jnp.full(30, 3.0))
    np.testing.assert_allclose(got, 4.0 * 6.0 + 16.0 * np.eye(30)[0])
