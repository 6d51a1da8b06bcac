"""Zero-mean kernels against the dense oracle, adaptive integration and limits of long lengthscales."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

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
from tests.oracles.vectors import cases

FAMILIES = {"rbf": RBF, "matern12": Matern12, "matern32": Matern32, "matern52": Matern52}
CORRELATIONS = {
    "rbf": lambda r: np.exp(-(r**2) / 2),
    "matern12": lambda r: np.exp(-r),
    "matern32": lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    "matern52": lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
}


def kernel_of(case):
    measure = Uniform() if "measure_mean" not in case else Gaussian(case["measure_mean"], case["measure_sd"])
    return ZeroMean(FAMILIES[case["kernel"]](case["variance"], case["lengthscale"]), measure)


@pytest.mark.long
@pytest.mark.parametrize("instance", range(7))
def test_one_input_equals_the_oracle(instance):
    case = cases("anova")[instance]
    kernel, x, y = kernel_of(case), case["x"][:, None], case["y"][:, None]
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-9)
    close(kernel.matrix(x, y), case["gram"])
    close(kernel.diagonal(x), case["diag"])
    close(kernel.kernel_mean(x), case["kernel_mean"])
    close(kernel.kernel_mean_mean(), case["kernel_mean_mean"])


@pytest.mark.long
def test_product_over_two_inputs_equals_the_oracle():
    case = cases("anova")[7]
    kernel = kernel_of(case)
    np.testing.assert_allclose(kernel.matrix(case["X"], case["Y"]), case["gram"], rtol=0, atol=1e-9)
    one, two = kernel.factors(2)
    product = case["variance"] * one.on(0) * two.on(1)
    np.testing.assert_allclose(product.matrix(case["X"], case["Y"]), case["gram"], rtol=0, atol=1e-9)


def integrated(correlation, lengthscale, low, high, x):
    """The kernel on ``x``, its mean there, and the mean of that, by adaptive quadrature."""

    def mean(a):
        whole = integrate.quad(lambda s: correlation(abs(a - s) / lengthscale), low, high, points=[a], epsabs=1e-12)
        return whole[0] / (high - low)

    double = integrate.quad(mean, low, high, epsabs=1e-10)[0] / (high - low)
    return correlation(abs(x[:, None] - x[None, :]) / lengthscale), np.array([mean(a) for a in x]), double


# Both sides of the switch at 0.2, an interval that is not [0, 1], and points on its ends.
@pytest.mark.parametrize("name", FAMILIES)
def test_closed_form_and_quadrature_equal_adaptive_integration(name):
    low, high, correlation = -1.0, 2.0, CORRELATIONS[name]
    x = np.array([low, 0.3, 1.9, high])
    evaluate = jax.jit(lambda k: (k.kernel_mean(x[:, None]), k.kernel_mean_mean(), k.matrix(x[:, None])))
    for lengthscale in (0.15, 0.5999, 0.6001, 2.0):
        kappa, kbar, cbar = integrated(correlation, lengthscale, low, high, x)
        got_mean, got_double, got = evaluate(ZeroMean(FAMILIES[name](2.0, lengthscale), Uniform(low, high)))
        np.testing.assert_allclose(got_mean, 2 * kbar, rtol=1e-9)
        np.testing.assert_allclose(got_double, 2 * cbar, rtol=1e-9)
        expected = 2 * (kappa - kbar[:, None] * kbar[None, :] / cbar)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
def test_derivative_in_the_inputs_at_the_ends_of_the_interval(name):
    """The closed forms have an absolute value at x = 0, whose naive derivative there is zero."""
    for lengthscale in (0.1, 0.5):
        kernel = ZeroMean(FAMILIES[name](1.0, lengthscale), Uniform())
        slope = jax.jit(jax.grad(lambda a, k: k.kernel_mean(a.reshape(1, 1))[0]))
        correlation = CORRELATIONS[name]
        edge = 1 - correlation(1 / lengthscale)  # d/dx int_0^1 kappa(x - s) ds at 0; minus that at 1
        np.testing.assert_allclose([slope(jnp.asarray(e), kernel) for e in (0.0, 1.0)], [edge, -edge], atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_float32_keeps_digits_at_long_lengthscales(name):
    """The plain form has no correct digit here: k0 is 4e-6 (smooth kernels) between terms near 1."""
    x = np.random.default_rng(0).uniform(0, 1, (8, 1))
    evaluate = jax.jit(lambda k, X: k.matrix(X))
    for lengthscale, tolerance in ((1.0, 3e-6), (10.0, 4e-5), (100.0, 4e-4)):
        kernel = ZeroMean(FAMILIES[name](1.0, lengthscale), Uniform())
        high, low = evaluate(kernel, x), evaluate(kernel, x.astype(np.float32))
        assert low.dtype == jnp.float32
        np.testing.assert_allclose(low, high, rtol=0, atol=tolerance * float(jnp.max(high)))


def test_long_lengthscale_limit_in_float64():
    """To first order in 1/l^2 the RBF kernel is (x - 1/2)(y - 1/2) / l^2 after centring; no digits may be lost."""
    x, lengthscale = np.array([[0.1], [0.9]]), 1e4
    got = ZeroMean(RBF(1.0, lengthscale), Uniform()).matrix(x) * lengthscale**2
    np.testing.assert_allclose(got, (x - 0.5) * (x - 0.5).T, rtol=1e-6)


def test_traced_lengthscale_has_a_finite_gradient_on_both_sides_of_the_switch():
    x = np.linspace(0, 1, 5)[:, None]
    value = jax.jit(jax.value_and_grad(lambda l: jnp.sum(jnp.sin(ZeroMean(Matern52(1.0, l), Uniform()).matrix(x)))))
    for lengthscale in (0.01, 0.19, 0.2, 0.21, 50.0):
        step = 1e-6 * lengthscale
        low, high = (float(value(lengthscale + e)[0]) for e in (-step, step))
        np.testing.assert_allclose(value(lengthscale)[1], (high - low) / (2 * step), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ZeroMean(RBF(1.0, 1.0).on(0), Uniform()), "but got an Active. Take columns and factors outside"),
        (lambda: ZeroMean(RBF(1.0, 1.0), "uniform"), "must be Uniform.* but got a str"),
        (lambda: ZeroMeanLinear(1.0, "uniform"), "must be Uniform.* but got a str"),
        (lambda: ZeroMean(Periodic(1.0, 1.0, 1.0), Uniform()), "but got a Periodic. Give it an Empirical measure"),
        (
            lambda: ZeroMean(Matern32(1.0, 1.0), Gaussian()),
            "Uniform or Empirical for Matern kernels, but got Gaussian with Matern32",
        ),
    ],
)
def test_unsupported_kernels_and_measures(build, message):
    with pytest.raises(TypeError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Gaussian(0.0, -1.0), "sd must be positive"),
        (lambda: Gaussian(np.nan, 1.0), "mean must be finite"),
        (lambda: Uniform(np.zeros((2, 2)), 1.0), r"low must be a scalar or one value for each input.*\(2, 2\)"),
        (
            lambda: ZeroMean(RBF(1.0, 1.0), Uniform(np.zeros(3), 1.0)).matrix(np.zeros((2, 2))),
            r"low must be a scalar or of shape \(2,\)",
        ),
        (
            lambda: ZeroMean(RBF(1.0, np.ones(3)), Uniform()).factors(2),
            r"lengthscale must be a scalar or of shape \(2,\)",
        ),
    ],
)
def test_wrong_values(build, message):
    with pytest.raises(ValueError, match=message):
        build()


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
    np.testing.assert_allclose(kernel.kernel_mean(x), kbar, rtol=1e-12)


def test_columns_have_their_own_points():
    measure = Empirical(np.stack([POINTS, POINTS + 1.0]), np.stack([WEIGHTS, WEIGHTS[::-1]]))
    both = ZeroMean(Matern52(1.7, np.array([0.5, 2.0])), measure)
    x = np.array([[0.0, 1.0], [2.0, -0.5], [4.0, 5.0]])
    one, two = both.factors(2)
    np.testing.assert_allclose(both.matrix(x), 1.7 * (one.on(0) * two.on(1)).matrix(x), rtol=1e-12)
    rows = np.stack([np.full(4, 2.0), POINTS + 1.0], axis=1)
    np.testing.assert_allclose(both.matrix(x, rows) @ WEIGHTS[::-1], 0, atol=1e-12)


def test_a_line_around_its_mean():
    x = np.array([[1.0], [3.0]])
    for measure, mean in (
        (Empirical(POINTS, WEIGHTS), WEIGHTS @ POINTS),
        (Uniform(0.0, 3.0), 1.5),
        (Gaussian(0.7), 0.7),
    ):
        kernel = ZeroMeanLinear(2.0, measure)
        np.testing.assert_allclose(kernel.matrix(x), 2 * (x - mean) * (x - mean).T, rtol=1e-12)
        np.testing.assert_allclose(kernel.diagonal(x), 2 * (x[:, 0] - mean) ** 2, rtol=1e-12)
    with pytest.raises(ValueError, match="inputs of ZeroMeanLinear must be one column"):
        kernel.matrix(np.ones((2, 2)))


def test_points_of_as_many_columns_as_the_inputs():
    """An index behind the last row of points is that row in JAX, and further rows were left out."""
    two = Empirical(jnp.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]))
    kernel = ZeroMean(RBF(1.0, 1.0), two)
    for columns in (1, 3):
        required = rf"points of the measure must be a scalar or of shape \({columns},\), one value for each column"
        for call in (kernel.matrix, kernel.kernel_mean):
            with pytest.raises(ValueError, match=required):
                call(jnp.zeros((2, columns)))
        with pytest.raises(ValueError, match=required):
            kernel.factors(columns)
    np.testing.assert_allclose(kernel.kernel_mean_mean(), kernel.kernel_mean_mean(2))
    with pytest.raises(ValueError, match="measure of ZeroMeanLinear must be of one column, but got one of 2"):
        ZeroMeanLinear(1.0, two).matrix(jnp.ones((2, 1)))
    one = Empirical(jnp.array([[0.0, 2.0]]))
    np.testing.assert_allclose(ZeroMeanLinear(1.0, one).matrix(jnp.array([[1.0], [3.0]])), [[0.0, 0.0], [0.0, 4.0]])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_of_a_kernel_far_outside_of_the_interval(name):
    """Twenty nodes over tens of lengthscales gave -1e-4 in place of zero."""
    x, correlation = np.array([-6.0, -1.1, 0.4, 2.3, 10.0]), CORRELATIONS[name]
    nodes, weights = np.polynomial.legendre.leggauss(200)

    @jax.jit
    def mean_and_slope(lengthscale):
        kernel = ZeroMean(FAMILIES[name](1.0, lengthscale), Uniform(0.0, 1.0))
        return jax.vmap(jax.value_and_grad(lambda at: kernel.kernel_mean(at[None, None])[0]))(jnp.asarray(x))

    def mean(at, lengthscale):
        """On both sides of x, where a rough kernel has a kink."""
        ends = np.unique(np.clip([0.0, at, 1.0], 0, 1))
        parts = [(a + (b - a) * (nodes + 1) / 2, (b - a) * weights / 2) for a, b in itertools.pairwise(ends)]
        return sum(w @ correlation(abs(at - s) / lengthscale) for s, w in parts)

    for lengthscale in (0.21, 0.5, 2.0):
        found, slope = mean_and_slope(lengthscale)
        np.testing.assert_allclose(found, [mean(at, lengthscale) for at in x], atol=1e-12)
        wanted = correlation(abs(x) / lengthscale) - correlation(abs(x - 1) / lengthscale)
        np.testing.assert_allclose(slope, wanted, atol=1e-10)
