"""Gathers of all rows are the array itself; those of other rows stay."""

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.rows.model_trace import without_whole_gathers

ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)))


def gathers(function, *arguments):
    return str(jax.make_jaxpr(function)(*arguments)).count(" gather[")


def everywhere(X, Y):
    rows = jnp.arange(6)
    in_loop = jax.lax.map(lambda column: X[rows] @ column, jnp.eye(2))
    own_rows = jax.lax.map(lambda shift: Y[jnp.arange(6)] + shift, jnp.ones(2))
    return X[rows].sum() * jax.jit(lambda Y: Y[rows].sum())(Y) + in_loop.sum() + jnp.sin(own_rows).sum()


OTHERS = {
    "fewer": lambda X: X[jnp.arange(5)],
    "reversed": lambda X: X[jnp.arange(6)[::-1]],
    "shifted": lambda X: X[jnp.arange(6) - 1],
    "columns": lambda X: X[jnp.arange(6), jnp.zeros(6, int)],
    "of columns": lambda X: X[:, jnp.zeros(2, int)],
    "twice": lambda X: X[jnp.arange(6)[:, None] * jnp.ones((1, 2), int)],
    "given": lambda X: X[jnp.asarray(X[:, 0] > 0, int)],
}


def test_own_rows_are_the_array_itself():
    function, arrays = jax.value_and_grad(everywhere), (ROWS, ROWS[:, 0])
    assert gathers(function, *arrays) > 0
    assert gathers(without_whole_gathers(function), *arrays) == 0
    found, wanted = jax.jit(without_whole_gathers(function))(*arrays), function(*arrays)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-12), found, wanted)


def test_other_rows_are_gathered_as_before():
    for name, function in OTHERS.items():
        assert gathers(without_whole_gathers(function), ROWS) == gathers(function, ROWS) >= 1, name
        np.testing.assert_array_equal(without_whole_gathers(function)(ROWS), function(ROWS))


def test_rules_for_derivatives_and_trees_pass_through():
    @jax.custom_jvp
    def doubled(x):
        return 2 * x

    doubled.defjvp(lambda primals, tangents: (doubled(*primals), 2 * tangents[0]))
    function = lambda tree: {"a": doubled(tree["x"]), "b": jax.nn.relu(tree["x"][jnp.arange(6)])}  # noqa: E731
    found = without_whole_gathers(function)({"x": ROWS})
    np.testing.assert_array_equal(found["a"], 2 * ROWS)
    np.testing.assert_array_equal(found["b"], jnp.maximum(ROWS, 0))
