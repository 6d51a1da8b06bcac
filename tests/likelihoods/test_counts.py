"""Counts against the dense oracle; tolerances reject 20-node Gauss-Hermite in the predictive mass (1e-4 to 2e-3)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from numpyro_gp.likelihoods import NegativeBinomial, Poisson
from tests.likelihoods.compiled import Compiled
from tests.oracles.vectors import cases

BUILD = {
    "poisson": (lambda case: Poisson(), 1e-11),
    "negative_binomial": (lambda case: NegativeBinomial(case["par/negbin_r"]), 1e-7),
}


@pytest.mark.long
@pytest.mark.parametrize("name", list(BUILD))
def test_oracle(name):
    build, tolerance = BUILD[name]
    for case in cases("likelihoods"):
        likelihood, mean, variance, y = Compiled(build(case)), case["mean"], case["var"], case[f"{name}/y"]

        def total(mean, variance, y, likelihood):
            return jnp.sum(likelihood.expected_log_prob(y, mean, variance))

        d_mean, d_var = jax.jit(jax.grad(total, argnums=(0, 1)))(mean, variance, y, likelihood.likelihood)
        assert_allclose(likelihood.expected_log_prob(y, mean, variance), case[f"{name}/expected_logp"], atol=tolerance)
        assert_allclose(d_mean, case[f"{name}/d_mean"], atol=max(tolerance, 1e-9))
        assert_allclose(d_var, case[f"{name}/d_var"], atol=max(tolerance, 1e-9))
        assert_allclose(likelihood.predictive_log_prob(y, mean, variance), case[f"{name}/log_predictive"], atol=1e-7)
        assert_allclose(likelihood.predictive_mean(mean, variance), case[f"{name}/predictive_mean"], rtol=1e-9)
        assert_allclose(likelihood.predictive_variance(mean, variance), case[f"{name}/predictive_var"], rtol=1e-9)


def test_large_rates_overflow_only_beyond_the_range_of_the_precision():
    found = Poisson().expected_log_prob(jnp.float32(1.0), jnp.float32(80.0), jnp.float32(10.0))
    assert np.isfinite(found)
    assert Poisson().expected_log_prob(jnp.float32(1.0), jnp.float32(80.0), jnp.float32(20.0)) == -jnp.inf


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.0)])
@pytest.mark.parametrize(
    ("y", "wrong"),
    [([1.0, -1.0], "-1"), ([0.5], "0.5"), (np.array([2, -3]), "-3")],
    ids=["negative", "half", "integer"],
)
def test_bad_targets(likelihood, y, wrong):
    with pytest.raises(ValueError, match=f"obs must be non-negative whole numbers, but got {wrong}. Counts are 0"):
        likelihood.check_targets(np.array(y))


def test_bad_parameters():
    with pytest.raises(ValueError, match="r must be positive, but got -1"):
        NegativeBinomial(-1.0)
