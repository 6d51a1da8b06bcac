"""A mask over a site whose value may be a belief."""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape


class MaskedPrior(dist.Distribution):
    """The log density of ``base_dist`` where ``shown`` is true, and zero elsewhere, whatever the value is.

    `numpyro.distributions.MaskedDistribution` puts other numbers into the hidden places of the value, by array
    arithmetic that makes the mean of a belief, a point, and its KL divergence would be lost. Here nothing need be
    hidden: whitened values and beliefs are finite everywhere.
    """

    pytree_data_fields = ("base_dist", "shown")
    has_rsample = True

    def __init__(self, base_dist: dist.Distribution, shown: ArrayLike) -> None:
        batch = jnp.broadcast_shapes(base_dist.batch_shape, jnp.shape(shown))
        self.base_dist = base_dist.expand(batch)
        self.shown = shown
        super().__init__(batch, base_dist.event_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return self.base_dist.support

    @property
    def mean(self) -> Array:
        return self.base_dist.mean

    @property
    def variance(self) -> Array:
        return self.base_dist.variance

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        return self.base_dist.sample(key, sample_shape)

    rsample = sample

    def log_prob(self, value: object, intermediates: object = None) -> Array:  # noqa: ARG002
        return jnp.where(self.shown, self.base_dist.log_prob(value), 0)

    def mask(self, mask: ArrayLike) -> dist.Distribution:
        """Both masks at once."""
        return MaskedPrior(self.base_dist, jnp.asarray(self.shown) & mask)
