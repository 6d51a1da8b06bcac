"""Likelihoods much narrower than the latent marginal: values and derivatives against a graded grid of NumPy's.

Its densities are SciPy's, its derivatives those of the normal density alone: no slope of a likelihood is taken.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from numpyro_gp.likelihoods import Beta, Exponential, Gamma, NegativeBinomial, Poisson, StudentT

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def integrals(log_prob, mean, variance, centre, width):
    """``E log p``, ``log E p``, and the derivatives of both in mean and variance."""
    scale, grades = np.sqrt(variance), np.concatenate([[0.0], np.geomspace(1e-2, 1e9, 250)])
    edges = np.concatenate([mean + scale * np.linspace(-14, 14, 300), centre + width * grades, centre - width * grades])
    edges = np.unique(np.clip(edges, mean - 14 * scale, mean + 14 * scale))
    f = 0.5 * (edges[1:] + edges[:-1])[:, None] + 0.5 * np.diff(edges)[:, None] * NODES
    z = (f - mean) / scale
    weights = 0.5 * np.diff(edges)[:, None] * WEIGHTS * stats.norm.pdf(z) / scale
    values = log_prob(f)
    expected, largest = np.sum(weights * values), np.max(values)
    density = weights * np.exp(values - largest)
    scores = z / scale, (z**2 - 1) / (2 * variance)
    slopes = [np.sum(weights * (values - expected) * score) for score in scores]
    predictive = [np.sum(density * score) / np.sum(density) for score in scores]
    return (expected, *slopes), (np.log(np.sum(density)) + largest, *predictive)


@jax.jit
def both(likelihood, y, *moments):
    functions = (likelihood.expected_log_prob, likelihood.predictive_log_prob)
    return [jax.value_and_grad(lambda m, s, fun=fun: fun(y, m, s), argnums=(0, 1))(*moments) for fun in functions]


def of_both(likelihood, y, moments, dtype=float):
    given = jax.tree.map(lambda a: jnp.asarray(a, dtype), (likelihood, y, *moments))
    return [(value, *gradient) for value, gradient in both(*given)]


def student(df, scale):
    return lambda f: stats.t.logpdf(0.0, df, f, scale)


# Degrees of freedom, scale, mean and variance for y = 0. Half the second derivative made the first -13.5 for -2.49.
STUDENT = [(4.0, 1e-3, 0.0, 1.0), (4.0, 1 / 200, 0.0, 1.0), (3.0, 0.2, 0.0, 1e4), (4.0, 1e-6, 0.5, 1.0)]
STUDENT += [(0.5, 1e-3, 0.0, 1e4), (4.0, 1.0, 7.9, 1.0), (4.0, 1.0, 8.1, 1.0)]
STUDENT += [(4.0, 0.002, -3.0, 4.0)]  # -0.21 for 0.079
FIRST = [pytest.param(case, marks=[pytest.mark.long] * (at > 0)) for at, case in enumerate(STUDENT)]


@pytest.mark.parametrize("case", FIRST)
@pytest.mark.parametrize("dtype", [jnp.float64, pytest.param(jnp.float32, marks=pytest.mark.long)])
def test_student_t_over_decades_of_widths(case, dtype):
    df, scale, *moments = case
    found = of_both(StudentT(df, scale), 0.0, moments, dtype)
    wanted = integrals(student(df, scale), *moments, 0.0, scale)
    # In single precision 1e-6 is 17 steps of a float at 0.5.
    rtol = 2e-5 if dtype == jnp.float64 else 2e-4 if scale > 1e-5 else 2e-3
    assert_allclose(found, wanted, rtol=rtol, atol=1e-6)


CASES = {  # likelihood, log p, y, mean, variance, where it is narrow, dtype, whether the expectation is quadrature
    "millions": (Poisson(), stats.poisson, 1e6, np.log(1e6), 1.0, jnp.float32),  # -72.75 for -0.50
    "overflow": (Poisson(), stats.poisson, 1.0, 0.0, 150.0, jnp.float32),  # NaN
    "a million from afar": (Poisson(), stats.poisson, 1e6, 5.0, 30.0, jnp.float64),
    "negative binomial": (NegativeBinomial(1e6), stats.nbinom, 1e5, 0.0, 30.0, jnp.float64),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["overflow", *(pytest.param(n, marks=pytest.mark.long) for n in list(CASES) if n != "overflow")]
)
def test_gradient_of_the_density_of_a_count(name):
    likelihood, family, y, *moments, dtype = CASES[name]

    def log_prob(f):
        if family is stats.poisson:
            return y * f - np.exp(np.minimum(f, 700.0)) - special.gammaln(y + 1)
        odds, constant = f - np.log(1e6), special.gammaln(y + 1e6) - special.gammaln(1e6) - special.gammaln(y + 1)
        return constant + y * special.log_expit(odds) + 1e6 * special.log_expit(-odds)

    wanted = integrals(log_prob, *moments, np.log(y), y**-0.5)[1]
    assert_allclose(of_both(likelihood, y, moments, dtype)[1], wanted, rtol=2e-4, atol=2e-6)


@pytest.mark.long
@pytest.mark.parametrize("likelihood", [NegativeBinomial(2.0), Gamma(2.0), Exponential(), Beta(2.0), Poisson()])
def test_derivatives_are_finite_where_the_density_is_zero(likelihood):
    """``exp(f)`` overflows at far nodes: in single precision at a variance of 150, in double at 10 000."""
    y = 0.5 if isinstance(likelihood, Beta | Gamma | Exponential) else 1.0
    for dtype, variance in ((jnp.float32, 150.0), (jnp.float64, 1e4)):
        *given, target = jax.tree.map(lambda a: jnp.asarray(a, dtype), (likelihood, 0.0, variance, y))  # noqa: B023

        def all_three(*given, y=target):
            density = lambda own, m, s: own.predictive_log_prob(y, m, s)  # noqa: E731
            return [derivative(density, argnums=(0, 1, 2))(*given) for derivative in (jax.jacrev, jax.jacfwd)]

        assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(jax.jit(all_three)(*given)))


@pytest.mark.long
@pytest.mark.parametrize("name", ["expected_log_prob", "predictive_log_prob"])
def test_second_derivatives_are_differences_of_the_first(name):
    """With Hermite polynomials and with slopes."""

    def all_of(scale, at):
        function = lambda moments: getattr(StudentT(4.0, scale), name)(0.0, moments[0], moments[1])  # noqa: E731
        pairs = ((jax.jacrev, jax.jacrev), (jax.jacfwd, jax.jacrev), (jax.jacfwd, jax.jacfwd))
        return jax.grad(function)(at), [outer(inner(function))(at) for outer, inner in pairs]

    derivatives, at, step = jax.jit(all_of), np.array([-0.7, 0.9]), 1e-4
    for scale in (0.02, 2.0):
        ends = [[derivatives(scale, at + sign * step * e)[0] for sign in (1, -1)] for e in np.eye(2)]
        differences = np.array([(up - down) / (2 * step) for up, down in ends])
        for found in derivatives(scale, at)[1]:
            assert_allclose(found, differences, rtol=1e-5, atol=1e-7)


def beta(y, k):
    def log_prob(f):
        m = special.expit(f)
        first, second = special.gammaln(k * m + 1), special.gammaln(k * special.expit(-f) + 1)
        # log Gamma(a) = log Gamma(a + 1) - log a, where a rounds to zero.
        rest = special.gammaln(k) + 2 * np.log(k) + special.log_expit(f) + special.log_expit(-f)
        return rest - first - second + (k * m - 1) * np.log(y) + (k * special.expit(-f) - 1) * np.log1p(-y)

    return log_prob


@pytest.mark.long
@pytest.mark.parametrize(
    ("y", "k", "mean", "variance"), [(1e-10, 2.0, 5.0, 30.0), (1e-10, 2.0, 50.0, 30.0), (1 - 1e-6, 100.0, 5.0, 30.0)]
)
def test_shares_near_an_end_peak_far_from_their_link(y, k, mean, variance):
    """Nodes around the link of ``y`` gave 15.972 for 15.934, and -30.09 for -30.25."""
    found = of_both(Beta(k), y, (mean, variance))
    wanted = integrals(beta(y, k), mean, variance, special.logit(y), 1.0)
    assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)
