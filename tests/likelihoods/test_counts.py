"""Counts of large rates; `test_expectations.py` and `test_deviances.py` have their densities."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.likelihoods import Poisson


def test_large_rates_overflow_only_beyond_the_range_of_the_precision():
    found = Poisson().expected_log_prob(jnp.float32(1.0), jnp.float32(80.0), jnp.array([10.0, 20.0], jnp.float32))
    np.testing.assert_array_equal(np.isneginf(found), [False, True])
