"""Rows that each name the member or the output that they belong to."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from numpyro_gp.primitives.process import check_members
from tests.primitives.test_process import process

HERE = jnp.linspace(0.0, 1.0, 4)[:, None]
ROWS = jnp.array([[0.1], [0.45], [0.8]])


MEAN, FACTOR = jnp.arange(8.0).reshape(2, 4) / 8, jnp.stack([0.5 * jnp.eye(4), 0.2 * jnp.eye(4)])
VALUES = {
    "point": MEAN,
    "coupled": ngp.beliefs.Coupled(MEAN, FACTOR),
    "orthogonal": ngp.beliefs.Orthogonal(ROWS + 0.05, jnp.ones((2, 3)), MEAN, FACTOR),
    "decoupled": ngp.beliefs.Decoupled(ROWS + 0.05, jnp.ones((2, 3)), FACTOR),
}
KERNELS = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "in_plate", "kernels"),
    [
        ("point", False, KERNELS),
        ("orthogonal", False, ngp.kernels.RBF(1.0, 0.7)),
        ("coupled", True, KERNELS),
        ("decoupled", True, ngp.kernels.RBF(1.0, 0.7)),
    ],
)
def test_rows_that_name_their_output_or_member(kind, in_plate, kernels, monkeypatch):
    """The values of all at all rows, of which each row has one; derivatives too, and a few rows at a time."""
    levels, each, X = jnp.array([3.0, -3.0]), jnp.array([1, 0, 0, 1, 1]), jnp.linspace(-0.2, 1.2, 5)[:, None]
    options = {"mean": levels} if in_plate else {"mean": ngp.means.Constant(levels), "outputs": 2}
    if in_plate:
        monkeypatch.setattr("numpyro_gp.primitives.process.GATHERED_NUMBERS", 2 * 4**2)

    def moments(kernels, chosen):
        with numpyro.plate("group", 2) if in_plate else nullcontext():
            f = process(VALUES[kind], kernels, HERE, **options)
        found = f.at(each, X) if chosen else f(X) if in_plate else f(X).base_dist
        mean, variance = (
            one if chosen else (one if in_plate else one.T)[each, jnp.arange(5)] for one in (found.mean, found.variance)
        )
        return jnp.sum(mean * jnp.arange(5.0)) + jnp.sum(variance), mean

    both = jax.jit(jax.value_and_grad(moments, has_aux=True), static_argnums=1)
    ((value, mean), slope), ((wanted, every), other) = both(kernels, True), both(kernels, False)
    np.testing.assert_allclose(mean, every, rtol=1e-9)
    np.testing.assert_allclose(value, wanted, rtol=1e-9)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7), slope, other)


def test_wrong_rows_of_outputs_are_named():
    f = process(jnp.ones((2, 4)), ngp.kernels.RBF(1.0, 0.7), HERE, outputs=2)
    with pytest.raises(ValueError, match="member must be from 0 to 1, but got 0 to 2"):
        f.at(jnp.array([0, 1, 2]), ROWS)
    with pytest.raises(ValueError, match=r"member must be whole numbers of shape \(3,\), one for each row of X"):
        f.at(jnp.array([0.0, 1.0, 1.0]), ROWS)
    with pytest.raises(TypeError, match="the process must be in a plate or one with outputs, to choose from"):
        process(jnp.ones(4), ngp.kernels.RBF(1.0, 0.7), HERE).at(jnp.array([0, 0, 0]), ROWS)


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


def test_members_may_be_numbered_in_one_byte_as_codes_of_categories_are():
    """Of 20 times 20 members the last is 399, and of 300 the last is 299."""
    first, second = np.array([0, 13, 19], np.int8), np.array([1, 5, 19], np.int8)
    codes, exist = check_members((first, second), (20, 20), (3,))
    np.testing.assert_array_equal(codes, [1, 265, 399])
    assert np.all(exist)
    codes, exist = jax.jit(lambda own: check_members(own, (300,), (3,)))(first)
    np.testing.assert_array_equal(codes, first)
    assert np.all(exist)
