"""Gaussian data under the features of inducing points, in units of their noise: bounds and the best belief."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.ridge import ridge_factor, ridge_square
from numpyro_gp.linalg import half_log_det, matmul, row_times


class GaussianData(NamedTuple):
    """Gaussian data in units of their noise: features of the inducing points, prior variances, and the noise scales.

    ``turned`` are the features again, for the bound by itself: its slopes then have digits where data are precise
    (`numpyro_gp.beliefs.basis.features_but_turned`).
    """

    features: Float[Array, "M N"]
    prior: Float[Array, " N"]
    scale: Float[Array, " N"]
    turned: Float[Array, "M N"] | None = None

    @classmethod
    def build(cls, basis: AbstractBasis, X: Float[Array, "N D"], noise: Array) -> "GaussianData":
        """``A_n / scale_n``, ``k_nn / noise_n`` and ``scale_n = sqrt(noise_n)``."""
        scale = jnp.broadcast_to(jnp.sqrt(noise), X.shape[:1]).astype(basis.dtype)
        features, turned = basis.features_for_squares(X)
        return cls(features / scale[None], basis.diagonal(X) / scale**2, scale, turned / scale[None])

    @property
    def unexplained(self) -> Float[Array, " N"]:
        """``k_nn / noise_n - |B_n|^2``, row by row: sums over all of them would leave their rounding."""
        return jnp.maximum(self.prior - jnp.sum(self.features**2, axis=0), 0)

    def weights(
        self, root: Float[Array, "M M"], residuals: Float[Array, " N"], penalty: ArrayLike = 1.0
    ) -> Float[Array, " M"]:
        """``w = (t I + B B^T)^-1 B r`` for the inverse factor ``C`` of that matrix, ``t`` the penalty.

        Solved twice: for precise data the factor has few digits in float32, and what it leaves of ``B r`` is known.
        """
        penalty = jnp.asarray(penalty, self.features.dtype)

        def solved(right: Array) -> Array:
            return matmul(root, matmul(root.T, right))

        first = solved(matmul(self.features, residuals))
        left = residuals - row_times(first, self.features)
        return first + solved(matmul(self.features, left) - penalty * first)

    def bound(
        self, quadratic: Float[Array, ""], half_log_det: Float[Array, ""], is_tight: bool = False
    ) -> Float[Array, ""]:
        """The collapsed bound (mathematics.md section 3.3), with ``r^T S^-1 r`` and ``log |S| / 2``, ``S = B^T B + I``.

        ``B`` are the features, ``r`` the residuals, both in units of the noise. ``is_tight``: that of a function whose
        variance given the inducing values is fitted too.
        """
        unexplained = jnp.sum(jnp.log1p(self.unexplained) if is_tight else self.unexplained)
        constant = jnp.sum(jnp.log(self.scale)) + 0.5 * self.scale.shape[0] * math.log(2 * math.pi)
        return -half_log_det - constant - 0.5 * (quadratic + unexplained)

    def tight_bound(self, residuals: Float[Array, " N"]) -> Float[Array, ""]:
        """The bound of `optimum` by itself, of a function whose variance given the inducing values is fitted too."""
        data = self if self.turned is None else self._replace(features=self.turned)
        return data.optimum(residuals, is_tight=True)[2]

    def upper_bound(self, residuals: Float[Array, " N"]) -> Float[Array, ""]:
        """An upper bound of the log evidence (Titsias 2014; mathematics.md section 3.3), with ``r`` as in `bound`.

        What the inducing points leave unexplained, ``t = tr(K - Q)``, is at least the largest eigenvalue of ``K - Q``:
        ``-log |S| / 2 - r^T (S + t I)^-1 r / 2`` and the constants, ``S = B^T B + I``.
        """
        left = jnp.sum(self.unexplained)
        weights = self.weights(ridge_factor(self.features, 1 + left), residuals, 1 + left)
        # The largest 2 a.r - a^T (S + t I) a, which rounding of a leaves below: the bound stays one.
        a = (residuals - row_times(weights, self.features)) / (1 + left)
        pulled = matmul(self.features, a)
        quadratic = 2 * matmul(a, residuals) - (1 + left) * matmul(a, a) - matmul(pulled, pulled)
        constant = jnp.sum(jnp.log(self.scale)) + 0.5 * self.scale.shape[0] * math.log(2 * math.pi)
        return half_log_det(ridge_factor(self.features)) - constant - 0.5 * quadratic

    def leave_one_out(self, residuals: Float[Array, " N"]) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        """Mean and variance of ``y_n`` given all others under ``Q + noise``, in units of the noise, less the mean.

        What the inducing points leave unexplained at ``n`` is added to the variance.
        """
        eye = jnp.eye(self.features.shape[0], dtype=self.features.dtype)
        # By an orthogonal basis: the square of the features has twice as many digits as they have, in float32 too many.
        half = jnp.linalg.qr(jnp.concatenate([self.features.T, eye]))[0][: residuals.shape[0]].T
        precision = 1 - jnp.sum(half**2, axis=0)
        mean = residuals - (residuals - matmul(half.T, matmul(half, residuals))) / precision
        return mean, 1 / precision + self.unexplained

    def optimum(
        self, residuals: Float[Array, " N"], is_tight: bool = False
    ) -> tuple[Float[Array, " M"], Float[Array, "M M"], Float[Array, ""]]:
        """Mean ``S B r`` and factor of ``S = (I + B B^T)^-1`` of the best belief, and its bound: `bound`."""
        root = ridge_factor(self.features)
        weights = self.weights(root, residuals)
        quadratic = ridge_square(self.features, residuals, weights)
        return weights, root, self.bound(quadratic, -half_log_det(root), is_tight)
