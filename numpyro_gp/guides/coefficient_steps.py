"""Steps in the coefficients of a mean basis: what is stored, and backward rules that divide by its curvature.

See mathematics.md section 4.5. As in `numpyro_gp.guides.natural`, plain gradient steps of an optimiser become these.
"""

from functools import partial

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.curvature_taps import per_weight, steadied
from numpyro_gp.linalg import einsum, factorise

# Added to diag(H) by default: where a mean point meets an inducing point the direction is redundant.
DIAGONAL_EPS = 1e-2

Observed = tuple[Array, Array, Array]
Watched = tuple[Array, Array, Array, Array]


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def natural_coefficients(a: Array, kind: str, step: float, eps: float | None, members: int = 0) -> Watched:  # noqa: ARG001
    """The coefficients ``a`` and the zeros of a `Probe`, with ``step Q^-1 grad`` for the derivative of the loss.

    See mathematics.md section 4.5.

    The gradients in the probe are half the curvature, an eigenvalue, and the factor ``c`` by which the loss was scaled
    (by NumPyro's particles, for example), so the backward rule has ``Q`` for the current kernel and keeps
    ``c`` out of it: a loss twice as large takes a step twice as long, as for every other natural parameter.
    The first ``members`` axes of ``a`` are those over which the methods of the belief are mapped: each has its own.
    """
    size = () if kind == "diagonal" else a.shape[-1:]
    zeros = jnp.zeros(a.shape[:members], a.dtype), jnp.zeros(a.shape + size, a.dtype), jnp.zeros(a.shape[:-1], a.dtype)
    return a, *zeros


def _coefficients_backward(
    kind: str, step: float, eps: float | None, _members: int, _: None, cotangents: Watched
) -> tuple[Array]:
    slope, weight, half, top = cotangents
    curvature = 2 * per_weight(half, weight)
    if kind == "diagonal":
        change = slope / (curvature + (DIAGONAL_EPS if eps is None else eps))
    else:
        hidden = (weight == 0).reshape(weight.shape + (1,) * (half.ndim - weight.ndim))
        curvature = jnp.where(hidden, jnp.eye(half.shape[-1], dtype=half.dtype), curvature)  # zeros have no factor
        change = solved(factorise(steadied(curvature, eps))[1], slope)
    return (step * change / jnp.maximum(per_weight(top, weight), 1)[..., None],)


natural_coefficients.defvjp(lambda *given: (natural_coefficients(*given), None), _coefficients_backward)


def solved(inverse: Array, values: Array) -> Array:
    """``W^T W x``: what a matrix with the inverse factor ``W`` solves for."""
    return einsum("...ji,...j->...i", inverse, einsum("...ij,...j->...i", inverse, values))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def newton_coefficients(shift: Array, precision: Array, step: float, eps: float | None, members: int = 0) -> Observed:  # noqa: ARG001
    """``a = Q^-1 shift`` and the zeros of a `Probe`; plain steps ``rho`` on both move ``Q`` and take Newton's step.

    With the curvature ``J = H + F Lambda F^T`` of the batch, the step is ``Q <- (1 - rho) Q + rho J`` and then
    ``a <- a + step rho Q^-1 (F g - H a)``: that of a natural gradient in a Gaussian over ``a`` whose mean alone is
    used (mathematics.md section 4.5). Arguments as in `natural_coefficients`.
    """
    a = solved(factorise(precision)[1], shift)
    return a, jnp.zeros(a.shape[:members], a.dtype), jnp.zeros_like(precision)


def _newton_forward(
    shift: Array, precision: Array, step: float, eps: float | None, members: int
) -> tuple[Observed, tuple[Array, Array]]:
    found = newton_coefficients(shift, precision, step, eps, members)
    return found, (found[0], precision)


def _newton_backward(
    step: float, eps: float | None, _members: int, kept: tuple[Array, Array], cotangents: Observed
) -> tuple[Array, Array]:
    (a, precision), (slope, weight, half) = kept, cotangents
    scale = weight.reshape(weight.shape + (1,) * (half.ndim - weight.ndim))
    curvature = per_weight(half + jnp.swapaxes(half, -1, -2), weight)
    change = scale * (precision - steadied(curvature, eps))
    return step * slope + einsum("...ij,...j->...i", change, a), change


newton_coefficients.defvjp(_newton_forward, _newton_backward)
