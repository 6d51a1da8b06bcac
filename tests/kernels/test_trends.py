"""Kernels of trends: integrals of a walk and of a slope by quadrature, limits, splines, and growth outside of the rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, interpolate

from numpyro_gp.kernels import Centred, Constant, Empirical, IntegratedOU, IntegratedWiener, Linear, Wiener
from numpyro_gp.kernels.functionals import Derivative, covariance

T = np.array([-2.0, -0.3, 0.0, 0.4, 1.7, 3.1])


@jax.jit
def gram(kernel, x):
    return kernel.matrix(x[:, None])


def over_slopes(slope, x):
    """``int_0^x int_0^y slope(u, v)``, by quadrature of each pair with a break where the slope has a kink."""

    def inner(u, y):
        breaks = [u] if min(0, y) < u < max(0, y) else None
        return integrate.quad(lambda v: slope(u, v), 0, y, points=breaks, epsabs=1e-13)[0]

    def outer(a, b):
        breaks = [b] if min(0, a) < b < max(0, a) else None
        return integrate.quad(lambda u: inner(u, b), 0, a, points=breaks, epsabs=1e-12)[0]

    return np.array([[outer(a, b) if a and b else 0.0 for b in x] for a in x])


def test_walks_and_integrated_slopes_are_double_integrals():
    """Wrong by a half where the two sides of the origin were joined, or slopes had no covariance at the origin."""
    walk = np.where(T[:, None] * T > 0, np.minimum(abs(T)[:, None], abs(T)), 0.0)
    np.testing.assert_allclose(gram(Wiener(0.7), T), 0.7 * walk, atol=1e-14)
    np.testing.assert_allclose(gram(Wiener(0.7, 5.0), T + 5.0), 0.7 * walk, atol=1e-14)
    of_walk = over_slopes(lambda u, v: 0.7 * min(abs(u), abs(v)) * (u * v > 0), T)
    np.testing.assert_allclose(gram(IntegratedWiener(0.7), T), of_walk, atol=1e-11)
    for memory in (0.2, 1.5, 40.0):  # the closed form, both, the series
        of_slope = over_slopes(lambda u, v, memory=memory: 0.7 * np.exp(-abs(u - v) / memory), T)
        np.testing.assert_allclose(gram(IntegratedOU(0.7, memory), T), of_slope, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("memory", [0.1, 200.0, 1e6])
def test_single_precision_is_close_at_every_memory(memory):
    """Entry by entry: the difference of ``g`` would lose all digits of inputs near the origin."""
    x = np.array([-250.0, -249.0, -1.0, -0.01, 0.02, 0.5, 3.0, 249.9, 250.0, 300.0])
    kernel = IntegratedOU(1e-3, memory)
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), kernel)
    rounded = x.astype(np.float32)
    low, high = gram(single, rounded), np.asarray(gram(kernel, rounded.astype(float)))
    assert low.dtype == jnp.float32
    np.testing.assert_allclose(low, high, rtol=2e-6)
    # In extended precision, written as it is defined.
    r = lambda h: np.abs(np.longdouble(h)) / np.longdouble(memory)  # noqa: E731
    g = lambda h: r(h) + np.expm1(-r(h))  # noqa: E731
    wide = rounded.astype(np.longdouble)
    defined = 1e-3 * np.longdouble(memory) ** 2 * (g(wide)[:, None] + g(wide) - g(wide[:, None] - wide))
    np.testing.assert_allclose(high, defined.astype(float), rtol=1e-9, atol=1e-12 * float(np.abs(defined).max()))


def test_an_integrated_walk_beside_a_line_is_the_cubic_smoothing_spline():
    rng = np.random.default_rng(0)
    x, new = np.linspace(0.0, 3.0, 12), np.array([0.4, 1.9, 3.5])
    y = np.sin(2 * x) + 0.1 * rng.normal(size=12)
    kernel = Constant(1e7) + Linear(1e7) + IntegratedWiener(4.0, 1.0)
    K = np.asarray(gram(kernel, np.concatenate([x, new])))
    mean = K[12:, :12] @ np.linalg.solve(K[:12, :12] + 0.02 * np.eye(12), y)
    spline = interpolate.make_smoothing_spline(x, y, lam=0.02 / 4.0)
    # Beyond its last knot the spline is a straight line, as the mean of the walk is.
    slope = spline.derivative()(3.0)
    expected = np.append(spline(new[:2]), spline(3.0) + 0.5 * slope)
    np.testing.assert_allclose(mean, expected, atol=1e-5)


def test_slopes_have_the_covariance_of_the_walk_that_they_are():
    """At coincident points too, and at the origin, where ``abs`` has no slope."""
    x = jnp.asarray([-1.0, 0.0, 0.0, 0.6, 2.0])
    slopes = Derivative(x[:, None], 0)
    of = jax.jit(lambda kernel: (covariance(kernel, slopes), covariance(kernel, slopes, x[:, None])))
    own, _ = of(IntegratedWiener(0.7))
    np.testing.assert_allclose(own, gram(Wiener(0.7), x), atol=1e-12)
    own, with_values = of(IntegratedOU(0.7, 1.5))
    np.testing.assert_allclose(own, 0.7 * np.exp(-np.abs(np.subtract.outer(x, x)) / 1.5), atol=1e-12)
    step = 1e-6  # the slope at x and the value at y: a difference of values
    moved = [gram(IntegratedOU(0.7, 1.5), jnp.concatenate([x + h, x]))[:5, 5:] for h in (step, -step)]
    np.testing.assert_allclose(with_values, (moved[0] - moved[1]) / (2 * step), atol=1e-6)


@pytest.mark.long
def test_a_centred_trend_averages_to_zero_and_grows_outside_as_before():
    rows, weights = np.linspace(-9.0, 9.0, 40), np.random.default_rng(0).dirichlet(np.ones(40))
    points = Empirical(rows, weights)
    for kernel in (Wiener(0.3), IntegratedWiener(0.01), IntegratedOU(0.3, 7.0)):
        x = np.append(rows, [9.5, 14.0, 30.0])
        plain, centred = np.asarray(gram(kernel, x)), np.asarray(gram(Centred(kernel, points), x))
        assert np.abs(centred[:, :40] @ weights).max() < 1e-12 * centred.max()
        growth = [K.diagonal() + K[39, 39] - 2 * K[39] for K in (plain, centred)]
        np.testing.assert_allclose(growth[1], growth[0], rtol=1e-10, atol=1e-10)
