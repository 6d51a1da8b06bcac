"""Gaussian expectations against closed forms, SciPy's adaptive rule, and exact moments."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

import numpyro_gp as ngp
from numpyro_gp.likelihoods.expectations import composite_cuts, expect, log_expect
from tests.contracts.test_likelihoods import DATA, MEAN, REGISTRY, VARIANCE, known, moments
from tests.likelihoods.grids import expected

LAWS = {  # of the registry of the contracts, by SciPy
    "gaussian": lambda f: stats.norm(f, 0.6),
    "student_t": lambda f: stats.t(3.5, f, 0.4),
    "gamma": lambda f: stats.gamma(2.3, scale=np.exp(f)),
    "exponential": lambda f: stats.expon(scale=np.exp(f)),
    "beta_logit": lambda f: stats.beta(4 * special.expit(f), 4 * special.expit(-f)),
    "beta_probit": lambda f: stats.beta(4 * special.ndtr(f), 4 * special.ndtr(-f)),
    "poisson": lambda f: stats.poisson(np.exp(f)),
    "negative_binomial": lambda f: stats.nbinom(1.7, 1.7 / (1.7 + np.exp(f))),
    "bernoulli_logit": lambda f: stats.bernoulli(special.expit(f)),
    "bernoulli_probit": lambda f: stats.bernoulli(special.ndtr(f)),
    "binomial": lambda f: stats.binom(5, special.expit(f)),
}


def assert_sums(name, log_density):
    """Expectations are sums over a grid; the density at values too, of replicates on a first axis."""
    y, found = np.array(REGISTRY[name].targets), [values[DATA] for values in known(name)]
    log = expected(lambda f: np.maximum(log_density(y, f), -1e6), MEAN, VARIANCE)
    assert_allclose(found[0], log, rtol=1e-8, atol=1e-7)
    assert_allclose(found[1], np.log(expected(lambda f: np.exp(log_density(y, f)), MEAN, VARIANCE)), atol=1e-6)
    with jax.numpy_rank_promotion("allow"):  # as users have it
        at = REGISTRY[name].likelihood.log_prob(y, MEAN[None] + np.zeros((2, 1)))
    assert_allclose(at, [log_density(y, MEAN)] * 2, rtol=1e-9)


SLOW = ("beta_probit", "binomial", "negative_binomial")


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.long] * (one in SLOW)) for one in LAWS])
def test_expectations_and_moments_are_sums_of_scipys(name):
    """Tolerances reject 20 nodes of Gauss and Hermite, and a missing half of the variance term."""
    law = LAWS[name]
    assert_sums(name, lambda y, f: law(f).logpmf(y) if hasattr(law(f), "pmf") else law(f).logpdf(y))
    mean = expected(lambda f: law(f).mean(), MEAN, VARIANCE)
    spread = expected(lambda f: law(f).var() + law(f).mean() ** 2, MEAN, VARIANCE) - mean**2
    for found, wanted in zip(moments(REGISTRY[name].likelihood, MEAN, VARIANCE), (mean, spread), strict=True):
        assert_allclose(found, wanted, rtol=1e-7)


def test_expectations_of_ordered_classes_are_sums_of_scipys():
    """Of both ends in the upper tail the reflections, which keep their digits."""
    cuts = np.array([-np.inf, -0.5, 0.4, 1.0, np.inf])

    def log_density(y, f):
        a, b = ((cuts[y.astype(int) + at] - f) / 0.5 for at in (0, 1))
        a, b = np.where(a + b > 0, (-b, -a), (a, b))
        return np.log(np.maximum(special.ndtr(b) - special.ndtr(a), 1e-300))

    assert_sums("ordinal", log_density)


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
@pytest.mark.parametrize("variance", [0.0, 1e-12])
@pytest.mark.parametrize("composite", [True, False])
def test_derivatives_at_vanishing_variance(variance, composite):
    """At ``s = 0``: ``E = fun``, ``dE/ds = fun'' / 2``, ``d2E/ds2 = fun'''' / 4``."""
    mean, variance = jnp.array(0.6), jnp.array(variance)
    cuts = composite_cuts(0.6, 0.1, mean) if composite else None
    for mode in (jax.grad, jax.jacfwd):
        derivative = mode(lambda s: expect(jnp.sin, mean, s, cuts=cuts))
        assert_allclose(derivative(variance), -0.5 * np.sin(0.6), rtol=1e-9)
        assert_allclose(mode(derivative)(variance), 0.25 * np.sin(0.6), rtol=1e-9)


@pytest.mark.long
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


def test_log_expect_survives_densities_that_underflow():
    mean, variance = jnp.array(0.0), jnp.array(1.0)
    assert_allclose(log_expect(lambda f: -5000.0 + 0.0 * f, mean, variance), -5000.0, rtol=1e-12)
    assert log_expect(lambda f: jnp.full_like(f, -jnp.inf), mean, variance) == -jnp.inf


@pytest.mark.long
def test_a_density_that_underflows_at_a_known_function_is_minus_infinity():
    """It was no number, and so was the average over draws of which one alone was so far away."""
    f, known = jnp.array([-4000.0, -2.0, 4000.0]), jnp.zeros(3)
    for likelihood, y in ((ngp.likelihoods.Poisson(), 1), (ngp.likelihoods.Gamma(2.0), 0.5)):
        found = likelihood.predictive_log_prob(jnp.full(3, y), f, known)
        rate = np.exp(np.asarray(f)[1:2])
        wanted = stats.poisson(rate).logpmf(y) if y == 1 else stats.gamma(2.0, scale=rate).logpdf(y)
        assert_allclose(found[1], wanted[0], rtol=1e-6)
        far, near = (2, 0) if y == 1 else (0, 2)
        assert found[far] == -np.inf
        assert np.isfinite(found[near])


@pytest.mark.long
def test_densities_and_moments_where_an_exponent_overflows_in_single_precision():
    """They were no numbers, or those of a peak at ``log y`` that is far from the mode."""
    mean, variance = np.array([400.0, 400.0, 4000.0]), np.array([1e-4, 1e-2, 1.0])
    low, high = np.full(3, -50.0), mean.copy()
    for _ in range(200):  # Laplace's rule is exact to some nats of some 1e5 or more
        middle = 0.5 * (low + high)
        rises = 3 - np.exp(np.minimum(middle, 700)) + (mean - middle) / variance > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    log_prob = 3 * low - np.exp(low) - np.log(6) - 0.5 * (low - mean) ** 2 / variance
    wanted = log_prob - 0.5 * np.log1p(variance * np.exp(low))
    single = [jnp.asarray(part, jnp.float32) for part in (np.full(3, 3.0), mean, variance)]
    assert_allclose(ngp.likelihoods.Poisson().predictive_log_prob(*single), wanted, rtol=3e-6)
    at = [jnp.asarray(part, jnp.float32) for part in ([60.0, -4000.0], [0.0, 1000.0])]
    for counts in (ngp.likelihoods.Poisson(), ngp.likelihoods.PointPattern(1.0)):
        assert_allclose(counts.predictive_variance(*at), [np.exp(60.0), 0.0], rtol=1e-5)
    assert ngp.likelihoods.NegativeBinomial(2.0).predictive_variance(*at)[1] == 0
    assert ngp.likelihoods.Gamma(2.0).predictive_variance(*at)[1] == 0
    own = ngp.likelihoods.as_likelihood(lambda f: dist.Poisson(jnp.exp(f)))
    for of_known in (own.expected_log_prob, own.predictive_log_prob):  # of a known function: its own density
        found = of_known(jnp.float32(3.0), jnp.asarray([-50.0, 20.0], jnp.float32), jnp.zeros(2, jnp.float32))
        assert_allclose(found, stats.poisson(np.exp([-50.0, 20.0])).logpmf(3), rtol=1e-5)
    f = np.linspace(-60.0, 120.0, 400_001)
    density = stats.norm(3000.0, 2000.0).pdf(f) * stats.gamma(2.0, scale=np.exp(f)).pdf(0.2)
    single = [jnp.float32(part) for part in (0.2, 3000.0, 2000.0**2)]
    assert_allclose(
        ngp.likelihoods.Gamma(2.0).predictive_log_prob(*single), np.log(np.trapezoid(density, f)), rtol=1e-5
    )
    wide = ngp.likelihoods.Censored(ngp.likelihoods.Gamma(2.0), right=True)
    found = wide.predictive_log_prob(*[jnp.asarray([part], jnp.float32) for part in (0.5, 50.0, 1000.0)])
    f = np.linspace(-20.0, 300.0, 20001)
    density = stats.norm(50.0, np.sqrt(1000.0)).pdf(f) * stats.gamma(2.0, scale=np.exp(f)).sf(0.5)
    assert_allclose(found, np.log(np.trapezoid(density, f) + stats.norm(50.0, np.sqrt(1000.0)).sf(300.0)), rtol=1e-3)


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
