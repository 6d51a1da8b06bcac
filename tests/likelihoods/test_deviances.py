"""Log densities whose parts cancel: in float32 against SciPy, in float64 against the plain formulas.

By differences of ``log Gamma`` float32 values are wrong by 1e-3 (a Gamma of shape 1e4) to 16 (large counts).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from numpyro_gp.likelihoods import Gamma, NegativeBinomial, Poisson, StudentT
from numpyro_gp.likelihoods.deviances import (
    negative_binomial_deviance,
    poisson_deviance,
    stirling,
)

BUILD = {"student": lambda df: StudentT(df, 1.0), "negative binomial": NegativeBinomial, "gamma": Gamma}


def student(df, y, f):
    square = (y - f) ** 2
    slope = special.digamma((df + 1) / 2) - special.digamma(df / 2) - 1 / df - np.log1p(square / df)
    return stats.t.logpdf(y, df, f), 0.5 * (slope + (df + 1) * square / (df * (df + square)))


def negative_binomial(r, y, f):
    rate = np.exp(f)
    slope = special.digamma(y + r) - special.digamma(r) - np.log1p(rate / r) + (rate - y) / (r + rate)
    return stats.nbinom.logpmf(y, r, r / (r + rate)), slope


def gamma(a, y, f):
    return stats.gamma.logpdf(y, a, scale=np.exp(f)), np.log(y) - f - special.digamma(a)


SCIPY = {"student": student, "negative binomial": negative_binomial, "gamma": gamma}
CASES = [("student", df, 0.5, 0.3) for df in (1.0, 30.0, 1e4, 1e6, 1e7)]
CASES += [("negative binomial", r, y, np.log(y) + t) for r, y in ((1e5, 3), (1e6, 3), (1e7, 1e4)) for t in (-1, 0.01)]
CASES += [("negative binomial", r, 1e6, np.log(1e6) + t) for r in (0.1, 50.0, 1e4) for t in (-2.0, 0.0, 0.4)]
CASES += [("negative binomial", *rest) for rest in ((7.0, 0.0, 1.0), (1e6, 0.0, 0.5), (0.3, 2, 80.0))]
CASES += [("gamma", a, a, t) for a in (0.1, 3.0, 1e4, 1e5, 1e6) for t in (0.0, 0.003, -0.4)]


@pytest.mark.long
@pytest.mark.parametrize("name", BUILD)
def test_float32_against_scipy(name):
    """At variance 0 both quantities are ``log p(y | f)``; derivatives in the parameter are digammas."""
    given = np.array([case[1:] for case in CASES if case[0] == name], np.float32)
    value, slope = SCIPY[name](*given.T.astype(float))
    for quantity in ("expected_log_prob", "predictive_log_prob"):

        def ours(parameter, y, f, quantity=quantity):
            return getattr(BUILD[name](parameter), quantity)(y, f, jnp.zeros_like(f))

        found, found_slope = jax.jit(jax.vmap(jax.value_and_grad(ours)))(*given.T)
        assert found.dtype == jnp.float32
        assert_allclose(found / np.maximum(1, abs(value)), value / np.maximum(1, abs(value)), rtol=0, atol=1e-5)
        scale = np.maximum(1, abs(slope))
        assert_allclose(found_slope / scale, slope / scale, rtol=0, atol=1e-5)


@pytest.mark.long
def test_the_part_of_log_gamma_beyond_its_growth():
    x = np.concatenate([[0.0, 1e-12], np.logspace(-3, 4, 200)])
    expected = special.gammaln(1 + x) - special.xlogy(x, x) + x
    assert_allclose(stirling(x), expected, rtol=0, atol=3e-11)  # gammaln(1e4) itself is 8e4
    assert_allclose(stirling(x.astype(np.float32)), expected, rtol=0, atol=1e-5)
    slope, curvature = jax.vmap(jax.grad(stirling)), jax.vmap(jax.grad(jax.grad(stirling)))
    assert_allclose(slope(x[2:]), special.digamma(1 + x[2:]) - np.log(x[2:]), rtol=1e-10, atol=1e-12)
    assert_allclose(curvature(x[2:]), special.polygamma(1, 1 + x[2:]) - 1 / x[2:], rtol=1e-6)
    assert np.all(np.isfinite(slope(np.array([0.0, 1e-38], np.float32))))


def plain_poisson(mean, variance, count, exposure):
    peak = jax.scipy.special.xlogy(count, count) - count
    return count * (mean + jnp.log(exposure)) - exposure * jnp.exp(mean + variance / 2) - peak


def plain_negative_binomial(f, count, size):
    log_p, log_rest = jax.nn.log_sigmoid(f - jnp.log(size)), jax.nn.log_sigmoid(jnp.log(size) - f)
    q = count / (count + size)
    return count * log_p + size * log_rest - jax.scipy.special.xlogy(count, q) - size * jnp.log1p(-q)


GRID = [part.ravel() for part in np.meshgrid(np.linspace(-3.0, 4.0, 15), [0.5, 1.0, 20.0], [0.3, 2.0, 500.0])]


@pytest.mark.long
@pytest.mark.parametrize(
    ("ours", "plain", "given"),
    [
        (poisson_deviance, plain_poisson, (GRID[0], GRID[1] / 10, GRID[1], GRID[2])),
        (negative_binomial_deviance, plain_negative_binomial, tuple(GRID)),
    ],
    ids=["poisson", "negative binomial"],
)
def test_deviances_and_their_derivatives_are_those_of_the_plain_formulas(ours, plain, given):
    """On both sides of the switch between differences and logarithms."""
    every = tuple(range(len(given)))
    for function in (lambda f: f, lambda f: jax.grad(f, every), lambda f: jax.hessian(f, 0)):
        found, expected = (jax.tree.leaves(jax.vmap(function(form))(*given)) for form in (ours, plain))
        for one, other in zip(found, expected, strict=True):
            assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_deviances_stay_finite_where_rates_leave_the_range():
    found = jax.value_and_grad(negative_binomial_deviance)(np.float32(95.0), np.float32(3.0), np.float32(2.0))
    assert_allclose(found, (plain_negative_binomial(95.0, 3.0, 2.0), -2.0), rtol=1e-5)


def test_log_prob_at_values_is_that_of_the_deviances():
    """As for NUTS at points: float32 lost 0.6 nats at a count of a million, and slopes of small rates were NaN."""
    y = np.float32(1e6)
    found = Poisson().log_prob(jnp.float32(y), jnp.log(jnp.float32(y)))
    assert_allclose(found, stats.poisson.logpmf(1e6, np.exp(np.float64(np.log(y)))), atol=2e-2)
    few = NegativeBinomial(5.0)
    for likelihood, count, f, slope in ((Poisson(), 0.0, -90.0, 0.0), (few, 0.0, -45.0, 0.0), (few, 2.0, -45.0, 2.0)):
        value = jax.grad(lambda f, own=likelihood, y=count: own.log_prob(jnp.float32(y), f))(jnp.float32(f))
        assert_allclose(value, slope, atol=1e-5)


def test_float32_poisson_against_scipy():
    """A million at its rate was -7.19 in place of -7.83."""
    y = np.array([0, 1, 3, 100, 1e4, 1e6, 1e6, 1e6], np.float32)
    f = (np.log(np.maximum(y, 1)) + np.array([0.3, 0, -3, 0.2, -0.01, 0, 0.001, -0.5])).astype(np.float32)
    expected = stats.poisson.logpmf(y.astype(float), np.exp(f.astype(float)))
    found = Poisson().expected_log_prob(y, f, np.zeros_like(f))
    assert_allclose(found / np.maximum(1, abs(expected)), expected / np.maximum(1, abs(expected)), rtol=0, atol=1e-5)
