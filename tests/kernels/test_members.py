"""Batches of kernels: made by stack or by vmap, told from single kernels, and refused where they disagree."""

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
from numpyro_gp.kernels.members import batch_shape, stack

VARIANCE, LENGTHSCALE = jnp.array([1.0, 2.0, 0.5]), jnp.ones((3, 2))
MIXTURE = k.SpectralMixture(jnp.ones(2), jnp.ones((2, 1)), jnp.ones((2, 1)))
SINGLE = {
    "rbf": k.RBF(1.0, jnp.ones(3)),
    "linear": k.Linear(jnp.ones(3)),
    "linear of one variance": k.Linear(2.0),
    "products of lines": k.Linear(2.0).on(0) * k.Linear(jnp.ones(1)).on(1),
    "polynomial": k.Polynomial(jnp.ones(3), 0.5),
    "sum": 2.0 * k.RBF(1.0, jnp.ones(2)).on([0, 1]) + k.Periodic(1.0, 1.0, 1.0).on(0),
    "product": k.Coregion(jnp.ones((3, 1)), 0.1).on(1) * k.Matern52(1.0, 0.3).on(0),
    "mixture": MIXTURE,
    "zero mean": k.ZeroMean(k.RBF(1.0, 0.3), k.Uniform(0.0, 1.0)),
}


@pytest.mark.parametrize("name", SINGLE)
def test_stacked_kernels_are_a_batch_and_single_ones_are_not(name):
    assert batch_shape(SINGLE[name]) == ()
    assert batch_shape(stack([SINGLE[name]] * 3)) == (3,)
    assert batch_shape(stack([stack([SINGLE[name]] * 3)] * 2)) == (2, 3)


def test_vmap_of_a_constructor_makes_the_same_value():
    made = jax.vmap(k.Matern52)(VARIANCE, LENGTHSCALE)
    stacked = stack([k.Matern52(v, l) for v, l in zip(VARIANCE, LENGTHSCALE, strict=True)])
    assert jax.tree.structure(made) == jax.tree.structure(stacked)
    jax.tree.map(np.testing.assert_array_equal, made, stacked)
    assert batch_shape(made) == (3,)
    assert batch_shape(k.as_kernel(lambda a, b: a @ b.T)) == ()


def test_refusals():
    with pytest.raises(TypeError, match="kernels must be a list of kernels"):
        stack(k.RBF(1.0, 1.0))
    with pytest.raises(ValueError, match="of one form, with hyper-parameters of the same shapes, but got kernel 1 is"):
        stack([k.RBF(1.0, 1.0), k.Matern32(1.0, 1.0)])
    with pytest.raises(ValueError, match="of one form"):
        stack([k.RBF(1.0, 1.0), k.RBF(1.0, jnp.ones(2))])
    batch = stack([k.RBF(1.0, 1.0)] * 2)
    with pytest.raises(ValueError, match="a batch of kernels must be of one size throughout"):
        batch_shape(batch + k.RBF(1.0, 1.0))


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


def test_functions_are_stacked_as_the_one_function_that_they_are():
    function = lambda a, b: a @ b.T  # noqa: E731
    assert batch_shape(stack([function, function])) == ()


def test_modulated_kernels_are_batched_by_the_kernel_inside():
    """Change points of groups: each member is the kernel that its own values make."""
    places, X = jnp.array([-0.5, 0.0, 0.4]), jnp.linspace(-1.0, 1.0, 4)[:, None]
    make = lambda place: k.change_points([k.RBF(1.0, 0.5), k.Matern32(2.0, 0.3)], place, 0.2)  # noqa: E731
    for batch in (jax.vmap(make)(places), stack([make(place) for place in places])):
        assert batch_shape(batch) == (3,)
        found = jax.vmap(lambda kernel: kernel.matrix(X))(batch)
        np.testing.assert_allclose(found, [make(place).matrix(X) for place in places], rtol=1e-12)
