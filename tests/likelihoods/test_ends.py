"""Intervals that rounding would make narrower, or a single value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from numpyro_gp.likelihoods import Gaussian, Interval, Truncated

ORIGIN = 2.0**24  # single precision has steps of 2 there
LOWER = ORIGIN + np.array([0.0, 3.0, 8.0])
UPPER = LOWER + np.array([8.0, 0.5, 0.0])


def test_a_width_that_rounding_takes_is_refused_and_less_the_origin_it_is_a_probability():
    """The second interval had the density of its two ends, which were the same number in single precision."""
    with jax.enable_x64(False):
        for likelihood in (Interval, Truncated):
            with pytest.raises(ValueError, match=r"by as much in float32 as they are, but got 16777219.0 and .*\(1,\)"):
                likelihood(Gaussian(1.0), LOWER, UPPER)
        with pytest.raises(ValueError, match=r"lower must be apart from upper .* off data and bounds"):
            Interval(Gaussian(1.0), 100.0 * ORIGIN, 100.0 * ORIGIN + 1.0)
        Interval(Gaussian(1.0), LOWER[[0, 2]], UPPER[[0, 2]])  # a wide one, and a value that is seen
        Interval(Gaussian(1.0), np.append(-np.inf, LOWER[:1]), np.append(UPPER[0], np.inf))
        moved = Interval(Gaussian(1.0), LOWER - ORIGIN, UPPER - ORIGIN)
        found = moved.log_prob(jnp.asarray(LOWER - ORIGIN), jnp.full(3, 3.0))
    low, high = LOWER - ORIGIN - 3, UPPER - ORIGIN - 3
    mass = np.log(norm.cdf(high[:2]) - norm.cdf(low[:2]))
    np.testing.assert_allclose(found, [*mass, norm.logpdf(low[2])], rtol=1e-5, atol=1e-6)


def test_ends_that_differ_in_double_precision_are_no_density_of_data_in_single():
    ends = jnp.asarray(ORIGIN), jnp.asarray(ORIGIN + 0.5)
    found = Interval(Gaussian(1.0), *ends).log_prob(jnp.float32(ORIGIN), jnp.float32(ORIGIN))
    assert ends[0].dtype == np.float64
    assert not found > np.log(0.5)
