"""Where the mean of a share rounds to zero; `test_expectations.py` has the densities of both links."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from numpyro_gp.likelihoods import Beta


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
