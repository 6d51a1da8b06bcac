"""Tails, masses and moments of NumPyro's distributions, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from numpy.testing import assert_allclose

from numpyro_gp.likelihoods.tails import log_mass, log_tails, moments_of
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


def test_moments_where_numpyro_has_none():
    """Of what is censored; by quantiles; and by draws, to their noise of 1/30 of a standard deviation."""
    censored = dist.RightCensoredDistribution(dist.Weibull(jnp.array([2.0]), 1.3), True)
    exact = st.weibull_min(1.3, scale=2)
    assert_allclose(jnp.concatenate(moments_of(censored)), [exact.mean(), exact.var()], rtol=1e-12)
    log_logistic = dist.TransformedDistribution(dist.Logistic(jnp.array([0.2]), 0.2), dist.transforms.ExpTransform())
    exact = st.fisk(5, scale=np.exp(0.2))
    assert_allclose(jnp.concatenate(moments_of(log_logistic)), [exact.mean(), exact.var()], rtol=1e-4)

    class Drawn(dist.Normal):
        mean = variance = property(lambda _: (_ for _ in ()).throw(NotImplementedError))

        def icdf(self, q):
            raise NotImplementedError

    mean, variance = moments_of(Drawn(jnp.array([1.0]), 2.0))
    assert abs(mean[0] - 1.0) < 0.2
    assert abs(variance[0] - 4.0) < 0.6


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
