"""Zero-mean kernels against integrals by many nodes, dense formulas and limits of long lengthscales."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from numpyro_gp.kernels import (
    RBF,
    Empirical,
    Gaussian,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    Uniform,
    ZeroMean,
    ZeroMeanLinear,
)
from tests.kernels.test_stationary import FAMILY, FORMULAS


def averages(correlation, low, high, x):
    """Averages over one argument in the interval, at ``x`` and over the other; a rough kernel has a kink at ``x``."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    nodes, weights = (nodes + 1) / 2, weights / 2

    def mean(at):
        ends = itertools.pairwise(np.unique(np.clip([low, at, high], low, high)))
        parts = [(b - a) * weights @ correlation(abs(at - a - (b - a) * nodes)) for a, b in ends]
        return sum(parts) / (high - low)

    return np.array([mean(at) for at in x]), 2 * weights @ ((1 - nodes) * correlation((high - low) * nodes))


@FAMILY
def test_uniform_measures_have_the_integrals_and_slopes_of_many_nodes(family):
    """On both sides of the switch at 0.2 of the interval; at its ends, where the closed forms have an absolute value.

    Far outside, twenty nodes over tens of lengthscales gave -1e-4 in place of zero.
    """
    low, high, x = -1.0, 2.0, np.array([-19.0, -1.1, -1.0, 0.3, 1.9, 2.0, 5.9, 31.0])

    @jax.jit
    def evaluate(kernel):
        slope = jax.vmap(jax.grad(lambda at: kernel.diagonal(at[None, None])[0]))
        return slope(jnp.asarray(x)), kernel.matrix(x[:, None])

    for lengthscale in (0.15, 0.5999, 0.6001, 1.5, 6.0):
        correlation = lambda r, l=lengthscale: FORMULAS[family](r / l)  # noqa: E731
        slope, matrix = evaluate(ZeroMean(family(2.0, lengthscale), Uniform(low, high)))
        kbar, cbar = averages(correlation, low, high, x)
        edges = (correlation(abs(x - low)) - correlation(abs(x - high))) / (high - low)  # the slope of kbar
        np.testing.assert_allclose(slope, -4 * kbar * edges / cbar, atol=1e-9)
        expected = 2 * (correlation(abs(x[:, None] - x)) - np.outer(kbar, kbar) / cbar)
        np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-10)


def test_normal_measures_have_the_integrals_of_many_nodes():
    """Of two columns, which is a product of kernels of one."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights, sd, lengths = weights / weights.sum(), np.array([0.5, 0.7]), np.array([0.6, 0.9])
    kernel, X = ZeroMean(RBF(1.3, lengths), Gaussian(0.3, sd)), np.array([[0.1, 0.9], [0.5, -0.4], [2.0, 0.3]])
    matrix = 1.3
    for x, s, l in zip(X.T, 0.3 + sd[:, None] * nodes, lengths, strict=True):
        kbar, points = (FORMULAS[RBF]((a[:, None] - s) / l) @ weights for a in (x, s))
        matrix *= FORMULAS[RBF]((x[:, None] - x) / l) - np.outer(kbar, kbar) / (weights @ points)
    np.testing.assert_allclose(kernel.matrix(X), matrix, atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(matrix), atol=1e-12)


@FAMILY
def test_float32_keeps_digits_at_long_lengthscales(family):
    """The plain form has no correct digit here: k0 is 4e-6 (smooth kernels) between terms near 1."""
    x = np.random.default_rng(0).uniform(0, 1, (8, 1))
    evaluate = jax.jit(lambda k, X: k.matrix(X))
    for lengthscale, tolerance in ((1.0, 3e-6), (10.0, 4e-5), (100.0, 4e-4)):
        kernel = ZeroMean(family(1.0, lengthscale), Uniform())
        high, low = evaluate(kernel, x), evaluate(kernel, x.astype(np.float32))
        assert low.dtype == jnp.float32
        np.testing.assert_allclose(low, high, rtol=0, atol=tolerance * float(jnp.max(high)))
    if family is RBF:  # to first order in 1/l^2 it is (x - 1/2)(y - 1/2) / l^2 after centring; no digits may be lost
        found = evaluate(ZeroMean(RBF(1.0, 1e4), Uniform()), x) * 1e8
        np.testing.assert_allclose(found, (x - 0.5) * (x - 0.5).T, rtol=1e-6, atol=1e-9)


POINTS, WEIGHTS = np.array([-1.0, 0.2, 0.3, 4.0]), np.array([0.1, 0.2, 0.3, 0.4])
STATIONARY = {
    "rbf": RBF(1.3, 0.5),
    "matern12": Matern12(1.3, 0.5),
    "matern32": Matern32(1.3, 2.0),
    "matern52": Matern52(1.3, 20.0),
    "rational quadratic": RationalQuadratic(1.3, 0.5, 0.7),
    "periodic": Periodic(1.3, 0.5, 5.0),
}


@pytest.mark.parametrize("name", STATIONARY)
def test_empirical_measure_equals_the_dense_formula_and_averages_to_zero(name):
    """The plain form, in the values of the kernel itself, which the code does not use."""
    base, x = STATIONARY[name], np.linspace(-2, 5, 5)[:, None]
    kernel = ZeroMean(base, Empirical(POINTS, WEIGHTS))
    kbar = np.asarray(base.matrix(x, POINTS[:, None])) @ WEIGHTS
    cbar = WEIGHTS @ np.asarray(base.matrix(POINTS[:, None])) @ WEIGHTS
    dense = base.matrix(x) - np.outer(kbar, kbar) / cbar
    np.testing.assert_allclose(kernel.matrix(x), dense, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(x), np.diagonal(dense), rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel.matrix(x, POINTS[:, None]) @ WEIGHTS, 0, atol=1e-12)


def test_columns_have_their_own_points():
    measure = Empirical(np.stack([POINTS, POINTS + 1.0]), np.stack([WEIGHTS, WEIGHTS[::-1]]))
    both = ZeroMean(Matern52(1.7, np.array([0.5, 2.0])), measure)
    x = np.array([[0.0, 1.0], [2.0, -0.5], [4.0, 5.0]])
    one, two = both.factors(2)
    np.testing.assert_allclose(both.matrix(x), 1.7 * (one.on(0) * two.on(1)).matrix(x), rtol=1e-12)
    rows = np.stack([np.full(4, 2.0), POINTS + 1.0], axis=1)
    np.testing.assert_allclose(both.matrix(x, rows) @ WEIGHTS[::-1], 0, atol=1e-12)


def test_a_line_around_its_mean():
    x, measures = np.array([[1.0], [3.0]]), (Empirical(POINTS, WEIGHTS), Uniform(0.0, 3.0), Gaussian(0.7))
    for measure, mean in zip(measures, (WEIGHTS @ POINTS, 1.5, 0.7), strict=True):
        kernel = ZeroMeanLinear(2.0, measure)
        np.testing.assert_allclose(kernel.matrix(x), 2 * (x - mean) * (x - mean).T, rtol=1e-12)
        np.testing.assert_allclose(kernel.diagonal(x), 2 * (x[:, 0] - mean) ** 2, rtol=1e-12)


def test_points_of_as_many_columns_as_the_inputs():
    """An index behind the last row of points is that row in JAX, and further rows were left out."""
    two = Empirical(jnp.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]))
    kernel = ZeroMean(RBF(1.0, 1.0), two)
    for columns in (1, 3):
        required = rf"points of the measure must be a scalar or of shape \({columns},\), one value for each column"
        for call in (kernel.matrix, lambda X: kernel.factors(X.shape[1])):
            with pytest.raises(ValueError, match=required):
                call(jnp.zeros((2, columns)))
    with pytest.raises(ValueError, match="measure of ZeroMeanLinear must be of one column, but got one of 2"):
        ZeroMeanLinear(1.0, two).matrix(jnp.ones((2, 1)))
    one = Empirical(jnp.array([[0.0, 2.0]]))
    np.testing.assert_allclose(ZeroMeanLinear(1.0, one).matrix(jnp.array([[1.0], [3.0]])), [[0.0, 0.0], [0.0, 4.0]])


def test_measures_and_their_columns():
    assert float(Uniform(np.array([0.0, 1.0]), 3.0).column(1).low) == 1.0
    assert float(Gaussian(0.0, np.array([0.5, 2.0])).column(1).sd) == 2.0
    nodes, weights = Gaussian(0.2, 1.5).quadrature(breaks=[0.3])
    np.testing.assert_allclose(
        weights @ (np.abs(nodes - 0.3)), stats.norm(0.2, 1.5).expect(lambda s: abs(s - 0.3)), rtol=1e-7
    )


def test_a_column_of_few_values_is_its_own_measure():
    found = Empirical.of(np.array([3.0, 1.0, 3.0, 2.0]), weights=np.array([1.0, 2.0, 1.0, 4.0]))
    assert found.points.tolist() == [1.0, 2.0, 3.0]
    assert found.weights.tolist() == [0.25, 0.5, 0.25]


def test_bins_keep_the_mean_and_have_as_much_weight_each():
    """Of a skewed column; the mean of even cells over its range would be off, and most of them empty."""
    x = np.random.default_rng(0).lognormal(size=1000)
    found = Empirical.of(x, most=20)
    np.testing.assert_allclose(found.weights, 1 / 20, atol=1e-12)
    np.testing.assert_allclose(found.weights @ found.points, x.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.points[0], np.sort(x)[:50].mean(), rtol=1e-12)
    two = Empirical(jnp.stack([found.points, 2 * found.points]))
    np.testing.assert_allclose(two.column(1).quadrature()[0], 2 * found.points)
