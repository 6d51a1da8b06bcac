"""Tails, masses and moments of NumPyro's distributions, and what they are made of, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special as sp
import scipy.stats as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad

from numpyro_gp.likelihoods.tails import log_beta_parts, log_gamma_parts, log_mass, log_tails, moments_of
from tests.precision import x64

REAL = np.array([-30.0, -3.0, -0.2, 0.3, 2.0, 9.0, 80.0])
POSITIVE = np.array([1e-3, 0.2, 1.0, 3.0, 30.0])
COUNTS = np.array([0.0, 1.0, 7.0, 20.0])
CASES = {
    "normal": (dist.Normal(0.3, 2.0), st.norm(0.3, 2), REAL),
    "half_normal": (dist.HalfNormal(2.0), st.halfnorm(0, 2), POSITIVE),
    "student": (dist.StudentT(3.5, 0.3, 2.0), st.t(3.5, 0.3, 2), REAL),
    "cauchy": (dist.Cauchy(0.3, 2.0), st.cauchy(0.3, 2), REAL),
    "laplace": (dist.Laplace(0.3, 2.0), st.laplace(0.3, 2), REAL),
    "logistic": (dist.Logistic(0.3, 2.0), st.logistic(0.3, 2), REAL),
    "gumbel": (dist.Gumbel(0.3, 2.0), st.gumbel_r(0.3, 2), REAL[1:]),
    "exponential": (dist.Exponential(0.7), st.expon(0, 1 / 0.7), POSITIVE),
    "weibull": (dist.Weibull(2.0, 1.3), st.weibull_min(1.3, scale=2), POSITIVE),
    "gompertz": (dist.Gompertz(0.1, 0.4), st.gompertz(0.1, scale=1 / 0.4), POSITIVE[:-1]),
    "gamma": (dist.Gamma(2.3, 0.4), st.gamma(2.3, scale=1 / 0.4), POSITIVE),
    "inverse_gamma": (dist.InverseGamma(2.3, 0.4), st.invgamma(2.3, scale=0.4), POSITIVE),
    "log_normal": (dist.LogNormal(0.2, 0.5), st.lognorm(0.5, scale=np.exp(0.2)), POSITIVE),
    "beta": (dist.Beta(2.0, 3.0), st.beta(2, 3), np.array([0.01, 0.3, 0.9, 0.999])),
    "poisson": (dist.Poisson(5.0), st.poisson(5), COUNTS),
    "negative_binomial": (dist.NegativeBinomial2(5.0, 2.0), st.nbinom(2, 2 / 7), COUNTS),
    "binomial": (dist.Binomial(25, 0.3), st.binom(25, 0.3), COUNTS),
    "by_cdf": (dist.Uniform(0.0, 2.0), st.uniform(0, 2), np.array([0.1, 1.9])),
}


@pytest.mark.parametrize("name", CASES)
def test_tails_are_those_of_scipy_far_out_too(name):
    """Relative, so that a tail of e^-800 that underflowed would be seen."""
    ours, theirs, values = CASES[name]
    below, above = log_tails(ours, jnp.asarray(values))
    assert_allclose(below, theirs.logcdf(values), rtol=1e-9, atol=1e-12)
    assert_allclose(above, theirs.logsf(values), rtol=1e-9, atol=1e-12)


def test_values_beyond_the_support_are_certain():
    below, above = log_tails(dist.Weibull(2.0, 1.3), jnp.array([-1.0, 0.0, jnp.inf]))
    assert below.tolist() == [-np.inf, -np.inf, 0.0]
    assert above.tolist() == [0.0, 0.0, -np.inf]


@pytest.mark.long
def test_masses_of_wide_narrow_open_and_far_intervals_with_their_slopes():
    lower = np.array([-np.inf, 1.0, -np.inf, -1.0, 30.0, -31.0, 0.5, 0.5])
    upper = np.array([0.0, np.inf, np.inf, 2.0, 31.0, -30.0, 0.5 + 1e-9, 0.6])
    found, slope = jax.vmap(jax.value_and_grad(lambda m, a, b: log_mass(dist.Normal(m, 1.0), a, b)), (None, 0, 0))(
        0.0, lower, upper
    )
    n = st.norm()
    exact = [n.logcdf(0), n.logsf(1), 0, np.log(n.cdf(2) - n.cdf(-1)), n.logsf(30), n.logsf(30)]
    exact += [n.logpdf(0.5) + np.log(1e-9), np.log(n.cdf(0.6) - n.cdf(0.5))]
    assert_allclose(found, exact, rtol=1e-7)
    slopes = [(n.pdf(a) - n.pdf(b)) / np.exp(log) for a, b, log in zip(lower[:4], upper[:4], exact[:4])]
    assert_allclose(slope[:4], slopes, rtol=1e-10, atol=1e-12)
    assert_allclose(slope[6], 0.5, rtol=1e-6)  # of the density: a difference would have lost every digit
    in_single = log_mass(dist.Normal(jnp.float32(0.0), jnp.float32(1.0)), jnp.float32(0.5), jnp.float32(0.501))
    assert_allclose(in_single, np.log(n.cdf(0.501) - n.cdf(0.5)), atol=1e-4)  # the ends are rounded, to 6e-5 of it


def test_masses_of_counts_hold_both_ends():
    found = log_mass(dist.Poisson(5.0), jnp.array([0.0, 3.0, 7.0, 5.0]), jnp.array([0.0, 5.0, jnp.inf, 5.0]))
    p = st.poisson(5)
    assert_allclose(found, [p.logpmf(0), np.log(p.pmf([3, 4, 5]).sum()), p.logsf(6), p.logpmf(5)], rtol=1e-12)


@pytest.mark.long
def test_moments_where_numpyro_has_none():
    """Of what is censored; by quantiles; and by draws, to their noise of 1/30 of a standard deviation."""
    censored = dist.RightCensoredDistribution(dist.Weibull(jnp.array([2.0]), 1.3), True)
    exact = st.weibull_min(1.3, scale=2)
    assert_allclose(jnp.concatenate(moments_of(censored)), [exact.mean(), exact.var()], rtol=1e-12)
    log_logistic = dist.TransformedDistribution(dist.Logistic(jnp.array([0.2]), 0.2), dist.transforms.ExpTransform())
    exact = st.fisk(5, scale=np.exp(0.2))
    assert_allclose(jnp.concatenate(moments_of(log_logistic)), [exact.mean(), exact.var()], rtol=1e-4)

    # Student's quantiles are of a package that need not be there: NumPyro raises an ImportError, and draws do.
    shifted = dist.TransformedDistribution(
        dist.StudentT(jnp.array([20.0]), 0.0, 1.0), dist.transforms.AffineTransform(1.0, 2.0)
    )
    mean, variance = moments_of(shifted)
    assert abs(mean[0] - 1.0) < 0.2
    assert abs(variance[0] - 4.0 * 20 / 18) < 0.6

    class Drawn(dist.Normal):
        mean = variance = property(lambda _: (_ for _ in ()).throw(NotImplementedError))

        def icdf(self, q):
            raise NotImplementedError

    mean, variance = moments_of(Drawn(jnp.array([1.0]), 2.0))
    assert abs(mean[0] - 1.0) < 0.2
    assert abs(variance[0] - 4.0) < 0.6


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_variance_of_angles_is_that_of_the_numbers(dtype):
    """NumPyro's is one less the mean cosine: 0.137 for 0.302 of concentration 4."""
    concentration = [0.01, 0.7, 4.0, 1e4, 1e8]
    mean, variance = moments_of(dist.VonMises(dtype([0.2, 3.0, -1.0, 0.0, 0.0]), dtype(concentration)))
    assert_allclose(mean, [0.2, 3.0, -1.0, 0.0, 0.0], atol=1e-6)

    def exact(k):
        return quad(lambda a: a * a * np.exp(k * (np.cos(a) - 1)) / (2 * np.pi * sp.i0e(k)), -np.pi, np.pi)[0]

    known = [*map(exact, concentration[:3]), *(1 / k for k in concentration[3:])]
    assert_allclose(variance, known, rtol=2e-4)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("df", [1.5, 4.0, 60.0])
def test_students_tails_around_the_centre(df, dtype):
    """Across the place where one form takes over from the other, on both sides."""
    z = np.array([0.0, 1e-9, -1e-7, 3e-6, -1e-5, 3e-3, -6e-3, 0.1]).astype(dtype)
    below, above = log_tails(dist.StudentT(dtype(df), dtype(0.0), dtype(1.0)), jnp.asarray(z))
    rtol = 2e-6 if dtype == jnp.float32 else 1e-11
    assert_allclose(below, st.t.logcdf(z.astype(float), df), rtol=rtol)
    assert_allclose(above, st.t.logsf(z.astype(float), df), rtol=rtol)


@pytest.mark.parametrize("kind", [dist.Pareto, dist.Uniform])
def test_draws_of_a_support_that_depends_on_them(kind):
    """The bound took the shape of the targets: JAX could not broadcast draws to it."""
    y, low = np.array([2.0, 3.0, 4.0]), np.exp(np.linspace(-1.0, 0.5, 12)).reshape(4, 3)
    known = st.pareto(2.0, scale=low) if kind is dist.Pareto else st.uniform(low, 9 - low)
    made = kind(low, 2.0 if kind is dist.Pareto else 9.0)
    with jax.numpy_rank_promotion("allow"):  # as users have it
        below, above = log_tails(made, jnp.asarray(y))
    assert_allclose(below, known.logcdf(y), rtol=1e-6)
    assert_allclose(above, known.logsf(y), rtol=1e-6)


def test_moments_by_draws_around_a_large_mean_keep_their_spread():
    """1000 +- 0.1, in single precision, whose squares have no digit of the variance."""
    with x64(False):
        mean, variance = moments_of(dist.FoldedDistribution(dist.Normal(jnp.array([1000.0, 3.0]), 0.1)))
    assert_allclose(mean, [1000.0, 3.0], atol=0.02)
    assert_allclose(variance, [0.01, 0.01], rtol=0.2)


@pytest.mark.long
def test_incomplete_functions_and_their_second_derivatives():
    """JAX's own have none in the parameters: a finite difference of SciPy stands for them."""
    a, x = np.array([0.3, 2.5, 60.0]), np.array([0.2, 4.0, 75.0])
    below, above = log_gamma_parts(jnp.asarray(a), jnp.asarray(x))
    assert_allclose(below, np.log(sp.gammainc(a, x)), rtol=1e-12)
    assert_allclose(above, np.log(sp.gammaincc(a, x)), rtol=1e-12)
    curve = jax.jit(jax.vmap(jax.grad(jax.grad(lambda a, x: log_gamma_parts(a, x)[1]), argnums=1)))(a, x)
    h, log = 1e-4, lambda a, x: np.log(sp.gammaincc(a, x))
    steps = (log(a + h, x + h) - log(a + h, x - h) - log(a - h, x + h) + log(a - h, x - h)) / (4 * h * h)
    assert_allclose(curve, steps, rtol=1e-5)
    slope = jax.jit(jax.grad(lambda a: log_beta_parts(a, jnp.array(2.0), jnp.array(0.3), jnp.array(0.7))[0]))(1.5)
    step = np.log(sp.betainc(1.5 + 1e-5, 2, 0.3) / sp.betainc(1.5 - 1e-5, 2, 0.3)) / 2e-5
    assert_allclose(slope, step, rtol=1e-7)


def logs(mass):
    """Logarithms of two parts of one, the larger by what the smaller leaves."""
    small = np.minimum(*mass)
    return [np.where(part == small, np.log(small), np.log1p(-small)) for part in mass]


def far_part(a, x):
    """``log P`` below ``a``, ``log Q`` above: sums that are long enough, where SciPy is wrong by the rounding of ``a``."""
    front, n = stats.gamma(a).logpdf(x) + np.log(x), np.arange(1, 4000 + 40 * np.sqrt(a))
    if x < a:
        return front - np.log(a) + np.log1p(np.sum(np.cumprod(x / (a + n))))
    rest = 0.0
    for k in n[::-1]:
        rest = k * (a - k) / (x + 2 * k + 1 - a + rest)
    return front - np.log(x + 1 - a + rest)


@pytest.mark.long
def test_large_parameters_of_the_incomplete_gamma_function():
    """They had 160 terms, and needs grow as sqrt(a): P(Y >= y) at a rate y of a million was 2 nats too low."""

    @jax.jit
    def value(a, x):
        (below, above), back = jax.vjp(log_gamma_parts, a, x)
        return below, above, *back((jnp.zeros_like(a), jnp.ones_like(a)))

    a = np.repeat([11.0, 600.0, 2e4, 1e6, 1e8], 7)
    x = a + np.tile([-4.4, -1.0, -1e-3, 0.0, 1e-3, 1.0, 4.4], 5) * np.sqrt(a)
    a, x = a[x > 0], x[x > 0]
    for dtype, limit in ((np.float64, 1e-8), (np.float32, 3e-6)):
        at, to = a.astype(dtype), x.astype(dtype)
        exact = [np.float64(part) for part in (at, to)]
        found = value(at, to)
        wanted = logs([sp.gammainc(*exact), sp.gammaincc(*exact)])
        for own, want in zip(found[:2], wanted, strict=True):
            assert_allclose(own, want, rtol=limit)
        slope = -np.exp(stats.gamma(exact[0]).logpdf(exact[1]) - wanted[1])
        assert_allclose(found[3], slope, rtol=max(limit, 1e-6) * 5)
    step = 1e-3 * np.sqrt(a)
    steps = [logs([sp.gammainc(a + sign * step, x), sp.gammaincc(a + sign * step, x)])[1] for sign in (1, -1)]
    assert_allclose(value(a, x)[2], np.subtract(*steps) / (2 * step), rtol=1e-4)
    for a, x in ((11.0, 80.0), (600.0, 200.0), (2e4, 2.5e4), (1e6, 9.7e5), (1e6, 1.03e6), (1e6, 3e5), (1e6, 3e6)):
        parts = value(np.full(len(step), a), np.full(len(step), x))[:2]
        assert_allclose(min(part[0] for part in parts), far_part(a, x), rtol=1e-8)


@pytest.mark.long
def test_large_parameters_of_the_incomplete_beta_function():
    """The fraction ended after 160 terms: half a nat was lost at a million trials."""
    a, share = np.meshgrid([11.0, 600.0, 1e5, 1e7], [0.2, 1.0, 30.0, 1e3])
    a, b = (np.repeat(part.ravel(), 7) for part in (a, np.maximum(share * a, 11.0)))
    mean = a / (a + b)
    x = mean + np.tile([-6.0, -2.0, -0.1, 0.0, 0.1, 2.0, 6.0], 16) * np.sqrt(mean * (1 - mean) / (a + b))
    double = [part[(x > 0) & (x < 0.9)] for part in (a, b, x)]
    both = jax.jit(lambda a, b, x: log_beta_parts(a, b, x, 1 - x))
    single = [np.float32(part) for part in double]
    for given in (double, single):
        a, b, x = (np.float64(part) for part in given)
        limit = 1e-8 if given is double else 3e-7 * np.sqrt(np.minimum(a, b))
        wanted = logs([sp.betainc(a, b, x), sp.betaincc(a, b, x)])
        for found, want in zip(both(*given), wanted, strict=True):
            assert np.all(np.abs(found - want) <= limit * (np.abs(want) + (given is single)))
    slope = jax.jit(jax.grad(lambda a: log_beta_parts(a, jnp.array(3e5), jnp.array(0.25), jnp.array(0.75))[0]))(1e5)
    step = np.log(sp.betainc(1e5 + 0.1, 3e5, 0.25) / sp.betainc(1e5 - 0.1, 3e5, 0.25)) / 0.2
    assert_allclose(slope, step, rtol=1e-5)
