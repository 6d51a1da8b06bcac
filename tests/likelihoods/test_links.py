"""Links and expectations of their logarithms, against SciPy, quadrature and sums over a grid; in NumPy and in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad
from scipy.special import erfcx, expit, gammaln
from scipy.special import log_ndtr as log_ndtr_of_scipy

import numpyro_gp as ngp
from numpyro_gp.likelihoods import Bernoulli, NegativeBinomial
from numpyro_gp.likelihoods.links import (
    expected_mean,
    expected_softplus,
    link_at,
    log_ndtr,
    mean_of,
    slope_of,
    softplus_moments,
)
from numpyro_gp.likelihoods.quadrature import Latent
from tests.likelihoods.grids import expected
from tests.precision import x64

F = np.array([-2.0, -0.3, 0.0, 1.2])
INVERSES = {"identity": lambda f: f, "none": lambda f: f, "log": np.exp, "logit": expit, "probit": stats.norm.cdf}


@pytest.mark.parametrize("link", INVERSES)
def test_means_and_slopes(link):
    step, inverse = 1e-6, INVERSES[link]
    np.testing.assert_allclose(mean_of(link, F), inverse(F), rtol=1e-12)
    np.testing.assert_allclose(slope_of(link, F), (inverse(F + step) - inverse(F - step)) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_links_of_probabilities(link):
    """The link undoes its inverse, JAX says what NumPy says, and the expectation is that of quadrature."""
    assert mean_of(link, np.array(link_at(link, 0.8))) == pytest.approx(0.8)
    np.testing.assert_allclose(mean_of(link, jnp.asarray(F)), mean_of(link, F), rtol=1e-12)
    found = expected_mean(link, Latent(jnp.array([0.4]), jnp.array([2.0])))
    law, inverse = stats.norm(0.4, np.sqrt(2.0)), INVERSES[link]
    assert float(found[0]) == pytest.approx(quad(lambda f: law.pdf(f) * inverse(f), -15, 15)[0], rel=1e-6)


AT = np.array([-130.0, -30.0, -6.1, -5.9, -2.0, 0.0, 3.0, 20.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slope_curvature_and_the_slope_of_that_hold_in_the_lower_tail(dtype):
    """In float32 JAX's curvature at -130 was 4 and not -1."""
    with x64(dtype == "float64"):
        x = jnp.asarray(AT, dtype)
        first = jax.grad(log_ndtr)
        second = jax.grad(first)
        found = jax.jit(lambda x: [jax.vmap(f)(x) for f in (first, second, jax.grad(second))])(x)
    s = np.sqrt(2 / np.pi) / erfcx(-AT / np.sqrt(2))
    near = dtype == "float32"
    np.testing.assert_allclose(found[0], s, rtol=1e-5 if near else 1e-10, atol=1e-30)
    np.testing.assert_allclose(found[1], -s * (s + AT), rtol=2e-4 if near else 1e-9, atol=1e-30)
    np.testing.assert_allclose(found[2], s * (s + AT) * (2 * s + AT) - s, rtol=5e-3, atol=3e-4 if near else 1e-9)


@pytest.mark.long
def test_an_interval_far_away_has_a_positive_precision_in_single_precision():
    """``dE / dvariance`` of a datum in [13, 13.5], 130 scales of the noise from f: it was +68 for -50."""
    lower, one = jnp.full(1, 13.0, jnp.float32), jnp.ones(1, jnp.float32)
    interval = ngp.likelihoods.Interval(ngp.likelihoods.Gaussian(0.1), lower, lower + 0.5)
    slope = jax.grad(lambda v: interval.expected_log_prob(lower, 0 * one, v).sum())(1e-3 * one)
    np.testing.assert_allclose(slope, -50.0, rtol=1e-3)


MEAN, VARIANCE = (part.ravel() for part in np.meshgrid([-30.0, -9.0, -2.0, 0.0, 0.7, 6.0, 25.0], [1.0, 3.0, 36.0]))


def test_the_expectation_and_its_slopes():
    """In JAX and NumPy: the slope in the mean is ``E sigmoid``, that in the variance half of its slope."""
    functions = lambda f: np.logaddexp(0, f), stats.logistic.cdf, stats.logistic.pdf
    wanted = [expected(fun, MEAN, VARIANCE) for fun in functions]
    for found, exact in zip(softplus_moments(MEAN, VARIANCE, np), wanted, strict=True):
        assert_allclose(found, exact, rtol=1e-9, atol=1e-9)
    value, (of_mean, of_variance) = jax.vmap(jax.value_and_grad(expected_softplus, (0, 1)))(MEAN, VARIANCE)
    for found, exact in zip((value, of_mean, 2 * of_variance), wanted, strict=True):
        assert_allclose(found, exact, rtol=1e-9, atol=1e-9)


def curvature_of_probit(f):
    ratio = np.exp(stats.norm.logpdf(f) - log_ndtr_of_scipy(f))
    return -ratio * (f + ratio)


LABELS = {  # log probability and curvature of a label 1, how near value and slope are in double and in single precision
    "logit": (lambda f: -np.logaddexp(0, -f), lambda f: -stats.logistic.pdf(f), (1e-9, 1e-7), (2e-6, 1e-4)),
    "probit": (log_ndtr_of_scipy, curvature_of_probit, (3e-6, 3e-6), (3e-5, 3e-5)),
}


@pytest.mark.parametrize("is_double", [True, False])
@pytest.mark.parametrize("link", LABELS)
def test_labels_under_wide_functions(link, is_double):
    """20 nodes are off by 6e-3 at a variance of 30, and their slope in it by 5e-3 of itself at 8 and 5 % at 100."""
    mean, variance, y = np.array([[-2.0, 0.3, 2.0, 4.0, 0.7], [0.9, 8.0, 30.0, 100.0, 1.1], [1.0, 0.0, 1.0, 0.0, 0.0]])
    log_prob, curvature, *near = LABELS[link]
    exact, curve = (
        expected(lambda f, part=part: part((2 * y - 1) * f), mean, variance) for part in (log_prob, curvature)
    )
    with x64(is_double):
        given = [jnp.asarray(one, float) for one in (y, mean, variance)]
        found = jax.jit(jax.vmap(jax.value_and_grad(Bernoulli(link).expected_log_prob, 2)))(*given)
        assert found[0].dtype == (np.float64 if is_double else np.float32)
    for one, wanted, rtol in zip(found, (exact, 0.5 * curve), near[not is_double], strict=True):
        assert_allclose(one, wanted, rtol=rtol)


@pytest.mark.parametrize("is_double", [True, False])
def test_counts_under_wide_functions(is_double):
    """20 nodes are off by 0.8 nat for a count of 20000 at variance 9, and by tens of nats at 36."""
    rows = [(20000.0, 4.0, 9.0, 8.0), (20000.0, 4.0, 36.0, 8.0), (0.0, 2.0, 16.0, 1.0), (30.0, 1e6, 4.0, 3.0)]
    y, r, variance, mean = np.array(rows).T

    def log_prob(f):
        constant = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
        return constant + y * (f - np.log(r)) - (y + r) * np.logaddexp(0, f - np.log(r))

    with x64(is_double):
        given = (jnp.asarray(part, float) for part in (r, y, mean, variance))
        found = jax.jit(lambda r, *given: NegativeBinomial(r).expected_log_prob(*given))(*given)
    assert_allclose(found, expected(log_prob, mean, variance), rtol=1e-7 if is_double else 2e-5)
