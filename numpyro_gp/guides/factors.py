"""Lower triangular factors as parameters: a constraint whose free coordinates are a matrix of the same shape.

NumPyro's ``constraints.lower_cholesky`` packs the free coordinates into a vector, which costs a scatter for
every step and mixes precisions when float32 factors are used while float64 is on.
"""

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ParameterFreeTransform, biject_to

from numpyro_gp.arrays import Array, ArrayLike


class _LowerFactor(constraints.ParameterFreeConstraint):
    """Lower triangular ``(..., M, M)`` with a positive diagonal."""

    event_dim = 2

    def __call__(self, x: Array) -> Array:
        below = jnp.all(jnp.triu(x, 1) == 0, axis=(-2, -1))
        return below & jnp.all(jnp.diagonal(x, axis1=-2, axis2=-1) > 0, axis=-1)

    def feasible_like(self, prototype: ArrayLike) -> Array:
        return jnp.broadcast_to(jnp.eye(jnp.shape(prototype)[-1]), jnp.shape(prototype))


def _with_diagonal(matrix: Array, diagonal: Array) -> Array:
    """What lies below the diagonal of ``(..., M, M)``, and this diagonal ``(..., M)``."""
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)[(None,) * (matrix.ndim - 2)]
    below: Array = jnp.tril(matrix, -1)
    return below + diagonal[..., None] * eye


class _LowerFactorTransform(ParameterFreeTransform):
    """Keep what lies below the diagonal, map the diagonal by softplus, drop the rest."""

    domain = constraints.independent(constraints.real, 2)
    codomain = _LowerFactor()

    def __call__(self, x: Array) -> Array:
        return _with_diagonal(x, jax.nn.softplus(jnp.diagonal(x, axis1=-2, axis2=-1)))

    def _inverse(self, y: Array) -> Array:
        diagonal = jnp.diagonal(y, axis1=-2, axis2=-1)
        return _with_diagonal(y, diagonal + jnp.log(-jnp.expm1(-diagonal)))

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """Of the diagonal, the only entries that are not kept as they are."""
        return jnp.sum(jax.nn.log_sigmoid(jnp.diagonal(x, axis1=-2, axis2=-1)), axis=-1)


lower_factor = _LowerFactor()
biject_to.register(lower_factor)(lambda constraint: _LowerFactorTransform())  # noqa: ARG005
