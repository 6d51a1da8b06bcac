"""The distribution of Gaussian data with the function integrated out, exactly or by the collapsed bound."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, over_axes
from numpyro_gp.beliefs.base import positive
from numpyro_gp.beliefs.basis import in_plates
from numpyro_gp.beliefs.optimum import GaussianData
from numpyro_gp.linalg import cholesky, gaussian_log_density


class ExactMarginal(dist.Distribution):
    """``y ~ N(c, k(X, X) + noise)``, one event of N data (mathematics.md section 3.4).

    In plates one for each member. ``lead`` are the axes that kernels and inputs brought, on the left of all arrays;
    they are placed by the shape of the data.
    """

    pytree_data_fields = ("loc", "covariance")
    pytree_aux_fields = ("name", "lead")
    has_rsample = True
    support = constraints.real_vector

    def __init__(self, name: str, loc: Array, covariance: Array, *, validate_args: bool | None = None) -> None:
        self.name, self.loc, self.covariance, self.lead = name, loc, covariance, covariance.shape[:-2]
        super().__init__((), loc.shape[-1:], validate_args=validate_args)

    def each(self, function: Callable[..., Any], *own: Array) -> Any:
        """``function(loc, covariance, *own)`` of each member; ``own`` ``(..., N)`` has the axes of the plates."""
        return _each(self, (self.loc, self.covariance), function, own)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, sample_shape + self.event_shape, self.loc.dtype)
        drawn: Array = self.each(lambda loc, covariance, white: loc + cholesky(covariance) @ white, noise)
        return drawn

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """Log marginal likelihood."""
        density: Array = self.each(lambda loc, covariance, y: gaussian_log_density(y - loc, covariance), value)
        return density

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def variance(self) -> Array:
        variance: Array = jnp.diagonal(self.covariance, axis1=-2, axis2=-1)
        return variance


class CollapsedMarginal(dist.Distribution):
    """Titsias' collapsed bound as the log probability of ``y``; draws come from its low-rank plus diagonal prior.

    ``log_prob`` never exceeds the exact log marginal likelihood; with ``inducing = X`` it equals it. In plates one for
    each member, as `ExactMarginal`.
    """

    pytree_data_fields = ("loc", "data")
    pytree_aux_fields = ("name", "lead")
    has_rsample = True
    support = constraints.real_vector

    def __init__(self, name: str, loc: Array, data: GaussianData, *, validate_args: bool | None = None) -> None:
        self.name, self.loc, self.data, self.lead = name, loc, data, data.features.shape[:-2]
        super().__init__((), loc.shape[-1:], validate_args=validate_args)

    def each(self, function: Callable[..., Any], *own: Array) -> Any:
        """``function(loc, data, *own)`` of each member; ``own`` ``(..., N)`` has the axes of the plates."""
        return _each(self, (self.loc, self.data), function, own)

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """The collapsed bound (mathematics.md section 3.3, per-datum noise)."""
        bound: Array = self.each(lambda loc, data, y: data.optimum((y - loc) / data.scale)[2], value)
        return bound

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        key_v, key_e = jax.random.split(key)
        shape, dtype = sample_shape + self.event_shape, self.loc.dtype
        v = jax.random.normal(key_v, sample_shape + self.data.features.shape[-2:-1], dtype)

        def one(loc: Array, data: GaussianData, v: Array, noise: Array) -> Array:
            explained = jnp.sum(data.features**2, axis=0)
            spread = jnp.sqrt(positive(1 + data.prior - explained, jnp.ones((), dtype)))
            return loc + data.scale * (v @ data.features + spread * noise)

        drawn: Array = self.each(one, v, jax.random.normal(key_e, shape, dtype))
        return drawn

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def variance(self) -> Array:
        return self.data.scale**2 * (self.data.prior + 1)


def _each(site: Any, parts: tuple[Any, Any], function: Callable[..., Any], own: tuple[Array, ...]) -> Any:
    """A function of the two parts of a site's distribution and of arrays, for each member of the plates around."""
    batch = own[0].shape[:-1]
    placed_parts = in_plates(parts, site.lead, batch, site.name) if site.lead else parts
    axis = 0 if site.lead else None
    return over_axes(function, len(batch), (axis, axis, *[0] * len(own)))(*placed_parts, *own)
