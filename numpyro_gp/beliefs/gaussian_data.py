"""Gaussian data under the features of inducing points, in units of their noise: bounds and the best belief."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, over_axes
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.linalg import (
    add_to_diagonal,
    congruence,
    half_diagonal,
    half_log_det,
    identity_like,
    inverse_factor,
    matmul,
    row_times,
    solve_lower,
)

# --------------------------------------------------------------------------------------
# Least squares with a ridge at features of inducing points, in single precision as accurate as the features are.


# Rounding of ``B B^T`` beside the penalty, of which one pass loses no more than 1e-3 nats.
ROUNDED_GRAM = 0.02


def ridge_factor(features: Float[Array, "M N"], penalty: ArrayLike = 1.0) -> Float[Array, "M M"]:
    """Lower ``C`` with ``C C^T = (t I + B B^T)^-1``, ``t`` the penalty.

    In single precision precise data make ``B B^T`` so large that rounding of it is as large as ``t``. Then it takes two
    passes, as in shifted CholeskyQR (Fukaya et al. 2020). A first ``C_1`` is that of a matrix raised by so much; the
    second factor is that of ``C_1^T (t I + B B^T) C_1``, found from ``C_1^T B``, whose rows have one scale.
    """
    penalty = jnp.asarray(penalty, features.dtype)
    gram = penalty * jnp.eye(features.shape[0], dtype=features.dtype) + matmul(features, features.T)
    if features.dtype.itemsize > 4:
        return inverse_factor(gram)
    held, ridge, matrix = lax.stop_gradient((features, penalty, gram))
    rounding = jnp.finfo(gram.dtype).eps * jnp.max(jnp.diagonal(matrix))

    def in_two() -> Array:
        first = inverse_factor(add_to_diagonal(matrix, len(matrix) * rounding[None]))
        turned = matmul(first.T, held)
        return matmul(first, inverse_factor(ridge * matmul(first.T, first) + matmul(turned, turned.T)))

    factor = lax.cond(rounding > ROUNDED_GRAM * ridge, in_two, lambda: inverse_factor(matrix))
    return inverse_factor_from(gram, factor)


@jax.custom_jvp
def inverse_factor_from(precision: Float[Array, "M M"], root: Float[Array, "M M"]) -> Float[Array, "M M"]:  # noqa: ARG001
    """`inverse_factor` of a matrix whose ``C`` is found already, and a constant: ``dC = -C Phi(C^T dP C)``."""
    return root


@inverse_factor_from.defjvp
def _inverse_factor_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    root = inverse_factor_from(*primals)
    return root, matmul(-root, half_diagonal(congruence(root.T, tangents[0])))


@jax.custom_jvp
def ridge_square(
    features: Float[Array, "M N"], residuals: Float[Array, " N"], weights: Float[Array, " M"]
) -> Float[Array, ""]:
    """``r^T (B^T B + I)^-1 r`` as the least ``|r - B^T w|^2 + |w|^2``, at the ``w`` that attains it.

    ``|r|^2 - |C^T B r|^2`` is the difference of numbers that precise data make large, and what it leaves may be too
    small: here errors of ``w`` count by their squares, and make it larger. At the least there is no derivative in it.
    """
    left = residuals - row_times(weights, features)
    return matmul(left, left) + matmul(weights, weights)


@ridge_square.defjvp
def _ridge_square_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    features, residuals, weights = primals
    left = residuals - row_times(weights, features)
    value = matmul(left, left) + matmul(weights, weights)
    return value, 2 * (matmul(left, tangents[1]) - matmul(weights, matmul(tangents[0], left)))


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

    @property
    def constant(self) -> Float[Array, ""]:
        """``sum log scale + N log(2 pi) / 2``."""
        return jnp.sum(jnp.log(self.scale)) + 0.5 * self.scale.shape[0] * math.log(2 * math.pi)

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
        return -half_log_det - self.constant - 0.5 * (quadratic + unexplained)

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
        return half_log_det(ridge_factor(self.features)) - self.constant - 0.5 * quadratic

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


# --------------------------------------------------------------------------------------
# What data said about a process, as normal pseudo-data at its inducing inputs (mathematics.md section 14.1).
#
# ``t(u) = exp(shift . u - u^T precision u / 2)`` over ``u = f(Z) = level + L v``, the mean function included. It
# is the same at all hyper-parameters; `Conditional` has the distribution of the whitened values at each of them.


BroadcastVector = Float[Array, "*#batch M"]
BroadcastSquare = Float[Array, "*#batch M M"]


def pseudo_data_of(
    mean: BroadcastVector, scale_tril: BroadcastSquare, factor: BroadcastSquare, level: BroadcastVector | None = None
) -> tuple[Float[Array, "*batch M"], Float[Array, "*batch M M"]]:
    """The pseudo-data that make ``N(mean, C C^T)`` of the whitened values at the factor of their fit: the way back.

    ``Lambda = L^-T (S^-1 - I) L^-1`` and ``shift = L^-T S^-1 mean + Lambda level`` (mathematics.md section 14.2). Where
    ``S`` is wider than the prior in some direction, as in a fit that has not converged, that direction is left to the
    prior: negative eigenvalues of ``S^-1 - I`` become zero. The mean is kept.

    Parameters
    ----------
    mean, scale_tril : Array (..., M), (..., M, M)
        Whitened mean and lower factor ``C``.
    factor : Array (..., M, M)
        ``L`` with ``L L^T = k(Z, Z) + eps I``, at the hyper-parameters of that fit.
    level : Array (..., M), optional
        Mean function at ``Z``.

    Returns
    -------
    shift : Array (..., M)
    precision : Array (..., M, M)
    """
    arrays = [(mean, 1), (scale_tril, 2), (factor, 2), *([] if level is None else [(level, 1)])]
    lead = jnp.broadcast_shapes(*[array.shape[: array.ndim - rank] for array, rank in arrays])
    axes = tuple(0 if array.ndim > rank else None for array, rank in arrays)
    # What all members share is not repeated.
    whole = [jnp.broadcast_to(a, lead + a.shape[a.ndim - r :]) if a.ndim > r else a for a, r in arrays]
    return over_axes(_scaled_pseudo_data, len(lead), axes)(*whole)


def positive_part(precision: BroadcastSquare) -> BroadcastSquare:
    """The symmetric matrices with their negative eigenvalues set to zero."""
    values, vectors = jnp.linalg.eigh(precision)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))[..., None, :]
    return matmul(root, jnp.swapaxes(root, -1, -2))


def _scaled_pseudo_data(
    mean: Array, scale_tril: Array, factor: Array, level: Array | float = 0.0
) -> tuple[Array, Array]:
    inverse = solve_lower(scale_tril, identity_like(scale_tril))
    values, vectors = jnp.linalg.eigh(matmul(inverse.T, inverse) - identity_like(inverse))
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))[None]
    pulled = mean + matmul(root, matmul(root.T, mean))  # S^-1 mean
    solved = solve_lower(factor, jnp.concatenate([root, pulled[:, None]], axis=-1), transpose=True)
    side, shift = solved[:, :-1], solved[:, -1]
    precision = matmul(side, side.T)
    return shift + matmul(precision, jnp.broadcast_to(level, shift.shape)), precision
