"""Real, positive and proportion-valued targets against the dense oracle and SciPy integrals.

Tolerances reject a missing half of the variance term, a scale used as a variance (both of order 0.1)
and 20-node Gauss-Hermite where the composite rule is due (5e-2 for Student's t).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

from numpyro_gp.likelihoods import Beta, Exponential, Gamma, Gaussian, HeteroscedasticGaussian, StudentT
from tests.likelihoods.compiled import Compiled
from tests.oracles.vectors import cases


def parameters(case):
    return {key.removeprefix("par/"): value for key, value in case.items() if key.startswith("par/")}


BUILD = {
    "gaussian": (lambda p: Gaussian(p["gaussian_noise"] ** 0.5), 1e-12),
    "gamma": (lambda p: Gamma(p["gamma_shape"]), 1e-12),
    "exponential": (lambda p: Exponential(), 1e-12),
    "student_t": (lambda p: StudentT(p["student_df"], p["student_scale"]), 1e-8),
}


@pytest.mark.long
@pytest.mark.parametrize("name", list(BUILD))
def test_oracle(name):
    build, tolerance = BUILD[name]
    for case in cases("likelihoods"):
        likelihood, mean, variance, y = Compiled(build(parameters(case))), case["mean"], case["var"], case[f"{name}/y"]

        def total(mean, variance, y, likelihood):
            return jnp.sum(likelihood.expected_log_prob(y, mean, variance))

        d_mean, d_var = jax.jit(jax.grad(total, argnums=(0, 1)))(mean, variance, y, likelihood.likelihood)
        expected = likelihood.expected_log_prob(y, mean, variance)
        assert_allclose(expected, case[f"{name}/expected_logp"], atol=tolerance)
        # The oracle's derivatives are adaptive integrals, good to 1e-10.
        assert_allclose(d_mean, case[f"{name}/d_mean"], atol=max(tolerance, 1e-9))
        assert_allclose(d_var, case[f"{name}/d_var"], atol=max(tolerance, 1e-9))
        predictive = likelihood.predictive_log_prob(y, mean, variance)
        assert_allclose(predictive, case[f"{name}/log_predictive"], atol=1e-12 if name == "gaussian" else 1e-7)
        assert_allclose(likelihood.predictive_mean(mean, variance), case[f"{name}/predictive_mean"], rtol=1e-9)
        assert_allclose(likelihood.predictive_variance(mean, variance), case[f"{name}/predictive_var"], rtol=1e-9)


def test_gaussian_in_closed_form():
    """``E log N(y; f, s^2) = log N(y; m, s^2) - v / (2 s^2)``, and the target's density under ``N(m, v + s^2)``."""
    mean, variance, y, scale = np.array([0.3, -1.0]), np.array([0.5, 0.1]), np.array([1.0, 0.2]), 0.7
    likelihood = Gaussian(scale)
    expected = stats.norm.logpdf(y, mean, scale) - variance / (2 * scale**2)
    assert_allclose(likelihood.expected_log_prob(y, mean, variance), expected, rtol=1e-12)
    density = stats.norm.logpdf(y, mean, np.sqrt(variance + scale**2))
    assert_allclose(likelihood.predictive_log_prob(y, mean, variance), density, rtol=1e-12)


def test_student_t_moments_that_do_not_exist():
    assert_allclose(StudentT(4.0, 0.5).predictive_variance(0.0, 1.0), 1.5)
    assert StudentT(1.5, 0.5).predictive_variance(0.0, 1.0) == jnp.inf
    assert np.isnan(StudentT(1.0, 0.5).predictive_variance(0.0, 1.0))
    assert np.isnan(StudentT(0.9, 0.5).predictive_mean(0.0, 1.0))
    assert np.isfinite(jax.grad(lambda df: StudentT(df, 0.5).predictive_variance(0.0, 1.0))(2.0))


@pytest.mark.long
def test_heteroscedastic_oracle():
    """Without the shift by ``c`` the correlated instances are off by 1e-2 and more."""
    likelihood = Compiled(HeteroscedasticGaussian())
    for case in cases("heteroscedastic"):
        mean, covariance, y = case["mean"], case["cov"], case["y"]
        variance = np.diagonal(covariance, axis1=-2, axis2=-1)
        found = likelihood.expected_log_prob(y, mean, variance, covariance=covariance)
        assert_allclose(found, case["expected_logp"], atol=1e-9, rtol=1e-10)
        found = likelihood.predictive_log_prob(y, mean, variance, covariance=covariance)
        assert_allclose(found, case["log_predictive"], atol=1e-7)
        if not covariance[:, 0, 1].any():
            assert_allclose(likelihood.predictive_log_prob(y, mean, variance), case["log_predictive"], atol=1e-7)
        else:
            rival = likelihood.expected_log_prob(y, mean, variance)
            assert np.abs(rival - case["expected_logp"]).max() > 1e-3


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
        exact = integrate.quad(
            density, -9, 9, points=[peak, peak - 0.1, peak + 0.1], epsabs=0, epsrel=1e-11, limit=500
        )[0]
        found = HeteroscedasticGaussian().predictive_log_prob(y, mean, variance, covariance=covariance)
        assert_allclose(found, np.log(exact), atol=1e-5)


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


def test_heteroscedastic_moments():
    likelihood, mean, variance = HeteroscedasticGaussian(), jnp.array([0.2, -0.4]), jnp.array([0.3, 0.5])
    assert_allclose(likelihood.predictive_mean(mean, variance), 0.2)
    assert_allclose(likelihood.predictive_variance(mean, variance), 0.3 + np.exp(-0.4 + 0.25), rtol=1e-14)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Gaussian(0.0), ValueError, r"scale must be positive, but got 0\. Pass a positive number"),
        (lambda: StudentT(-1.0, 1.0), ValueError, "df must be positive, but got -1"),
        (lambda: StudentT(3.0, -0.5), ValueError, "scale must be positive, but got -0.5"),
        (lambda: Gamma(-2.0), ValueError, "shape must be positive, but got -2"),
        (lambda: Beta(0.0), ValueError, "concentration must be positive, but got 0"),
        (lambda: Beta(1.0, "log"), ValueError, "link must be one of 'logit', 'probit', but got 'log'"),
    ],
)
def test_bad_parameters(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (Gaussian(1.0), [0.0, np.nan], "obs must be finite, but got 1 NaN or infinite entries of 2"),
        (HeteroscedasticGaussian(), [np.inf], "obs must be finite"),
        (StudentT(3.0, 1.0), [np.nan], "obs must be finite"),
        (Gamma(1.0), [1.0, 0.0], r"obs must be positive, but got 0\. Use another likelihood"),
        (Exponential(), [-2.0], "obs must be positive, but got -2"),
        (Beta(1.0), [0.5, 1.0], "obs must be strictly between 0 and 1, but got 1. Move exact zeros"),
    ],
)
def test_bad_targets(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_targets(np.array(y))


def test_parameter_of_the_wrong_shape():
    with pytest.raises(
        ValueError, match=r"scale must be a scalar or broadcastable to the batch shape \(2,\), but got shape \(3,\)"
    ):
        Gaussian(np.ones(3)).expected_log_prob(np.zeros(2), np.zeros(2), np.ones(2))
