"""Gamma data by the logarithm of their mean, against SciPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.model.families import MeanGamma
from tests.gam.known import log_density
from tests.likelihoods.grids import expected
from tests.precision import x64


@pytest.mark.long
@pytest.mark.parametrize("is_double", [False, True])
def test_density_expectations_and_moments_are_those_of_scipy(is_double):
    y, f, variance, shape = np.array([0.3, 2.0, 9.0]), np.array([0.1, 0.5, 2.0]), np.array([0.2, 0.01, 0.5]), 3.0
    average = lambda function: expected(function, f, variance)  # noqa: E731
    first, second = average(np.exp), average(lambda t: np.exp(2 * t) * (1 + 1 / shape))
    density = average(lambda t: np.exp(log_density("gamma", y, t, shape)))
    with x64(is_double):
        own, close = MeanGamma(shape), dict(rtol=1e-8 if is_double else 1e-5, atol=0 if is_double else 1e-5)
        given = [jnp.asarray(one, float) for one in (y, f, variance)]
        np.testing.assert_allclose(own.log_prob(*given[:2]), log_density("gamma", y, f, shape), **close)
        np.testing.assert_allclose(own.conditional(given[1]).mean, np.exp(f), **close)
        np.testing.assert_allclose(
            own.expected_log_prob(*given), average(lambda t: log_density("gamma", y, t, shape)), **close
        )
        np.testing.assert_allclose(own.predictive_mean(*given[1:]), first, **close)
        np.testing.assert_allclose(own.predictive_variance(*given[1:]), second - first**2, **close)
        np.testing.assert_allclose(own.predictive_log_prob(*given), np.log(density), rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_predictions_of_few_rows_of_a_large_shape_are_as_good_as_they_can_be():
    """Within a tenth of a nat of the true density, of 60 rows of shape 50, and nothing to note of the shape of the fit."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 460)
    mean = np.exp(np.sin(x))
    y = rng.gamma(50, mean / 50)
    fit = ngp.gam("y ~ s(x)", {"x": x[:60], "y": y[:60]}, "gamma")
    found = float(fit.predict({"x": x[60:]}).log_density(y[60:]).mean())
    assert found > stats.gamma.logpdf(y[60:], 50, scale=mean[60:] / 50).mean() - 0.1
    assert not any("Pareto" in note for note in fit.summary().notes)
