"""Gaussian data, also with noise that is a function; Student's t without moments; shares whose mean rounds to zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from numpyro_gp.likelihoods import Beta, Gaussian, HeteroscedasticGaussian, StudentT
from tests.likelihoods.compiled import Compiled
from tests.likelihoods.grids import expected


def test_gaussian_in_closed_form():
    """``E log N(y; f, s^2) = log N(y; m, s^2) - v / (2 s^2)``, and the target's density under ``N(m, v + s^2)``."""
    mean, variance, y, scale = np.array([0.3, -1.0]), np.array([0.5, 0.1]), np.array([1.0, 0.2]), 0.7
    likelihood = Gaussian(scale)
    log = stats.norm.logpdf(y, mean, scale) - variance / (2 * scale**2)
    assert_allclose(likelihood.expected_log_prob(y, mean, variance), log, rtol=1e-12)
    density = stats.norm.logpdf(y, mean, np.sqrt(variance + scale**2))
    assert_allclose(likelihood.predictive_log_prob(y, mean, variance), density, rtol=1e-12)


def test_student_t_moments_that_do_not_exist():
    assert_allclose(StudentT(4.0, 0.5).predictive_variance(0.0, 1.0), 1.5)
    assert StudentT(1.5, 0.5).predictive_variance(0.0, 1.0) == jnp.inf
    assert np.isnan(StudentT(1.0, 0.5).predictive_variance(0.0, 1.0))
    assert np.isnan(StudentT(0.9, 0.5).predictive_mean(0.0, 1.0))
    assert np.isfinite(jax.grad(lambda df: StudentT(df, 0.5).predictive_variance(0.0, 1.0))(2.0))


@pytest.mark.parametrize("shared", [0.0, 0.4])
def test_heteroscedastic_expectations_are_sums_over_the_log_variance(shared):
    """Given ``g`` the function is normal. Without the shift by ``c`` correlated functions are off by 1e-2 and more."""
    likelihood, y, mean = (
        Compiled(HeteroscedasticGaussian()),
        np.array([0.9, -1.2]),
        np.array([[0.2, -0.4], [0.5, 0.3]]),
    )
    variance, moved = np.array([[0.6, 0.5], [0.4, 0.9]]), np.array([shared, -shared])
    covariance = np.stack([np.diag(v) + c * (1 - np.eye(2)) for v, c in zip(variance, moved)])
    given = lambda g: mean[:, 0] + moved / variance[:, 1] * (g - mean[:, 1])  # noqa: E731
    left, at = variance[:, 0] - moved**2 / variance[:, 1], (mean[:, 1], variance[:, 1])
    log = expected(lambda g: stats.norm.logpdf(y, given(g), np.exp(g / 2)) - 0.5 * left * np.exp(-g), *at)
    density = expected(lambda g: stats.norm.pdf(y, given(g), np.sqrt(left + np.exp(g))), *at)
    options = {"covariance": covariance} if shared else {}
    assert_allclose(likelihood.expected_log_prob(y, mean, variance, **options), log, rtol=1e-9)
    assert_allclose(likelihood.predictive_log_prob(y, mean, variance, **options), np.log(density), atol=1e-7)
    assert_allclose(likelihood.predictive_mean(mean, variance), mean[:, 0])
    assert_allclose(likelihood.predictive_variance(mean, variance), variance[:, 0] + np.exp(mean + variance / 2)[:, 1])


@pytest.mark.long
def test_heteroscedastic_predictive_with_almost_collinear_functions():
    """``rho = 0.999`` and little noise: a peak in ``g`` much narrower than its marginal, and one far outlier."""
    mean, deviation, rho = np.array([0.3, -8.0]), np.array([1.0, 0.8]), 0.999
    covariance = np.outer(deviation, deviation) * np.array([[1, rho], [rho, 1]])
    variance = np.diag(covariance)
    for y in (0.5, 3.0):

        def density(z, y=y):
            spread = (1 - rho**2) * variance[0] + np.exp(mean[1] + deviation[1] * z)
            return stats.norm.pdf(y, mean[0] + rho * deviation[0] * z, np.sqrt(spread)) * stats.norm.pdf(z)

        peak = (y - mean[0]) / (rho * deviation[0])
        exact = integrate.quad(density, -9, 9, points=[peak, peak - 0.1, peak + 0.1], epsabs=0, epsrel=1e-11, limit=500)
        found = HeteroscedasticGaussian().predictive_log_prob(y, mean, variance, covariance=covariance)
        assert_allclose(found, np.log(exact[0]), atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("quantity", ["expected_log_prob", "predictive_log_prob"])
def test_heteroscedastic_derivatives_at_zero_variance(quantity):
    """At zero variance both are ``log N(y; f, exp(g))``."""
    likelihood, mean, y = HeteroscedasticGaussian(), jnp.array([0.2, -0.4]), 0.9

    def ours(mean, variance, shared):
        covariance = jnp.diag(variance) + shared * (1 - jnp.eye(2))
        return getattr(likelihood, quantity)(y, mean, variance, covariance=covariance)

    found = jax.grad(ours, argnums=(0, 1, 2))(mean, jnp.zeros(2), jnp.array(0.0))
    assert np.isfinite(np.concatenate([np.ravel(part) for part in found])).all()
    noise = np.exp(-0.4)
    assert_allclose(found[0], [0.7 / noise, -0.5 + 0.5 * 0.49 / noise], atol=1e-7)
    alone = jax.grad(lambda v: getattr(likelihood, quantity)(y, mean, v))(jnp.zeros(2))
    assert np.isfinite(alone).all()
    assert np.isfinite(jax.hessian(lambda v: getattr(likelihood, quantity)(y, mean, v))(jnp.full(2, 1e-12))).all()


@pytest.mark.long
def test_beta_is_finite_where_its_mean_rounds_to_zero():
    given = jnp.float32(0.5), jnp.float32(-150.0), jnp.float32(1.0)
    value, slope = jax.value_and_grad(Beta(3.0).expected_log_prob, argnums=1)(*given)
    assert np.isfinite(value)
    np.testing.assert_allclose(slope, 1.0, rtol=1e-5)  # log p ~ f there


def test_the_variance_of_many_trials_is_not_lost_in_that_of_none():
    """``m (1 - m) / (1 + k)`` of certain functions, in single precision: a difference of shares would be negative."""
    k, f = np.float32(1e7), np.linspace(-6.0, 6.0, 25, dtype=np.float32)
    found = Beta(k).predictive_variance(f, np.zeros_like(f))
    share = special.expit(f.astype(float))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, share * (1 - share) / (1 + float(k)), rtol=1e-4)
