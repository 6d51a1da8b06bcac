"""Components of additive models: their kernels by column, and those that are alike as one batch."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive.component_kernels import Component, batches_of, column_kernel
from numpyro_gp.kernels import RBF, Empirical
from numpyro_gp.kernels.members import KernelBatches

POINTS, SHARES = np.array([0.0, 0.4, 0.9]), np.array([0.2, 0.5, 0.3])
X = np.array([[0.1, 0.0], [0.6, 2.0], [0.8, 1.0]])


def curve(variance, lengths, given):
    return variance * column_kernel(jnp.ones(()), given[0], RBF, lengths[0]).on(0)


def levels(variance, lengths, given):
    assert lengths.shape == (0,)
    return variance * column_kernel(jnp.ones(()), given[0]).on(0)


def test_components_have_their_own_numbers_wherever_their_batch_stands():
    given = [Empirical(jnp.asarray(POINTS))]
    parts = [
        Component("a", (0,), given, 1, "curve", curve),
        Component("b", (1,), [SHARES], 0, "levels", levels),
        Component("c", (1,), given, 1, "curve", curve),
    ]
    batches = batches_of(parts, jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 0.25]))
    assert [batch.names for batch in batches] == [("a", "c"), ("b",)]
    kernels = KernelBatches(("a", "b", "c"), tuple(batches))
    w = np.full(3, 1 / 3)
    for name, column, variance, length in (("a", 0, 1.0, 0.5), ("c", 1, 3.0, 0.25)):
        kappa = lambda s, t, length=length: np.exp(-0.5 * ((s[:, None] - t) / length) ** 2)  # noqa: E731
        x = X[:, column]
        a, c = kappa(x, POINTS) @ w, w @ kappa(POINTS, POINTS) @ w
        wanted = variance * (kappa(x, x) - np.outer(a, a) / c)
        np.testing.assert_allclose(kernels[name].matrix(X), wanted, atol=1e-6)
    codes = X[:, 1].astype(int)
    wanted = 2 * (np.eye(3) - np.outer(SHARES, SHARES) / (SHARES @ SHARES))[np.ix_(codes, codes)]
    np.testing.assert_allclose(kernels["b"].matrix(X), wanted, atol=1e-6)


def test_a_period_makes_a_circle():
    circle = column_kernel(jnp.ones(()), (Empirical(jnp.asarray(POINTS)), 1.0), RBF, jnp.asarray(0.5))
    np.testing.assert_allclose(circle.matrix(X[:, :1]), circle.matrix(X[:, :1] + 1), atol=1e-6)
