"""Gaussian beliefs over the whitened values of the site's own inducing points (mathematics.md section 3.1)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, over_axes, store, value_type
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals, above_rounding
from numpyro_gp.beliefs.basis import AbstractBasis, Whitened
from numpyro_gp.beliefs.moments import open_variance, whitened_marginals
from numpyro_gp.checks import check_floating, check_positive, check_triangle, fail
from numpyro_gp.linalg import matmul


def check_mean(argument: str, mean: ArrayLike) -> Array:
    """Return a whitened mean ``(M,)`` or ``(P, M)``, with the axes of plates on its left."""
    array = check_floating(argument, mean)
    if array.ndim == 0:
        fail(argument, "of shape (M,), or (P, M) for P outputs", f"shape {array.shape}", "Pass a row for each output.")
    return array


def joint_covariance(
    features: Float[Array, "M N"], prior: Float[Array, "N N"], factor: Float[Array, "*batch M M"]
) -> Float[Array, "*batch N N"]:
    """``k(X, X) - A^T A + (C^T A)^T (C^T A)``."""
    rooted = matmul(jnp.swapaxes(factor, -1, -2), features)
    spread = matmul(jnp.swapaxes(rooted, -1, -2), rooted)
    return jnp.broadcast_to(prior - matmul(features.T, features), spread.shape) + spread


class CovarianceMoments(NamedTuple):
    """``S = C C^T`` and the KL divergence, where they are not made of ``C``: derivatives then pass it by."""

    covariance: Float[Array, "*batch M M"]
    divergence: Float[Array, "*batch"]


@value_type()
class Coupled(AbstractBelief):
    """The usual sparse variational posterior: ``q(v) = N(m, C C^T)`` over whitened inducing values.

    Parameters
    ----------
    mean : Array (M,) or (P, M)
        Whitened mean ``m``; the mean of ``u = f(Z)`` is ``L m``.
    scale_tril : Array (M, M) or (P, M, M)
        Whitened lower factor ``C`` with a positive diagonal.
    moments : Moments, optional
        Set by recipes that hold ``S = C C^T`` by itself; it changes no value.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> belief = ngp.beliefs.Coupled(jnp.zeros(3), jnp.eye(3))
    >>> belief.shape
    (3,)
    """

    mean: ArrayField
    scale_tril: ArrayField
    moments: CovarianceMoments | None = None

    def __post_init__(self) -> None:
        mean = check_mean("mean", self.mean)
        store(self, mean=mean, scale_tril=check_triangle("scale_tril", self.scale_tril, mean.shape, positive=True))

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, self.scale_tril)

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``k_nn - |A_n|^2 + |C^T A_n|^2``."""
        covariance = None if self.moments is None else self.moments.covariance
        return whitened_marginals(basis, X, self.mean, self.scale_tril, covariance)

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """``A^T m`` and ``k(X, X) - A^T A + (C^T A)^T (C^T A)``."""
        features = basis.features(X)
        return Joint(matmul(self.mean, features), joint_covariance(features, basis.matrix(X), self.scale_tril))

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:  # noqa: ARG002
        """``|m|^2/2 + kl(C)``."""
        return self.whitened().kl() if self.moments is None else jnp.sum(self.moments.divergence)


@value_type()
class MeanField(AbstractBelief):
    """Independent whitened inducing values, for very many of them: ``q(v) = N(m, diag(scale^2))``.

    Parameters
    ----------
    mean : Array (M,) or (P, M)
    scale : Array, same shape, positive
        Standard deviations of the whitened values.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.beliefs.MeanField(jnp.zeros(3), jnp.ones(3)).shape
    (3,)
    """

    mean: ArrayField
    scale: ArrayField

    def __post_init__(self) -> None:
        mean = check_mean("mean", self.mean)
        scale = check_positive("scale", self.scale)
        if scale.shape != mean.shape:
            fail("scale", f"of shape {mean.shape}, like mean", f"shape {scale.shape}", "Pass one scale for each value.")
        store(self, mean=mean, scale=scale)

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, over_axes(jnp.diag, self.ndim - 1)(self.scale))

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``k_nn + sum_i (scale_i^2 - 1) A_in^2``."""
        features, prior = basis.features(X), basis.diagonal(X)
        rest = open_variance(features, prior, basis.left_by_jitter())
        spread = matmul(self.scale**2, features**2)
        variance = jnp.broadcast_to(jnp.where(rest < 0, 0, rest), spread.shape) + spread
        return Marginals(matmul(self.mean, features), above_rounding(variance, prior))

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """``A^T m`` and ``k(X, X) + A^T (diag(scale^2) - I) A``."""
        features = basis.features(X)
        change = matmul(features.T, (self.scale**2 - 1)[..., None] * features[(None,) * (self.scale.ndim - 1)])
        return Joint(matmul(self.mean, features), jnp.broadcast_to(basis.matrix(X), change.shape) + change)

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:  # noqa: ARG002
        """``sum (m^2 + scale^2 - 1)/2 - log scale``."""
        return jnp.sum(0.5 * (self.mean**2 + self.scale**2 - 1) - jnp.log(self.scale))
