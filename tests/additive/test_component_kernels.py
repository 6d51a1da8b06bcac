"""Components of additive models: their kernels by column, integrals of their features, variances and shares."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.additive.component_kernels import (
    Component,
    Squares,
    batches_of,
    check_same_measure,
    column_kernel,
    shares_of,
    squares_over_measure,
)
from numpyro_gp.kernels import RBF, Empirical, Uniform, ZeroMean
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


def test_integrals_under_an_empirical_measure_are_sums():
    """``sum_q w_q k(Z, x_q) k(x_q, Z)`` and ``sum_q w_q k(x_q, x_q)``."""
    points, weights = jnp.array([0.0, 0.3, 2.0]), jnp.array([0.2, 0.5, 0.3])
    kernel, Z = ZeroMean(RBF(1.5, 0.7), Empirical(points, weights)), jnp.array([[0.1], [1.0]])
    basis = handlers.seed(ngp.additive_gp, rng_seed=0)("f", {"a": kernel.on(0)}, {"a": Z}).basis
    integrals = squares_over_measure(basis)["a"]
    features = np.asarray(basis.parts[0].inverse @ kernel.matrix(Z, points[:, None]))
    np.testing.assert_allclose(integrals.gram, (features * np.asarray(weights)) @ features.T, rtol=1e-12)
    np.testing.assert_allclose(integrals.prior, weights @ kernel.diagonal(points[:, None]), rtol=1e-12)


def test_measures_that_differ_by_their_own_scale_are_two():
    """A thousandth of the number is no rounding of a day since 1970, and 1e-8 none of lengths in metres."""
    for low, high, other in [(20000.0, 20001.0, 20000.1), (0.0, 2e-9, 1e-9)]:
        one = "a", Uniform(jnp.float32(low), jnp.float32(high))
        check_same_measure(0, one, ("b", Uniform(np.nextafter(np.float32(low), np.float32(1)), jnp.float32(high))))
        with pytest.raises(ValueError, match="the measure of column 0 must be the same in all components"):
            check_same_measure(0, one, ("b", Uniform(jnp.float32(other), jnp.float32(high))))


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_variances_over_rows_are_those_of_functions_there(kind, rng):
    """``f_c = A_c^T v_c``, with rows of weights: a weighted variance of each function, and of each draw."""
    A, values, mass = rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3, 4)), rng.uniform(size=5)
    mass /= mass.sum()
    prior = 2 + np.sum(A**2, axis=1)  # two more than what the features explain
    root = rng.normal(size=(2, 3, 3))
    own = Squares.over(kind(A), kind(prior), kind(mass))
    f = np.einsum("cmn,cms->csn", A, values)
    away = f - (f @ mass)[..., None]
    np.testing.assert_allclose(own.left, 2.0, rtol=1e-12)
    np.testing.assert_allclose(own.of_values(kind(values)), away**2 @ mass, rtol=1e-12)
    np.testing.assert_allclose(own.drawn(kind(values)), away**2 @ mass + 2, rtol=1e-12)
    g = np.einsum("cmn,cmk->ckn", A, root)
    spread = ((g - (g @ mass)[..., None]) ** 2 @ mass).sum(1)
    found = own.expected(kind(values[..., 0]), kind(root @ root.transpose(0, 2, 1)))
    np.testing.assert_allclose(found, away[:, 0] ** 2 @ mass + 2 + spread, rtol=1e-12)
    assert isinstance(found, np.ndarray) == (kind is np.asarray)


def test_shares_of_nothing_are_zero():
    variances = np.array([[1.0, 0.0], [3.0, 0.0]])
    np.testing.assert_array_equal(shares_of(variances), [[0.25, 0.0], [0.75, 0.0]])
    np.testing.assert_array_equal(shares_of(jnp.asarray(variances)), [[0.25, 0.0], [0.75, 0.0]])
