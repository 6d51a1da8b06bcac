"""Batches of kernels: made by stack or by vmap, and told from single kernels."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer.util import log_density
from scipy import stats

from numpyro_gp import gp_regression
from numpyro_gp import kernels as k
from numpyro_gp.kernels import RBF, Constant
from numpyro_gp.kernels.members import KernelBatch, KernelBatches, batch_shape, kernel_batch_of, stack
from tests.contracts.test_kernels import REGISTRY

VARIANCE, LENGTHSCALE = jnp.array([1.0, 2.0, 0.5]), jnp.ones((3, 2))
SINGLE = [make() for name, make in REGISTRY.items() if "function" not in name]
SINGLE += [k.Linear(2.0), k.Linear(2.0).on(0) * k.Linear(jnp.ones(1)).on(1)]


def test_stacked_kernels_are_a_batch_and_single_ones_are_not():
    for kernel in SINGLE:
        assert batch_shape(kernel) == ()
        assert batch_shape(stack([kernel] * 3)) == (3,)
        assert batch_shape(stack([stack([kernel] * 3)] * 2)) == (2, 3)
    function = lambda a, b: a @ b.T  # noqa: E731
    assert batch_shape(k.as_kernel(function)) == batch_shape(stack([function, function])) == ()  # the one that they are
    made = jax.vmap(k.Matern52)(VARIANCE, LENGTHSCALE)
    stacked = stack([k.Matern52(v, l) for v, l in zip(VARIANCE, LENGTHSCALE, strict=True)])
    assert jax.tree.structure(made) == jax.tree.structure(stacked)
    jax.tree.map(np.testing.assert_array_equal, made, stacked)


def test_lines_of_as_many_kernels_as_columns_are_kernels():
    """``(2,)`` variances of two columns may be those of one kernel: the batch was taken for it."""
    X = jnp.array([[1.0, 2.0], [0.5, -1.0]])
    variances = jnp.array([1.0, 4.0])
    for batch in (stack([k.Linear(1.0), k.Linear(4.0)]), jax.vmap(k.Linear)(variances)):
        assert batch_shape(batch) == (2,)
        diagonals = jax.vmap(lambda kernel: kernel.diagonal(X))(batch)
        np.testing.assert_allclose(diagonals, variances[:, None] * jnp.sum(X**2, axis=1)[None], rtol=1e-12)
    assert batch_shape(k.Linear(variances)) == ()
    y = jnp.array([[0.3, 1.0], [2.0, -0.4]])

    def model():
        with numpyro.plate("g", 2):
            gp_regression("y", jax.vmap(k.Linear)(variances), X, 0.1, obs=y)

    wanted = sum(
        stats.multivariate_normal(np.zeros(2), v * X @ X.T + 0.1 * np.eye(2)).logpdf(own)
        for v, own in zip(variances, y, strict=True)
    )
    np.testing.assert_allclose(log_density(model, (), {}, {})[0], wanted, rtol=1e-10)


def test_a_class_without_a_variance_cannot_be_told_from_a_batch():
    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class Own(k.Kernel):
        lengthscale: jax.Array

        def _cross(self, X1, X2):
            return k.RBF(1.0, self.lengthscale).matrix(X1, X2)

        def _diagonal(self, X):
            return jnp.ones(len(X))

    with pytest.raises(TypeError, match=r"kernels must be of classes with a field variance.*Add the field"):
        stack([Own(jnp.array(0.5)), Own(jnp.array(2.0))])


def test_modulated_kernels_are_batched_by_the_kernel_inside():
    """Change points of groups: each member is the kernel that its own values make."""
    places, X = jnp.array([-0.5, 0.0, 0.4]), jnp.linspace(-1.0, 1.0, 4)[:, None]
    make = lambda place: k.change_points([k.RBF(1.0, 0.5), k.Matern32(2.0, 0.3)], place, 0.2)  # noqa: E731
    for batch in (jax.vmap(make)(places), stack([make(place) for place in places])):
        assert batch_shape(batch) == (3,)
        found = jax.vmap(lambda kernel: kernel.matrix(X))(batch)
        np.testing.assert_allclose(found, [make(place).matrix(X) for place in places], rtol=1e-12)


X = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)))
NAMES = ("a", "constant", "b", "c")
COLUMNS = {"a": (2, 0), "b": (1, 3), "c": (3, 2)}
VARIANCES, LENGTHS = jnp.array([0.5, 1.5, 2.5]), jnp.array([[0.3, 1.0], [0.4, 2.0], [0.5, 3.0]])


def product(variance, lengths):
    """An interaction of columns 0 and 1 that reads the second first."""
    return variance * (RBF(1.0, lengths[1]).on(1) * RBF(1.0, lengths[0]).on(0))


def batches():
    three = kernel_batch_of(tuple(COLUMNS), tuple(COLUMNS.values()), product, VARIANCES, LENGTHS)
    return KernelBatches(NAMES, (three, KernelBatch(("constant",), (), Constant(9.0))))


def one_by_one():
    own = {name: (VARIANCES[at], LENGTHS[at], COLUMNS[name]) for at, name in enumerate(COLUMNS)}
    found = {n: v * (RBF(1.0, l[1]).on(c[1]) * RBF(1.0, l[0]).on(c[0])) for n, (v, l, c) in own.items()}
    return {name: found.get(name, Constant(9.0)) for name in NAMES}


def test_a_batch_is_its_kernels():
    """Columns follow the order in which the form reads them: the other order is another kernel by more than 0.1."""
    found, wanted = batches(), one_by_one()
    assert list(found) == list(NAMES)
    assert len(found) == 4
    for name, kernel in wanted.items():
        np.testing.assert_allclose(found[name].matrix(X), kernel.matrix(X), atol=1e-14)
    turned = RBF(0.5, 0.3).on(0) * RBF(1.0, 1.0).on(2)
    assert np.abs(turned.matrix(X) - found["a"].matrix(X)).max() > 0.1
    with pytest.raises(KeyError):
        found["d"]
