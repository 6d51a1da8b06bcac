"""Gamma data by the logarithm of their mean: what a gam says of them does not move with their shape.

The public `Gamma` has mean ``shape e^f``: there a shape that is uncertain moves the level of ``f``. Here the two are
independent in the information of the data, as mean and noise of Gaussian data are.
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.likelihoods import Gamma
from numpyro_gp.likelihoods.base import like
from numpyro_gp.likelihoods.continuous import gamma_expected, gamma_log_prob
from numpyro_gp.likelihoods.expectations import composite_cuts
from numpyro_gp.likelihoods.points import Latent


def mean_gamma_log_prob(f: Array, y: Array, shape: Array) -> Array:
    """``log p(y | f)`` of a gamma with this shape and mean ``exp(f)``."""
    return gamma_log_prob(f - jnp.log(shape), y, shape)


@value_type()
class MeanGamma(Gamma):
    """Positive data with mean ``exp(f)`` and variance ``exp(2 f) / shape``.

    ``E log p = a (log a - mu) - log Gamma(a) + (a - 1) log y - a y exp(-mu + s / 2)``.

    Parameters
    ----------
    shape : array
        ``a``, positive: a scalar, or one value per datum.

    Examples
    --------
    >>> from numpyro_gp.gam.mean_gamma import MeanGamma
    >>> round(float(MeanGamma(2.0).predictive_mean(0.0, 1.0)), 4)   # exp(1/2)
    1.6487
    """

    density = staticmethod(mean_gamma_log_prob)

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Gamma with rate ``a exp(-f)``."""
        f = jnp.asarray(f)
        shape = like("shape", self.shape, f)
        return dist.Gamma(shape, shape * jnp.exp(-f), validate_args=False)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        shape = like("shape", self.shape, y)
        return gamma_expected(latent.mean - jnp.log(shape), latent.variance, y, shape)

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
        return composite_cuts(jnp.log(y), 1.0 / jnp.sqrt(like("shape", self.shape, y)), y)

    def _mean(self, latent: Latent) -> Array:
        return jnp.exp(latent.mean + 0.5 * latent.variance)

    def _variance(self, latent: Latent) -> Array:
        shape, variance = like("shape", self.shape, latent.mean), latent.variance
        return jnp.exp(2 * latent.mean + variance) * (jnp.exp(variance) / shape + jnp.expm1(variance))
