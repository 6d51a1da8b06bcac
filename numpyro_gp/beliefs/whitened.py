"""The normal distribution of the whitened values, and how it follows from what a belief says about the function.

A belief need not hold ``q(v)``: on a white process, ``f(x_i) = v_i``, its `joint` is that distribution. A belief that
says more about the function than ``q(v) p(f | v)`` is known by its divergence: by the chain rule it is the larger.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from numpyro_gp.arrays import Array, Shape
from numpyro_gp.linalg import cholesky, einsum, half_log_det, row_sums


def covariance_kl(factor: Float[Array, "*batch M M"]) -> Float[Array, ""]:
    """``kl(C) = (|C|_F^2 - M)/2 - sum_i log C_ii``, summed over leading axes (mathematics.md section 3.1)."""
    return 0.5 * (jnp.sum(row_sums(factor**2)) - factor.size / factor.shape[-1]) - jnp.sum(half_log_det(factor))


class Whitened(NamedTuple):
    """A normal distribution of whitened values: mean and lower factor, outputs first."""

    mean: Float[Array, "*batch M"]
    scale_tril: Float[Array, "*batch M M"]

    def kl(self) -> Float[Array, ""]:
        """``|m|^2/2 + kl(C)``, the divergence from ``N(0, I)``, summed over outputs."""
        return 0.5 * jnp.sum(self.mean**2) + covariance_kl(self.scale_tril)

    def draw(self, key: Array, sample_shape: Shape = ()) -> Array:
        """Draws of the values, shape ``sample_shape + mean.shape``."""
        noise = jax.random.normal(key, sample_shape + self.mean.shape, self.mean.dtype)
        lead = (None,) * len(sample_shape)
        return self.mean[lead] + einsum("...ij,...j->...i", self.scale_tril[lead], noise)


def numbered(size: int, inputs: Float[Array, "M D"]) -> Float[Array, "{size} D"]:
    """Inputs, each row full of its number."""
    return jnp.broadcast_to(jnp.arange(size, dtype=inputs.dtype)[:, None], (size, inputs.shape[-1]))


def is_same_row(X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
    """The kernel of white noise over such inputs."""
    return (X1[:, None, 0] == X2[None, :, 0]).astype(X1.dtype)


def derived(
    mean: Float[Array, "*batch M"], covariance: Float[Array, "*batch M M"], prior: Float[Array, "M M"]
) -> Whitened:
    """``m`` and ``chol S`` of a belief about whitened values alone, from its joint on the white process.

    There the prior covariance is ``C I`` for an additive site of C components, whose values are among them:
    ``cov f = C I - I + S`` (mathematics.md section 3.5).
    """
    eye = jnp.eye(prior.shape[0], dtype=covariance.dtype)
    change = (prior - eye)[(None,) * (covariance.ndim - 2)]
    own = 0.5 * (covariance + jnp.swapaxes(covariance, -1, -2)) - change
    # Rounding of values near one, which may have made the smallest eigenvalues of S negative.
    floor = 8 * jnp.finfo(own.dtype).eps * eye[(None,) * (covariance.ndim - 2)]
    return Whitened(mean, cholesky(own + floor))


def agreement(kl: Float[Array, "*batch"], found: Whitened) -> Bool[Array, ""]:
    """Whether the KL divergence of a belief, or of all members, is that of its whitened values, up to rounding."""
    kl = jnp.sum(kl)
    slack = jnp.sqrt(jnp.finfo(kl.dtype).eps) * (found.mean.size + jnp.abs(kl))
    return jnp.abs(found.kl() - kl) <= slack
