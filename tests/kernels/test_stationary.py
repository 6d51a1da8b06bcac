"""Stationary kernels against direct formulas in NumPy, the oracle, and distances that are hard to keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from numpyro_gp.kernels import (
    RBF,
    SHO,
    Cosine,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SpectralMixture,
)

LENGTHS = np.array([0.5, 1.2, 3.0])
FORMULAS = {
    RBF: lambda r: np.exp(-(r**2) / 2),
    Matern12: lambda r: np.exp(-r),
    Matern32: lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    Matern52: lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
}
FAMILY = pytest.mark.parametrize("family", FORMULAS)
matrix = jax.jit(lambda k, A, B: k.matrix(A, B))
gram = jax.jit(lambda k, A: k.matrix(A))


@pytest.mark.long
def test_scaled_distance_of_each_family(rng):
    X1, X2 = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    for family, formula in FORMULAS.items():
        for lengthscale in (0.8, LENGTHS):
            expected = 1.7 * formula(cdist(X1 / lengthscale, X2 / lengthscale))
            np.testing.assert_allclose(matrix(family(1.7, lengthscale), X1, X2), expected, rtol=1e-12)
            named = family(variance=1.7, lengthscale=lengthscale)
            expected = 1.7 * formula(cdist(X1 / lengthscale, X1 / lengthscale))
            np.testing.assert_allclose(gram(named, X1), expected, rtol=1e-7)  # the root at distance zero in cdist


def test_rational_quadratic_periodic_and_cosine(rng):
    """The first with its limit, the second in the form of Rasmussen and Williams, the third a plane wave."""
    X1, X2 = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    squares, gaps = cdist(X1 / LENGTHS, X2 / LENGTHS, "sqeuclidean"), X1[:, None] - X2[None]
    rational = 1.7 * (1 + squares / (2 * 0.6)) ** -0.6
    np.testing.assert_allclose(matrix(RationalQuadratic(1.7, LENGTHS, 0.6), X1, X2), rational, rtol=1e-12)
    limit = matrix(RationalQuadratic(1.7, LENGTHS, 1e9), X1, X2)
    np.testing.assert_allclose(limit, 1.7 * np.exp(-0.5 * squares), rtol=1e-6)
    period = np.array([0.7, 2.0, 3.1])
    circle = 1.7 * np.exp(-2 * np.sum((np.sin(np.pi * gaps / period) / LENGTHS) ** 2, axis=-1))
    np.testing.assert_allclose(matrix(Periodic(1.7, LENGTHS, period), X1, X2), circle, rtol=1e-11)
    wave = 1.7 * np.cos(2 * np.pi * np.sum(gaps / period, axis=-1))
    np.testing.assert_allclose(matrix(Cosine(1.7, period), X1, X2), wave, rtol=0, atol=1e-13)


@pytest.mark.parametrize("quality", [0.05, 0.3, 0.4999, 0.5, 0.5001, 0.7, 3.0, 50.0])
def test_damped_oscillations_are_sums_of_two_complex_exponentials(quality):
    """``exp(-a t) (cos b t + a sin b t / b)``, and its slope in the quality by differences."""
    t, omega = np.append([0.0, 1e-6, 1e-3], np.linspace(0.01, 30, 100)), 2.1
    a = omega / (2 * quality)
    b = np.sqrt(complex(omega**2 - a**2))
    ends = (1 + 1j * s * a / b if b else 0 for s in (-1, 1))
    waves = [0.5 * end * np.exp((1j * s * b - a) * t) for s, end in zip((1, -1), ends, strict=True)]
    expected = np.real(waves[0] + waves[1]) if b else np.exp(-a * t) * (1 + a * t)

    def row(quality):
        return SHO(1.7, 2 * np.pi / omega, quality).matrix(jnp.zeros((1, 1)), jnp.asarray(t)[:, None])[0]

    np.testing.assert_allclose(row(quality), 1.7 * expected, rtol=0, atol=1e-12)
    slope = jax.jacfwd(row)(quality)
    step = 1e-5 * quality
    np.testing.assert_allclose(slope, (row(quality + step) - row(quality - step)) / (2 * step), rtol=1e-5, atol=1e-7)


@pytest.mark.long
@FAMILY
def test_derivatives_at_zero_distance_are_the_closed_ones(family):
    """k(x, y) near x = y: slope 0; curvature -variance kappa''(0) / l^2 = 1, 3, 5/3 for RBF, Matern32, Matern52."""
    kernel, at = family(2.0, 0.5), jnp.array([0.3, -0.2])
    value = jax.jit(lambda x: kernel.matrix(x[None], at[None])[0, 0])
    np.testing.assert_allclose(jax.grad(value)(at), 0, atol=1e-12)
    for hessian in (jax.hessian(value)(at), jax.jacfwd(jax.jacfwd(value))(at), jax.jacrev(jax.jacrev(value))(at)):
        assert np.all(np.isfinite(hessian))
        curvature = {RBF: 1.0, Matern32: 3.0, Matern52: 5 / 3}.get(family)
        if curvature is not None:
            np.testing.assert_allclose(hessian, -2.0 * curvature / 0.25 * np.eye(2), rtol=1e-9, atol=1e-9)


def test_the_spectral_mixture_in_two_inputs(rng):
    weights, means = np.array([0.5, 0.9]), np.array([[0.3, 0.1], [0.8, 0.2]])
    scales = np.array([[0.2, 0.3], [0.1, 0.5]])
    X1, X2 = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    gaps = X1[:, None, None, :] - X2[None, :, None, :]
    terms = np.exp(-2 * np.pi**2 * gaps**2 * scales**2) * np.cos(2 * np.pi * gaps * means)
    expected = np.sum(weights * np.prod(terms, axis=-1), axis=-1)
    kernel = SpectralMixture(weights, means, scales)
    np.testing.assert_allclose(kernel.matrix(X1, X2), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X1), np.full(5, 1.4), rtol=1e-14)
