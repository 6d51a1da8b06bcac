"""Natural parameters of a Gaussian, and the backward rule that makes plain steps on them natural steps.

A Gaussian ``N(m, S)`` is stored as its precision ``S^-1`` and shift ``S^-1 m``. The map to ``(m, C)`` with
``C C^T = S`` is differentiated not by the chain rule but by the identity that the natural gradient in the
natural parameters is the ordinary gradient in the expectation parameters ``(m, S + m m^T)``. Any
optimiser that takes plain gradient steps therefore takes natural-gradient steps (mathematics.md section 3.2).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import lax
from jax.custom_derivatives import SymbolicZero
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ParameterFreeTransform, biject_to

from numpyro_gp.arrays import Array, ArrayLike, on_device, over_axes
from numpyro_gp.beliefs.curvature_taps import BlockProbe, BlockRoot, SpareColumns, per_weight, steadied
from numpyro_gp.beliefs.members import Stacked, Stacks
from numpyro_gp.beliefs.products import lower_outer_square
from numpyro_gp.beliefs.structured import BlockLowRank, Structured
from numpyro_gp.checks import at_hand
from numpyro_gp.linalg import cholesky, einsum, factorise, half_log_det, inverse_factors, matmul, symmetric_gradient

# --------------------------------------------------------------------------------------
# Steps in the coefficients of a mean basis: what is stored, and backward rules that divide by its curvature.
#
# See mathematics.md section 4.5. As in `numpyro_gp.guides.natural`, plain gradient steps of an optimiser become
# these.


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
def _found_steps(shift: Array, precision: Array) -> tuple[Expectations, tuple[Array, Array, Array, Array]]:
    """By one Cholesky of the index-reversed precision; and ``m``, ``C``, ``C^-1`` and the precision itself."""
    root, root_inverse = inverse_factors(precision)
    mean = matmul(root, matmul(root.T, shift))
    found = Expectations(mean, root, lower_outer_square(root), half_log_det(root))
    return found, (mean, root, root_inverse, precision)


@jax.custom_vjp
def _expectations(shift: Array, precision: Array) -> Expectations:
    return _found_steps(shift, precision)[0]


def _natural_forward(shift: Any, precision: Any) -> tuple[Expectations, tuple[Array, Array, Array, Array]]:
    return _found_steps(shift.value, precision.value)


def _natural_backward(residuals: tuple[Array, Array, Array, Array], cotangents: Expectations) -> tuple[Array, Array]:
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


_expectations.defvjp(_natural_forward, _natural_backward, symbolic_zeros=True)


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


def _by_diagonal(package: Any, matrix: Any, is_inverse: bool) -> Any:
    """What lies below the diagonal of ``(..., M, M)``, and the softplus of the diagonal, by NumPy or JAX."""
    eye = package.eye(matrix.shape[-1], dtype=matrix.dtype)[(None,) * (matrix.ndim - 2)]
    free = package.diagonal(matrix, axis1=-2, axis2=-1)
    diagonal = free + package.log(-package.expm1(-free)) if is_inverse else package.logaddexp(free, 0)
    return package.tril(matrix, -1) + diagonal[..., None] * eye


# One program for all factors of a step.
_in_program = jax.jit(partial(_by_diagonal, jnp), static_argnums=1)


def _mapped(matrix: Array, is_inverse: bool) -> Array:
    package, own = at_hand(matrix)
    return on_device(_by_diagonal(np, own, is_inverse)) if package is np else _in_program(own, is_inverse)


class _LowerFactorTransform(ParameterFreeTransform):
    """Keep what lies below the diagonal, map the diagonal by softplus, drop the rest.

    NumPyro asks for both ways operation by operation, where an engine starts and where a fit ends: NumPy does them.
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = _LowerFactor()

    def __call__(self, x: Array) -> Array:
        return _mapped(x, False)

    def _inverse(self, y: Array) -> Array:
        return _mapped(y, True)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """Of the diagonal, the only entries that are not kept as they are."""
        return jnp.sum(jax.nn.log_sigmoid(jnp.diagonal(x, axis1=-2, axis2=-1)), axis=-1)


lower_factor = _LowerFactor()
biject_to.register(lower_factor)(lambda constraint: _LowerFactorTransform())  # noqa: ARG005


# --------------------------------------------------------------------------------------
# Steps in the beliefs of additive sites: backward rules that make plain steps of an optimiser fast ones.
#
# The mean takes Newton's step, by blocks and ``W``; ``W`` takes one of subspace iteration, which leads it to the
# leading eigenvectors of what the data say; blocks beside it take natural steps (mathematics.md section 6.2).


LowRank = Structured | BlockLowRank
Blocks = tuple[Array, ...]

# Columns held beside those of W, where it stands alone: its last directions settle by the ratio to an eigenvalue so
# many places further down, however close the next one is.
SPARE = 8
# The most that a natural step takes from a block: with steps up to 0.2 it stays positive definite.
MOST_TAKEN = 2.0
# Components share directions: steps of all at once diverge where ``rho`` times this eigenvalue is above 2.
MOST_SHARED = 8.0


def root_of_precision(precisions: Blocks, W: Array, stacks: Stacks) -> BlockRoot:
    """``V`` with ``V V^T = (D + W W^T)^-1``, where ``D_c`` is ``Q_c - W_c W_c^T`` with eigenvalues of at least 1.

    Where ``W`` has the leading eigenvectors of ``J - I``, this is ``J^-1`` but for what blocks share beyond them.

    Parameters
    ----------
    precisions : tuple of Array (C_s, M_s, M_s)
    W : Array (M, r)
    """
    rows, own = stacks.apart(W), []
    for precision, at in zip(precisions, rows, strict=True):
        values, vectors = jnp.linalg.eigh(precision - matmul(at, jnp.swapaxes(at, -1, -2)))
        scaled = vectors * jax.lax.rsqrt(jnp.maximum(values, 1))[..., None, :]
        own.append(matmul(scaled, jnp.swapaxes(vectors, -1, -2)))
    inner = jnp.concatenate([matmul(*pair).reshape(-1, W.shape[-1]) for pair in zip(own, rows, strict=True)])
    values, vectors = jnp.linalg.eigh(matmul(inner.T, inner))
    size = jnp.sqrt(1 + jnp.maximum(values, 0))
    return BlockRoot(tuple(own), matmul(inner, vectors), 1 / (size * (size + 1)))


def block_newton(shift: Array, precisions: Blocks, W: Array, stacks: Stacks) -> tuple[Array, BlockProbe]:
    """The mean ``Q^-1 shift`` of an additive site and zeros; plain steps ``rho`` on both are steps of Newton.

    ``Q = blockdiag(Q_c)`` becomes ``(1 - rho) Q_c + rho (I + A_c Lambda A_c^T)``, a running mean over batches, and
    ``m <- m + rho (D + W W^T)^-1 (A g - m) / max(1, e / 8)``, where ``e`` is the largest eigenvalue of
    ``(D + W W^T)^-1 (I + A Lambda A^T)`` and ``D`` that of `root_of_precision`: near 1 where both have settled.

    Parameters
    ----------
    shift : Array (M,)
    precisions : tuple of Array (C_s, M_s, M_s)
        In stacks of components of one size.
    W : Array (M, r)
        A constant.
    """

    @jax.custom_vjp
    def found(shift: Array, precisions: Blocks, root: BlockRoot) -> tuple[Array, BlockProbe]:
        inverses = (factorise(one)[1] for one in precisions)
        mean = stacks.together([solved(*pair) for pair in zip(inverses, stacks.apart(shift), strict=True)])
        # Made of the arguments: under ``vmap`` each member then has zeros, and a gradient in them, of its own.
        zero = 0 * shift[0]
        return mean, BlockProbe(zero, zero, jax.tree.map(lambda one: 0 * one, precisions), root)

    def forward(*given: Any) -> tuple[tuple[Array, BlockProbe], tuple[Array, Blocks, BlockRoot]]:
        value = found(*given)
        return value, (value[0], *given[1:])

    def backward(kept: tuple[Array, Blocks, BlockRoot], slopes: tuple[Array, BlockProbe]) -> tuple[object, ...]:
        (mean, precisions, root), (slope, probe) = kept, slopes
        pairs = zip(precisions, probe.blocks, strict=True)
        changes = tuple(probe.weight * one - half - jnp.swapaxes(half, -1, -2) for one, half in pairs)
        step = root.twice(stacks.apart(slope / jnp.maximum(per_weight(probe.top, probe.weight) / MOST_SHARED, 1)))
        parts = zip(precisions, step, changes, stacks.apart(mean), strict=True)
        moved = [einsum("cij,cj->ci", Q, u) + einsum("cij,cj->ci", change, m) for Q, u, change, m in parts]
        return stacks.together(moved), changes, jax.tree.map(jnp.zeros_like, root)

    found.defvjp(forward, backward)
    return found(shift, precisions, root_of_precision(*lax.stop_gradient((precisions, W)), stacks))


@jax.custom_vjp
def subspace(W: Array, belief: BlockLowRank) -> Array:  # noqa: ARG001
    """``W`` itself; its gradient is multiplied by the precision ``S^-1`` of ``belief`` on the way back.

    The gradient of a loss in ``W`` is ``-S (J - S^-1) S W`` with ``J = I + A Lambda A^T``: times ``S^-1``, a plain step
    ``rho`` is ``W <- (1 - rho) W + rho J S W``. That is an iteration of the leading subspace of ``A Lambda A^T``, in
    which ``W^T W`` settles at its eigenvalues where blocks are ``I``.
    """
    return W


def _subspace_backward(belief: BlockLowRank, cotangent: Array) -> tuple[Array, BlockLowRank]:
    return belief.times_precision(cotangent), jax.tree.map(jnp.zeros_like, belief)


subspace.defvjp(lambda W, belief: (W, belief), _subspace_backward)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def leading(W: Array, rank: int) -> tuple[Array, SpareColumns]:
    """``W O`` with orthogonal ``O``: its columns of the ``rank`` largest singular values, the others as spare ones.

    A plain step ``rho`` is ``W <- (1 - rho) W + rho J W (I + W^T W)^-1`` in all columns, as in `subspace`, though the
    bound does not know the spare ones.
    """
    return _leading_forward(W, rank)[0]


def _leading_forward(W: Array, rank: int) -> tuple[tuple[Array, SpareColumns], tuple[Array, Array]]:
    values, turn = jnp.linalg.eigh(matmul(W.T, W))
    columns, spare = matmul(W, turn), W.shape[1] - rank
    held, own = columns[:, :spare], columns[:, spare:]
    divided = held / (1 + jnp.maximum(values[None, :spare], 0))
    # Zeros of the arguments, as in `block_newton`.
    return (own, SpareColumns(0 * held, held, divided)), (own, turn)


def _leading_backward(rank: int, kept: tuple[Array, Array], slopes: tuple[Array, SpareColumns]) -> tuple[Array]:  # noqa: ARG001
    (own, turn), (slope, spare) = kept, slopes
    times_precision = slope + matmul(own, matmul(own.T, slope))
    return (matmul(jnp.concatenate([-spare.zeros, times_precision], axis=1), turn.T),)


leading.defvjp(_leading_forward, _leading_backward)


@jax.custom_vjp
def block_factors(precisions: Blocks, own: Blocks) -> Blocks:  # noqa: ARG001
    """Factors ``P_c`` of precisions ``P_c P_c^T``; gradients come back as ``2 B G B``, ``B = S_cc^-1`` in ``own``.

    A plain step on the precisions is then natural where ``W`` is zero, and leads to the best blocks beside it. It takes
    no more from a block than twice the step times itself: ``W`` may be too large on its way.
    """
    return tuple(cholesky(one) for one in precisions)


def _factors_backward(kept: tuple[Blocks, Blocks], slopes: Blocks) -> tuple[Blocks, Blocks]:
    precisions, own = kept

    def whole(precision: Array, slope: Array, between: Array) -> Array:
        factor, inverse = factorise(precision)
        inner = jax.vjp(lambda one: factorise(one)[0], precision)[1](slope)[0]
        change = matmul(between, matmul(inner + jnp.swapaxes(inner, -1, -2), between))
        values, vectors = jnp.linalg.eigh(matmul(inverse, matmul(change, jnp.swapaxes(inverse, -1, -2))))
        root = matmul(factor, vectors)
        return matmul(root * jnp.minimum(values, MOST_TAKEN)[..., None, :], jnp.swapaxes(root, -1, -2))

    return tuple(map(whole, precisions, slopes, own)), jax.tree.map(jnp.zeros_like, own)


block_factors.defvjp(lambda *given: (block_factors(*given), given), _factors_backward)


def natural_low_rank(
    stacks: Stacks, rank: int, shift: Array, W: Array, curvature: Blocks, blocks: Blocks | None
) -> LowRank:
    """`Structured` of the ``rank`` leading columns of ``W``, or with ``blocks`` `BlockLowRank`, with these rules."""
    mean, probe = block_newton(shift, curvature, W, stacks)
    if blocks is None:
        own, spare = leading(W, rank)
        return Structured(mean, own, replace(probe, spare=spare))
    fixed = lax.stop_gradient(BlockLowRank(mean, Stacked(stacks, tuple(map(cholesky, blocks))), W))
    roots = [factorise(S)[1] for S in fixed.own_covariances()]
    inner = tuple(lax.stop_gradient([matmul(jnp.swapaxes(root, -1, -2), root) for root in roots]))  # S_cc^-1
    factors = Stacked(stacks, block_factors(blocks, inner))
    return BlockLowRank(mean, factors, subspace(W, fixed), None, probe)
