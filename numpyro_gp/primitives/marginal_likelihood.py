"""The distribution of Gaussian data with the function integrated out, exactly or by the collapsed bound."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Float
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, Shape, over_axes
from numpyro_gp.beliefs.base import positive
from numpyro_gp.beliefs.basis import in_plates
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.linalg import cholesky, factor_of, factorise, half_log_det, lower_square, matmul, solve_lower

Result = TypeVar("Result")


@jax.custom_jvp
def gaussian_log_density(residual: Float[Array, " N"], covariance: Float[Array, "N N"]) -> Float[Array, ""]:
    """``log N(r; 0, S)`` for one vector and its covariance (mathematics.md section 1.4).

    Its derivative is written out, ``dr: -S^-1 r`` and ``dS: (a a^T - S^-1)/2`` with ``a = S^-1 r``, which
    costs one product where differentiating the factorisation costs two solves and a product. The precision ``S^-1`` is
    a part of that derivative, and stands nowhere else.
    """
    factor = factor_of(covariance)
    half = solve_lower(factor, residual)
    return matmul(-0.5 * half, half) - half_log_det(factor) - 0.5 * math.log(2 * math.pi) * residual.shape[0]


@gaussian_log_density.defjvp
def _gaussian_log_density_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    residual, covariance = primals
    factor, inverse = factorise(covariance)
    half = matmul(inverse, residual)
    weights = matmul(inverse.T, half)
    value = matmul(-0.5 * half, half) - half_log_det(factor) - 0.5 * math.log(2 * math.pi) * residual.shape[0]
    slope = 0.5 * (jnp.outer(weights, weights) - lower_square(inverse))
    return value, jnp.sum(slope * tangents[1]) - matmul(weights, tangents[0])


class Marginal(dist.Distribution):
    """One event of N data, with mean ``loc`` ``(..., N)`` and what says how they vary together: ``spread``.

    In plates one for each member. ``lead`` are the axes that kernels and inputs brought, on the left of all arrays;
    they are placed by the shape of the data.
    """

    pytree_data_fields = ("loc", "spread")
    pytree_aux_fields = ("name", "lead")
    has_rsample = True
    support = constraints.real_vector

    def __init__(self, name: str, loc: Array, spread: Any) -> None:
        self.name, self.loc, self.spread, self.lead = name, loc, spread, jax.tree.leaves(spread)[0].shape[:-2]
        super().__init__((), loc.shape[-1:])

    def each(self, function: Callable[..., Result], *own: Array) -> Result:
        """``function(loc, spread, *own)`` of each member; ``own`` ``(..., N)`` has the axes of the plates."""
        if jax.tree.leaves(self.spread)[0].ndim - 2 > len(self.lead):  # what `scan` stacks: one for each of its steps
            return jax.vmap(lambda step, *own: step.each(function, *own))(self, *own)
        batch, parts = own[0].shape[:-1], (self.loc, self.spread)
        parts = in_plates(parts, self.lead, batch, self.name) if self.lead else parts
        axis = 0 if self.lead else None
        return over_axes(function, len(batch), (axis, axis, *[0] * len(own)))(*parts, *own)

    @property
    def mean(self) -> Array:
        return self.loc


class ExactMarginal(Marginal):
    """``y ~ N(c, k(X, X) + noise)`` (mathematics.md section 3.4); ``spread`` is the covariance."""

    spread: Array

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        noise = jax.random.normal(key, sample_shape + self.event_shape, self.loc.dtype)
        return self.each(lambda loc, covariance, white: loc + matmul(cholesky(covariance), white), noise)

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """Log marginal likelihood."""
        return self.each(lambda loc, covariance, y: gaussian_log_density(y - loc, covariance), value)

    @property
    def covariance(self) -> Array:
        """``k(X, X) + noise``."""
        return self.spread

    @property
    def variance(self) -> Array:
        return jnp.diagonal(self.spread, axis1=-2, axis2=-1)


class CollapsedMarginal(Marginal):
    """The collapsed bound as the log probability of ``y``; draws come from its low-rank plus diagonal prior.

    ``spread`` is `GaussianData`. ``log_prob`` never exceeds the exact log marginal likelihood; with ``inducing = X`` it
    equals it. It is that of Titsias (2025), which is never below that of 2009.
    """

    spread: GaussianData

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """The tight collapsed bound (mathematics.md section 3.3, per-datum noise)."""
        return self.each(lambda loc, data, y: data.tight_bound((y - loc) / data.scale), value)

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        key_v, key_e = jax.random.split(key)
        shape, dtype = sample_shape + self.event_shape, self.loc.dtype
        v = jax.random.normal(key_v, sample_shape + self.spread.features.shape[-2:-1], dtype)

        def one(loc: Array, data: GaussianData, v: Array, noise: Array) -> Array:
            explained = jnp.sum(data.features**2, axis=0)
            spread = jnp.sqrt(positive(1 + data.prior - explained, jnp.ones((), dtype)))
            return loc + data.scale * (matmul(v, data.features) + spread * noise)

        return self.each(one, v, jax.random.normal(key_e, shape, dtype))

    @property
    def variance(self) -> Array:
        return self.spread.scale**2 * (self.spread.prior + 1)
