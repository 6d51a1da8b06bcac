"""The normal distribution of the whitened values, and how it follows from what a belief says about the function.

A belief need not hold ``q(v)``: on a white process, ``f(x_i) = v_i``, its `joint` is that distribution. A belief that
says more about the function than ``q(v) p(f | v)`` is known by its divergence: by the chain rule it is the larger.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array
from numpyro_gp.linalg import cholesky, half_log_det

__all__ = ["Whitened", "agreement", "covariance_kl", "derived", "is_same_row", "numbered"]


def covariance_kl(factor: Array) -> Array:
    """``kl(C) = (|C|_F^2 - M)/2 - sum_i log C_ii``, summed over leading axes (mathematics.md section 3.1)."""
    return 0.5 * (jnp.sum(factor**2) - factor.size / factor.shape[-1]) - jnp.sum(half_log_det(factor))


class Whitened(NamedTuple):
    """A normal distribution of whitened values: mean ``(..., M)`` and lower factor ``(..., M, M)``, outputs first."""

    mean: Array
    scale_tril: Array

    def kl(self) -> Array:
        """``|m|^2/2 + kl(C)``, the divergence from ``N(0, I)``, summed over outputs."""
        return 0.5 * jnp.sum(self.mean**2) + covariance_kl(self.scale_tril)

    def draw(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the values, shape ``sample_shape + mean.shape``."""
        noise = jax.random.normal(key, sample_shape + self.mean.shape, self.mean.dtype)
        lead = (None,) * len(sample_shape)
        return self.mean[lead] + jnp.einsum("...ij,...j->...i", self.scale_tril[lead], noise)


def numbered(size: int, inputs: Array) -> Array:
    """``(size, D)`` inputs, each row full of its number."""
    return jnp.broadcast_to(jnp.arange(size, dtype=inputs.dtype)[:, None], (size, inputs.shape[-1]))


def is_same_row(X1: Array, X2: Array) -> Array:
    """The kernel of white noise over such inputs."""
    return (X1[:, None, 0] == X2[None, :, 0]).astype(X1.dtype)


def derived(belief: Any, basis: Any) -> Whitened:
    """``m`` and ``chol S`` of a belief about whitened values alone, from its `joint` where these are the function."""
    white, labels = basis.white()
    mean, covariance = belief.joint(white, labels)
    eye = jnp.eye(basis.size, dtype=covariance.dtype)
    change = (white.matrix(labels) - eye)[(None,) * (covariance.ndim - 2)]
    own = 0.5 * (covariance + jnp.swapaxes(covariance, -1, -2)) - change
    # Rounding of values near one, which may have made the smallest eigenvalues of S negative.
    floor = 8 * jnp.finfo(own.dtype).eps * eye[(None,) * (covariance.ndim - 2)]
    return Whitened(mean, cholesky(own + floor))


def agreement(belief: Any, found: Whitened, basis: Any) -> Array:
    """Whether a belief has the KL divergence of a distribution of its whitened values, up to rounding."""
    wanted = belief.kl(basis)
    slack = jnp.sqrt(jnp.finfo(wanted.dtype).eps) * (belief.size + jnp.abs(wanted))
    return jnp.abs(found.kl() - wanted) <= slack
