"""Likelihoods that are a density: what they say follows from it, against SciPy."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import stats
from scipy.integrate import quad

from numpyro_gp.arrays import ArrayLike, value_type
from numpyro_gp.likelihoods.base import ByDensity
from numpyro_gp.likelihoods.expectations import composite_cuts


@value_type()
class Skewed(ByDensity):
    """A Gumbel distribution around ``f``, which has no class of its own."""

    density = staticmethod(lambda f, y, scale: -(y - f) / scale - jnp.exp(-(y - f) / scale) - jnp.log(scale))
    parameters = ("scale",)
    scale: ArrayLike

    def conditional(self, f):
        return dist.Gumbel(f, self.scale)

    def _turns(self, y):
        return composite_cuts(y, *self.given(y), y)

    def _expected(self, y, latent):
        raise NotImplementedError

    _mean = _variance = _expected


def test_densities_at_and_under_a_function_are_those_of_scipy():
    own, y, f = Skewed(0.7), np.array([-1.0, 0.3, 4.0]), np.array([0.2, 0.1, -0.5])
    np.testing.assert_allclose(own.log_prob(y, f), stats.gumbel_r.logpdf(y, f, 0.7), rtol=1e-12)
    assert own.log_prob(jnp.asarray(2), jnp.float32(0.5)).dtype == jnp.float32

    def mixed(y, mean):
        inside = lambda f: stats.gumbel_r.pdf(y, f, 0.7) * stats.norm.pdf(f, mean, 1.2)  # noqa: E731
        return np.log(quad(inside, mean - 12, mean + 12, points=[y], limit=200)[0])

    found = own.predictive_log_prob(y, f, 1.44 * np.ones(3))
    np.testing.assert_allclose(found, [mixed(*pair) for pair in zip(y, f, strict=True)], rtol=1e-6)
