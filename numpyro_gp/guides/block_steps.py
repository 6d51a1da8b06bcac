"""Steps in the beliefs of additive sites: backward rules that make plain steps of an optimiser fast ones.

The mean takes Newton's step, by blocks and ``W``; ``W`` takes one of subspace iteration, which leads it to the
leading eigenvectors of what the data say; blocks beside it take natural steps (mathematics.md section 6.2).
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.block_low_rank import BlockLowRank
from numpyro_gp.beliefs.members import Stacked, Stacks
from numpyro_gp.beliefs.probe import BlockProbe, BlockRoot, SpareColumns, per_weight
from numpyro_gp.beliefs.structured import Structured
from numpyro_gp.guides.coefficient_steps import solved
from numpyro_gp.linalg import cholesky, einsum, factorise, matmul

LowRank = Structured | BlockLowRank
Blocks = tuple[Array, ...]

# Columns held beside those of W, where it stands alone: its last directions settle by the ratio to an eigenvalue so
# many places further down, however close the next one is.
SPARE = 8
# The most that a natural step takes from a block: with steps up to 0.2 it stays positive definite.
MOST_TAKEN = 2.0
# Components share directions: steps of all at once diverge where ``rho`` times this eigenvalue is above 2.
MOST_SHARED = 8.0


def root_of(precisions: Blocks, W: Array, stacks: Stacks) -> BlockRoot:
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
    ``(D + W W^T)^-1 (I + A Lambda A^T)`` and ``D`` that of `root_of`. It is near 1 where ``Q`` and ``W`` have settled.

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
    return found(shift, precisions, root_of(*lax.stop_gradient((precisions, W)), stacks))


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
    inner = tuple(lax.stop_gradient(fixed.own_precisions()))
    factors = Stacked(stacks, block_factors(blocks, inner))
    return BlockLowRank(mean, factors, subspace(W, fixed), None, probe)
