"""Where the mean of a share rounds to zero; `test_expectations.py` has the densities of both links."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.likelihoods import Beta


@pytest.mark.long
def test_beta_is_finite_where_its_mean_rounds_to_zero():
    given = jnp.float32(0.5), jnp.float32(-150.0), jnp.float32(1.0)
    value, slope = jax.value_and_grad(Beta(3.0).expected_log_prob, argnums=1)(*given)
    assert np.isfinite(value)
    np.testing.assert_allclose(slope, 1.0, rtol=1e-5)  # log p ~ f there
