"""Steps in the beliefs of additive sites: backward rules that make plain steps of an optimiser fast ones.

The mean takes Newton's step within each component; ``W`` takes one of subspace iteration, which leads it to the
leading eigenvectors of what the data say; blocks beside it take natural steps (mathematics.md section 6.2).
"""

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.beliefs.probe import BlockProbe
from numpyro_gp.beliefs.structured import BlockLowRank, Structured
from numpyro_gp.linalg import cholesky, einsum, factorise, matmul

LowRank = Structured | BlockLowRank
Blocks = tuple[Array, ...]

# Steps of W beside those of the rest, where it stands alone: its last directions settle at ratios of eigenvalues.
HASTE = 5.0
# The most that a natural step takes from a block: with steps up to 0.2 it stays positive definite.
MOST_TAKEN = 2.0
# Components share directions: steps of all at once diverge where ``rho`` times this eigenvalue is above 2.
MOST_SHARED = 8.0


def _solved(inverse: Array, values: Array) -> Array:
    return einsum("...ji,...j->...i", inverse, einsum("...ij,...j->...i", inverse, values))


def block_newton(shift: Array, precisions: Blocks, stacks: Stacks) -> tuple[Array, BlockProbe]:
    """The mean ``Q^-1 shift`` of an additive site and zeros; plain steps ``rho`` on both are steps of Newton by blocks.

    ``Q = blockdiag(Q_c)`` becomes ``(1 - rho) Q_c + rho (I + A_c Lambda A_c^T)``, a running mean over batches, and then
    ``m <- m + rho Q^-1 (A g - m) / max(1, e / 8)``, where ``e`` is the largest eigenvalue of
    ``Q^-1 (I + A Lambda A^T)``, at most the number of components where ``Q`` has settled.

    Parameters
    ----------
    shift : Array (M,)
    precisions : tuple of Array (C_s, M_s, M_s)
        In stacks of components of one size.
    """

    @jax.custom_vjp
    def found(shift: Array, precisions: Blocks) -> tuple[Array, BlockProbe]:
        inverses = tuple(factorise(one)[1] for one in precisions)
        mean = stacks.together([_solved(*pair) for pair in zip(inverses, stacks.apart(shift), strict=True)])
        # Made of the arguments: under ``vmap`` each member then has zeros, and a gradient in them, of its own.
        zero = 0 * shift[0]
        return mean, BlockProbe(zero, zero, jax.tree.map(lambda one: 0 * one, precisions), inverses)

    def forward(shift: Array, precisions: Blocks) -> tuple[tuple[Array, BlockProbe], tuple[Array, Blocks]]:
        value = found(shift, precisions)
        return value, (value[0], precisions)

    def backward(kept: tuple[Array, Blocks], slopes: tuple[Array, BlockProbe]) -> tuple[Array, Blocks]:
        (mean, precisions), (slope, probe) = kept, slopes
        changes = tuple(
            probe.weight * one - half - jnp.swapaxes(half, -1, -2)
            for one, half in zip(precisions, probe.blocks, strict=True)
        )
        moved = [einsum("cij,cj->ci", *pair) for pair in zip(changes, stacks.apart(mean), strict=True)]
        return slope / jnp.maximum(probe.top / probe.weight / MOST_SHARED, 1) + stacks.together(moved), changes

    found.defvjp(forward, backward)
    return found(shift, precisions)


@jax.custom_vjp
def subspace(W: Array, belief: LowRank) -> Array:  # noqa: ARG001
    """``W`` itself; its gradient is multiplied by the precision ``S^-1`` of ``belief`` on the way back.

    The gradient of a loss in ``W`` is ``-S (J - S^-1) S W`` with ``J = I + A Lambda A^T``: times ``S^-1``, a plain step
    ``rho`` is ``W <- (1 - rho) W + rho (J - I) W (I + W^T W)^-1`` where blocks are ``I``. That is an iteration of the
    leading subspace of ``A Lambda A^T``, in which ``W^T W`` settles at its eigenvalues.
    """
    return W


def _subspace_forward(W: Array, belief: LowRank) -> tuple[Array, LowRank]:
    return W, belief


def _subspace_backward(belief: LowRank, cotangent: Array) -> tuple[Array, LowRank]:
    haste = HASTE if isinstance(belief, Structured) else 1.0
    return haste * belief.times_precision(cotangent), jax.tree.map(jnp.zeros_like, belief)


subspace.defvjp(_subspace_forward, _subspace_backward)


@jax.custom_vjp
def block_factors(precisions: Blocks, own: Blocks) -> Blocks:  # noqa: ARG001
    """Factors ``P_c`` of precisions ``P_c P_c^T``; gradients come back as ``2 B G B``, ``B = S_cc^-1`` in ``own``.

    A plain step on the precisions is then natural where ``W`` is zero, and leads to the best blocks beside it. It takes
    no more from a block than twice the step times itself: ``W`` may be too large on its way.
    """
    return tuple(cholesky(one) for one in precisions)


def _factors_forward(precisions: Blocks, own: Blocks) -> tuple[Blocks, tuple[Blocks, Blocks]]:
    return block_factors(precisions, own), (precisions, own)


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


block_factors.defvjp(_factors_forward, _factors_backward)


def natural_low_rank(stacks: Stacks, shift: Array, W: Array, curvature: Blocks, blocks: Blocks | None) -> LowRank:
    """`Structured`, or with ``blocks`` `BlockLowRank`, with all of these backward rules."""
    mean, probe = block_newton(shift, curvature, stacks)
    if blocks is None:
        plain: LowRank = lax.stop_gradient(Structured(mean, W))
        return Structured(mean, subspace(W, plain), probe)
    fixed = lax.stop_gradient(BlockLowRank(mean, _in_order(tuple(map(cholesky, blocks)), stacks), W))
    own = tuple(lax.stop_gradient(fixed.own_precisions()))
    factors = _in_order(block_factors(blocks, own), stacks)
    return BlockLowRank(mean, factors, subspace(W, fixed), None, probe)


def _in_order(stacked: Blocks, stacks: Stacks) -> Blocks:
    return tuple(stacks.unstacked(stacked))
