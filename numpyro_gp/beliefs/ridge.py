"""Least squares with a ridge at features of inducing points, in single precision as accurate as the features are."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.linalg import add_to_diagonal, congruence, half_diagonal, inverse_factor, matmul, row_times

# Rounding of ``B B^T`` beside the penalty, of which one pass loses no more than 1e-3 nats.
ROUNDED = 0.02


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

    found = lax.cond(rounding > ROUNDED * ridge, in_two, lambda: inverse_factor(matrix))
    return inverse_factor_from(gram, found)


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
