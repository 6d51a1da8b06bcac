"""Rows that each name the member or the output that they belong to."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from tests.primitives.test_process import process

HERE = jnp.linspace(0.0, 1.0, 4)[:, None]
ROWS = jnp.array([[0.1], [0.45], [0.8]])


def assert_chosen_rows_are_those_of_all(moments, kernels):
    """``moments(kernels, chosen)``, a number and the means of the rows: equal with its gradient either way."""
    both = jax.jit(jax.value_and_grad(moments, has_aux=True), static_argnums=1)
    (value_at, each), slope = both(kernels, True)
    (wanted, every), other = both(kernels, False)
    np.testing.assert_allclose(each, every, rtol=1e-9)
    np.testing.assert_allclose(value_at, wanted, rtol=1e-9)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7), slope, other)


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False], ids=["shared kernel", "own kernels"])
@pytest.mark.parametrize("kind", ["point", "coupled", "orthogonal"])
def test_rows_that_name_their_output(kind, shared):
    """The values of all outputs at all rows, of which each row has one; derivatives too."""
    mean, factor = jnp.arange(8.0).reshape(2, 4) / 8, jnp.stack([0.5 * jnp.eye(4), 0.2 * jnp.eye(4)])
    value = {"point": mean, "coupled": ngp.beliefs.Coupled(mean, factor)}
    value["orthogonal"] = ngp.beliefs.Orthogonal(ROWS + 0.05, jnp.ones((2, 3)), mean, factor)
    kernels = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)])
    levels = ngp.means.Constant(jnp.array([3.0, -3.0]))
    output, X = jnp.array([1, 0, 0, 1, 1]), jnp.linspace(-0.2, 1.2, 5)[:, None]

    def moments(kernels, chosen):
        f = process(value[kind], kernels, HERE, outputs=2, mean=levels)
        found = f.at(output, X) if chosen else f(X).base_dist
        pick = (lambda a: a) if chosen else (lambda a: jnp.take_along_axis(a, output[:, None], 1)[:, 0])
        return jnp.sum(pick(found.mean) * jnp.arange(5.0)) + jnp.sum(pick(found.variance)), pick(found.mean)

    kernels = ngp.kernels.RBF(1.0, 0.7) if shared else kernels
    assert_chosen_rows_are_those_of_all(moments, kernels)


def test_wrong_rows_of_outputs_are_named():
    f = process(jnp.ones((2, 4)), ngp.kernels.RBF(1.0, 0.7), HERE, outputs=2)
    with pytest.raises(ValueError, match="member must be from 0 to 1, but got 0 to 2"):
        f.at(jnp.array([0, 1, 2]), ROWS)
    with pytest.raises(ValueError, match=r"member must be whole numbers of shape \(3,\), one for each row of X"):
        f.at(jnp.array([0.0, 1.0, 1.0]), ROWS)
    with pytest.raises(TypeError, match="the process must be in a plate or one with outputs, to choose from"):
        process(jnp.ones(4), ngp.kernels.RBF(1.0, 0.7), HERE).at(jnp.array([0, 0, 0]), ROWS)


LEVELS = jnp.array([3.0, -3.0])


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False], ids=["shared kernel", "own kernels"])
@pytest.mark.parametrize("kind", ["point", "coupled", "decoupled"])
def test_rows_that_name_their_member(kind, shared, monkeypatch):
    """The values of all members at all rows, of which each row has one; derivatives too, and a few rows at a time."""
    mean, factor = jnp.arange(8.0).reshape(2, 4) / 8, jnp.stack([0.5 * jnp.eye(4), 0.2 * jnp.eye(4)])
    value = {"point": mean, "coupled": ngp.beliefs.Coupled(mean, factor)}
    value["decoupled"] = ngp.beliefs.Decoupled(ROWS + 0.05, jnp.ones((2, 3)), factor)
    kernels = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)])
    member, X = jnp.array([1, 0, 0, 1, 1]), jnp.linspace(-0.2, 1.2, 5)[:, None]

    def moments(kernels, chosen):
        with numpyro.plate("group", 2):
            f = process(value[kind], kernels, HERE, mean=LEVELS)
        found = f.at(member, X) if chosen else f(X)
        pick = (lambda a: a) if chosen else (lambda a: a[member, jnp.arange(5)])
        return jnp.sum(pick(found.mean) * jnp.arange(5.0)) + jnp.sum(pick(found.variance)), pick(found.mean)

    kernels = ngp.kernels.RBF(1.0, 0.7) if shared else kernels
    monkeypatch.setattr("numpyro_gp.primitives.members.HELD", 2 * 4**2)
    assert_chosen_rows_are_those_of_all(moments, kernels)


@pytest.mark.long
def test_rows_name_a_member_of_each_plate():
    values = jnp.arange(24.0).reshape(2, 3, 4)
    with numpyro.plate("a", 2, dim=-2), numpyro.plate("b", 3, dim=-1):
        f = process(values, ngp.kernels.RBF(1.0, 0.7), HERE)
    found = f.at((jnp.array([1, 0, 1]), jnp.array([2, 1, 0])), ROWS)
    every = f(ROWS).mean
    np.testing.assert_allclose(found.mean, jnp.stack([every[1, 2, 0], every[0, 1, 1], every[1, 0, 2]]), rtol=1e-10)
    with pytest.raises(ValueError, match="member must be a tuple of 2 arrays, one for each plate, but got 1"):
        f.at(jnp.array([1, 0, 1]), ROWS)


def test_the_cost_of_a_row_does_not_grow_with_the_number_of_members():
    """No array of rows by members in the program."""
    members, rows = 50, 40
    X, member = jnp.linspace(0.0, 1.0, rows)[:, None], jnp.arange(rows) % members

    def moments(values):
        with numpyro.plate("group", members):
            f = process(values, ngp.kernels.RBF(1.0, 0.7), HERE, mean=jnp.zeros(members))
        return f.at(member, X).mean

    text = str(jax.make_jaxpr(moments)(jnp.zeros((members, 4))))
    assert f"[{members},{rows}" not in text
    assert f"[{rows},{members}" not in text
