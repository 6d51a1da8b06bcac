"""Counts of large rates; `test_expectations.py` and `test_deviances.py` have their densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from numpyro_gp.likelihoods import Censored, NegativeBinomial, PointPattern, Poisson
from tests.precision import x64


def test_large_rates_overflow_only_beyond_the_range_of_the_precision():
    found = Poisson().expected_log_prob(jnp.float32(1.0), jnp.float32(80.0), jnp.array([10.0, 20.0], jnp.float32))
    np.testing.assert_array_equal(np.isneginf(found), [False, True])


@pytest.mark.parametrize("rate", [20.0, 3e6, 4e9])
def test_draws_have_the_law_of_scipy_in_single_precision(rate):
    """Saturated at 2^31 - 1 before, and 1.2 times too wide from 1e8 on: 4 standard errors of 20000 draws."""
    with x64(False):
        f = jnp.full(20000, np.log(rate), jnp.float32)
        mean = float(jnp.exp(f[0]))
        for likelihood, law in (
            (Poisson(), stats.poisson(mean)),
            (Censored(Poisson(), right=True), stats.poisson(mean)),
            (PointPattern(2.0), stats.poisson(2 * mean)),
            (NegativeBinomial(2.0), stats.nbinom(2, 2 / (2 + mean))),
        ):
            drawn = np.asarray(likelihood.draw(jax.random.key(0), f), float)
            np.testing.assert_array_equal(drawn, np.round(drawn))
            levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
            # The share below a quantile, of whole numbers that of all not above it.
            share = np.array([(drawn <= q).mean() for q in law.ppf(levels)])
            np.testing.assert_allclose(share, law.cdf(law.ppf(levels)), atol=4 * 0.5 / np.sqrt(20000))


def test_rates_that_are_no_number_or_infinite_have_no_other_draws():
    drawn = Poisson().draw(jax.random.key(0), jnp.array([jnp.nan, jnp.inf, -jnp.inf]))
    np.testing.assert_array_equal(drawn, [np.nan, np.inf, 0.0])
