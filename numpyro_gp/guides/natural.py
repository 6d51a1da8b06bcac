"""Natural parameters of a Gaussian, and the backward rule that makes plain steps on them natural steps.

A Gaussian ``N(m, S)`` is stored as its precision ``S^-1`` and shift ``S^-1 m``. The map to ``(m, C)`` with
``C C^T = S`` is differentiated not by the chain rule but by the identity that the natural gradient in the
natural parameters is the ordinary gradient in the expectation parameters ``(m, S + m m^T)``. Any
optimiser that takes plain gradient steps therefore takes natural-gradient steps (mathematics.md section 3.2).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.custom_derivatives import SymbolicZero
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ParameterFreeTransform, biject_to

from numpyro_gp.arrays import Array, ArrayLike, on_device, over_axes
from numpyro_gp.beliefs.triangular_products import lower_outer_square
from numpyro_gp.checks import at_hand
from numpyro_gp.linalg import half_log_det, inverse_factors, matmul, symmetric_gradient

# Optimisers find natural parameters by this part of their names, which no user's own parameter has by chance.
NATURAL_MARK = "/ngp:natural_"


def natural_param(name: str, kind: str, start: ArrayLike | Callable[[Array], Array], event_dim: int | None) -> Array:
    """Declare a natural parameter ("shift", "precision", ...) of a site or component.

    Its last ``event_dim`` axes are those of one member of plates; NumPyro hands out the members of a minibatch. None
    hands out all of it.
    """
    return numpyro.param(f"{name}{NATURAL_MARK}{kind}", start, event_dim=event_dim)


def is_of_rows(name: str) -> bool:
    """Whether a natural parameter has one entry for each row of the data, whose step is its own."""
    return f"{NATURAL_MARK}row_" in name


def is_natural(name: str) -> bool:
    """Whether a parameter was declared by `natural_param`: `ngp.optim.natural_gradient` takes plain steps on it."""
    return NATURAL_MARK in name


class Expectations(NamedTuple):
    """What natural parameters say: mean, lower factor, covariance and ``sum_i log C_ii``."""

    mean: Array
    scale_tril: Array
    covariance: Array
    half_log_det: Array

    @property
    def divergence(self) -> Array:
        """``(|m|^2 + tr S - M)/2 - sum_i log C_ii`` of each, the KL divergence from ``N(0, I)``."""
        spread = jnp.trace(self.covariance, axis1=-2, axis2=-1) - self.mean.shape[-1]
        return 0.5 * (jnp.sum(self.mean**2, axis=-1) + spread) - self.half_log_det


@jax.jit  # a guide asks for it in the trace of each fit and of each prediction: JAX remembers this part of it
def _found(shift: Array, precision: Array) -> tuple[Expectations, tuple[Array, Array, Array, Array]]:
    """By one Cholesky of the index-reversed precision; and ``m``, ``C``, ``C^-1`` and the precision itself."""
    root, root_inverse = inverse_factors(precision)
    mean = matmul(root, matmul(root.T, shift))
    found = Expectations(mean, root, lower_outer_square(root), half_log_det(root))
    return found, (mean, root, root_inverse, precision)


@jax.custom_vjp
def _expectations(shift: Array, precision: Array) -> Expectations:
    return _found(shift, precision)[0]


def _forward(shift: Any, precision: Any) -> tuple[Expectations, tuple[Array, Array, Array, Array]]:
    return _found(shift.value, precision.value)


def _backward(residuals: tuple[Array, Array, Array, Array], cotangents: Expectations) -> tuple[Array, Array]:
    """Gradients in the expectation parameters: ``dm - 2 dS m`` for the shift, ``-2 dS`` for the precision.

    What asked for ``S`` and its log determinant gives ``dS`` itself; only what asked for ``C`` costs three products.
    """
    mean, root, root_inverse, precision = residuals
    d_mean, d_root, d_spread, d_log = cotangents
    d_covariance = jnp.zeros_like(precision)
    if not isinstance(d_root, SymbolicZero):
        d_covariance = d_covariance + symmetric_gradient(root, root_inverse, d_root)
    if not isinstance(d_spread, SymbolicZero):
        d_covariance = d_covariance + 0.5 * (d_spread + d_spread.T)
    if not isinstance(d_log, SymbolicZero):
        d_covariance = d_covariance + 0.5 * d_log * precision
    own = jnp.zeros_like(mean) if isinstance(d_mean, SymbolicZero) else d_mean
    return own - matmul(2 * d_covariance, mean), -2 * d_covariance


_expectations.defvjp(_forward, _backward, symbolic_zeros=True)


def natural_expectations(shift: Array, precision: Array) -> Expectations:
    """`natural_to_mean` with the covariance and its log determinant, whose gradients need no factor.

    Parameters
    ----------
    shift : Array (..., M)
    precision : Array (..., M, M)
    """
    return over_axes(_expectations, shift.ndim - 1)(shift, precision)


def natural_to_mean(shift: Array, precision: Array) -> tuple[Array, Array]:
    """``(S^-1 m, S^-1)`` to ``(m, C)``, with the natural gradient as its derivative.

    Parameters
    ----------
    shift : Array (..., M)
    precision : Array (..., M, M)
        Symmetric; where it is not positive definite the result is NaN.

    Returns
    -------
    mean : Array, like ``shift``
    scale_tril : Array, like ``precision``
        Lower triangular with a positive diagonal.
    """
    found = natural_expectations(shift, precision)
    return found.mean, found.scale_tril


# --------------------------------------------------------------------- factors that are parameters


class _LowerFactor(constraints.ParameterFreeConstraint):
    """Lower triangular ``(..., M, M)`` with a positive diagonal."""

    event_dim = 2

    def __call__(self, x: Array) -> Array:
        below = jnp.all(jnp.triu(x, 1) == 0, axis=(-2, -1))
        return below & jnp.all(jnp.diagonal(x, axis1=-2, axis2=-1) > 0, axis=-1)

    def feasible_like(self, prototype: ArrayLike) -> Array:
        return jnp.broadcast_to(jnp.eye(jnp.shape(prototype)[-1]), jnp.shape(prototype))


def _softplus(package: Any, value: Any) -> Any:
    return package.logaddexp(value, 0)


def _inverse_softplus(package: Any, value: Any) -> Any:
    return value + package.log(-package.expm1(-value))


def _on_diagonal(package: Any, function: Callable[[Any, Any], Any], matrix: Any) -> Any:
    """What lies below the diagonal of ``(..., M, M)``, and a function of the diagonal, by NumPy or JAX."""
    eye = package.eye(matrix.shape[-1], dtype=matrix.dtype)[(None,) * (matrix.ndim - 2)]
    diagonal = function(package, package.diagonal(matrix, axis1=-2, axis2=-1))
    return package.tril(matrix, -1) + diagonal[..., None] * eye


# One program for all factors of a step.
_in_program = jax.jit(partial(_on_diagonal, jnp), static_argnums=0)


def _mapped(function: Callable[[Any, Any], Any], matrix: Array) -> Array:
    package, own = at_hand(matrix)
    return on_device(_on_diagonal(np, function, own)) if package is np else _in_program(function, own)


class _LowerFactorTransform(ParameterFreeTransform):
    """Keep what lies below the diagonal, map the diagonal by softplus, drop the rest.

    NumPyro asks for both ways operation by operation, where an engine starts and where a fit ends: NumPy does them.
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = _LowerFactor()

    def __call__(self, x: Array) -> Array:
        return _mapped(_softplus, x)

    def _inverse(self, y: Array) -> Array:
        return _mapped(_inverse_softplus, y)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """Of the diagonal, the only entries that are not kept as they are."""
        return jnp.sum(jax.nn.log_sigmoid(jnp.diagonal(x, axis1=-2, axis2=-1)), axis=-1)


lower_factor = _LowerFactor()
biject_to.register(lower_factor)(lambda constraint: _LowerFactorTransform())  # noqa: ARG005
