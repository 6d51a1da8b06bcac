"""Gaussian expectations against closed forms, SciPy's adaptive rule, and exact moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

from numpyro_gp.quadrature import (
    composite_cuts,
    composite_rule,
    expect,
    floored_sqrt,
    gauss_hermite,
    log_expect,
    quasi_normal,
    spread_points,
    tensor_hermite,
)


def double_factorial(n):
    return float(np.prod(np.arange(n, 0, -2)))


def test_hermite_integrates_moments_up_to_its_degree():
    nodes, weights = gauss_hermite(10)
    for power in range(0, 20, 2):  # rejects physicists' nodes: their second moment is 1/2
        assert_allclose(weights @ nodes**power, double_factorial(power - 1) if power else 1.0, rtol=1e-12)
        assert_allclose(weights @ nodes ** (power + 1), 0.0, atol=1e-6)


def test_rules_are_built_once_and_are_numpy():
    assert gauss_hermite(20)[0] is gauss_hermite(20)[0]
    assert all(isinstance(part, np.ndarray) for part in (*gauss_hermite(3), *tensor_hermite(3, 2), *quasi_normal(2)))


def test_number_of_nodes_is_checked():
    with pytest.raises(ValueError, match="num must be at least 1, but got 0"):
        gauss_hermite(0)


def test_tensor_rule_has_exact_mixed_moments():
    nodes, weights = tensor_hermite(6, 3)
    assert nodes.shape == (216, 3)
    assert weights.shape == (216,)
    assert_allclose(weights @ (nodes[:, 0] ** 2 * nodes[:, 1] ** 4 * nodes[:, 2] ** 2), 3.0, rtol=1e-12)
    assert_allclose(weights @ (nodes[:, 0] * nodes[:, 1]), 0.0, atol=1e-14)


def test_quasi_normal_points_are_finite_and_near_standard_normal():
    nodes, weights = quasi_normal(5)
    assert np.isfinite(nodes).all()
    assert_allclose(weights @ nodes, 0.0, atol=1e-12)
    assert_allclose(nodes.T @ (weights[:, None] * nodes), np.eye(5), atol=1e-12)
    # Not a moment that the construction makes exact: E exp(z) along the diagonal.
    assert_allclose(weights @ np.exp(nodes.sum(1) / np.sqrt(5)), np.exp(0.5), rtol=0.02)


def test_composite_rule_integrates_normal_moments():
    z, weights = composite_rule(jnp.array([[0.3, -50.0], [7.0, 0.0]]))
    assert z.shape == weights.shape == (2, 64)
    assert_allclose(jnp.sum(weights, -1), 1.0, atol=1e-9)  # a missing half width gives 2
    assert_allclose(jnp.sum(weights * z**2, -1), 1.0, atol=5e-9)
    assert_allclose(jnp.sum(weights * z, -1), 0.0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0])
def test_composite_rule_resolves_a_narrow_peak_that_hermite_misses(scale):
    y, mean, variance = 0.7, jnp.array(-0.2), jnp.array(1.3)

    def log_density(f):
        return -0.5 * (f - y) ** 2 / scale**2 - np.log(scale) - 0.5 * np.log(2 * np.pi)

    cuts = composite_cuts(y, scale, mean)
    exact = stats.norm.logpdf(y, -0.2, np.sqrt(1.3 + scale**2))
    assert_allclose(log_expect(log_density, mean, variance, cuts=cuts), exact, atol=1e-5)
    if scale < 0.1:
        assert abs(log_expect(log_density, mean, variance) - exact) > 0.1


def test_expect_and_derivatives_of_a_cosine():
    """``E cos f = cos(m) exp(-s / 2)``: every derivative is known."""
    mean, variance = 0.4, 0.7
    value = np.cos(mean) * np.exp(-variance / 2)
    first = jax.grad(expect, argnums=(1, 2))(jnp.cos, mean := jnp.array(mean), variance := jnp.array(variance))
    assert_allclose(expect(jnp.cos, mean, variance), value, rtol=1e-12)
    assert_allclose(first[0], -np.tan(0.4) * value, rtol=1e-12)
    assert_allclose(first[1], -0.5 * value, rtol=1e-12)  # Price without its half: twice this
    second = jax.hessian(expect, argnums=(1, 2))(jnp.cos, mean, variance)
    assert_allclose(second[0][0], -value, rtol=1e-11)
    assert_allclose(second[0][1], 0.5 * np.tan(0.4) * value, rtol=1e-11)
    assert_allclose(second[1][1], 0.25 * value, rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("variance", [0.0, 1e-300, 1e-12])
@pytest.mark.parametrize("composite", [True, False])
def test_derivatives_at_vanishing_variance(variance, composite):
    """At ``s = 0``: ``E = fun``, ``dE/ds = fun'' / 2``, ``d2E/ds2 = fun'''' / 4``."""
    mean, variance = jnp.array(0.6), jnp.array(variance)
    cuts = composite_cuts(0.6, 0.1, mean) if composite else None
    for mode in (jax.grad, jax.jacfwd):
        derivative = mode(lambda s: expect(jnp.sin, mean, s, cuts=cuts))
        assert_allclose(derivative(variance), -0.5 * np.sin(0.6), rtol=1e-9)
        assert_allclose(mode(derivative)(variance), 0.25 * np.sin(0.6), rtol=1e-9)


def test_derivatives_in_arguments_and_all_mixed_ones():
    """``E exp(a f) = exp(a m + a^2 s / 2)``, in reverse over forward and forward over reverse."""

    def ours(m, s, a):
        return expect(lambda f, a: jnp.exp(a * f), m, s, a)

    def exact(m, s, a):
        return jnp.exp(a * m + 0.5 * a**2 * s)

    at = (jnp.array(0.3), jnp.array(0.8), jnp.array(0.5))
    for first, second in ((jax.jacfwd, jax.jacrev), (jax.jacrev, jax.jacfwd), (jax.jacrev, jax.jacrev)):
        got = first(second(ours, argnums=(0, 1, 2)), argnums=(0, 1, 2))(*at)
        want = first(second(exact, argnums=(0, 1, 2)), argnums=(0, 1, 2))(*at)
        assert_allclose(np.array(got), np.array(want), rtol=1e-10)


def test_log_expect_gradients_match_the_closed_form():
    def ours(m, s, a):
        return log_expect(lambda f, a: a * f, m, s, a, cuts=composite_cuts(0.0, 1.0, m))

    at = (jnp.array(0.3), jnp.array(0.8), jnp.array(0.5))
    assert_allclose(ours(*at), 0.15 + 0.1, rtol=1e-9)
    assert_allclose(jax.grad(ours, argnums=(0, 1, 2))(*at), [0.5, 0.125, 0.3 + 0.4], rtol=1e-8)
    assert_allclose(jax.hessian(ours, argnums=2)(*at), 0.8, rtol=1e-7)


def test_log_expect_survives_densities_that_underflow():
    mean, variance = jnp.array(0.0), jnp.array(1.0)
    assert_allclose(log_expect(lambda f: -5000.0 + 0.0 * f, mean, variance), -5000.0, rtol=1e-12)
    assert log_expect(lambda f: jnp.full_like(f, -jnp.inf), mean, variance) == -jnp.inf


def test_expect_against_adaptive_integration():
    found = expect(
        lambda f: jnp.log1p(f**2), jnp.array(0.5), jnp.array(2.0), cuts=composite_cuts(0.0, 1.0, jnp.array(0.5))
    )
    exact = integrate.quad(lambda f: np.log1p(f**2) * stats.norm.pdf(f, 0.5, np.sqrt(2.0)), -15, 15, epsabs=1e-12)[0]
    assert_allclose(found, exact, atol=1e-9)


def test_float32_and_batches_under_jit_and_vmap():
    mean, variance = jnp.linspace(-1, 1, 6).reshape(2, 3).astype(jnp.float32), jnp.full((2, 3), 0.5, jnp.float32)
    cuts = composite_cuts(0.2, 0.5, mean)
    found = jax.jit(lambda m, s, c: expect(jnp.cos, m, s, cuts=c))(mean, variance, cuts)
    assert found.dtype == jnp.float32
    assert_allclose(found, np.cos(mean) * np.exp(-0.25), rtol=2e-6)
    mapped = jax.vmap(jax.vmap(lambda m, s, c: expect(jnp.cos, m, s, cuts=c)))(mean, variance, cuts)
    assert_allclose(mapped, found, rtol=1e-6)


def test_floored_sqrt_has_a_finite_derivative_at_zero():
    assert_allclose(floored_sqrt(jnp.array(4.0)), 2.0, rtol=1e-15)
    assert np.isfinite(jax.grad(floored_sqrt)(0.0))


def test_spread_points_turns_by_the_factor():
    rng = np.random.default_rng(3)
    mean, factor = rng.normal(size=(4, 2)), np.tril(rng.normal(size=(4, 2, 2)))
    nodes, weights = tensor_hermite(5, 2)
    points = spread_points(jnp.asarray(mean), jnp.asarray(factor), nodes)
    assert points.shape == (25, 4, 2)
    centred = np.asarray(points) - mean
    assert_allclose(
        np.einsum("k,kni,knj->nij", weights, centred, centred), factor @ factor.swapaxes(-1, -2), atol=1e-12
    )
