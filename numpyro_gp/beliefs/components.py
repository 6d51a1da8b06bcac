"""What a belief over an additive site says about its components: moments of each, and their covariances.

All follows from the distribution of the whitened values; beliefs with a cheaper form than its factor are
covered by single dispatch, and beliefs that know nothing of components stay as they are.
"""

from functools import singledispatch
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.additive import BlockDiagonal, BlockLowRank, Structured
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief, Marginals, Point, positive
from numpyro_gp.beliefs.coupled import MeanField
from numpyro_gp.checks import fail

__all__ = ["component_covariance", "component_marginals", "whitened_blocks"]


class Change(NamedTuple):
    """How a belief changes the prior covariance of the components at each input.

    ``cov(f_c, f_e) = d_ce (k_c + own_c) + sign * shared_c^T shared_e``, None where components are independent.
    """

    own: Float[Array, "C N"]
    shared: Float[Array, "C R N"] | None = None
    sign: int = 1


Blocks = tuple[Array, ...]


def _squares(blocks: Blocks) -> Float[Array, "C N"]:
    return jnp.stack([jnp.sum(block**2, axis=0) for block in blocks])


def _factor(belief: object, basis: AdditiveBasis) -> Float[Array, "M M"]:
    if not isinstance(belief, AbstractBelief):
        required = "a belief over its whitened values or a point"
        cure = "Take one of the recipes for the site: ngp.guides.structured(rank)."
        fail("the belief of an additive site", required, f"a {type(belief).__name__}", cure, TypeError)
    return belief.whitened(basis).scale_tril


@singledispatch
def change_of(belief: AbstractBelief | Point, basis: AdditiveBasis, blocks: Blocks) -> Change:
    """The `Change` of a belief, from the features of each component."""
    pairs, factor = zip(basis.slices, blocks, strict=True), _factor(belief, basis)
    return Change(-_squares(blocks), jnp.stack([factor[at].T @ block for at, block in pairs]))


@change_of.register
def _(belief: Point, basis: AdditiveBasis, blocks: Blocks) -> Change:  # noqa: ARG001
    return Change(-_squares(blocks))


@change_of.register
def _(belief: MeanField, basis: AdditiveBasis, blocks: Blocks) -> Change:
    pairs = zip(basis.slices, blocks, strict=True)
    return Change(jnp.stack([(belief.scale[at] ** 2 - 1) @ block**2 for at, block in pairs]))


@change_of.register
def _(belief: BlockDiagonal, basis: AdditiveBasis, blocks: Blocks) -> Change:
    belief.check_site(basis)
    return Change(belief.change(blocks))


@change_of.register
def _(belief: Structured, basis: AdditiveBasis, blocks: Blocks) -> Change:
    root = belief.root()
    shared = jnp.stack([root[:, at] @ block for at, block in zip(basis.slices, blocks, strict=True)])
    return Change(jnp.zeros((len(blocks), blocks[0].shape[1]), belief.dtype), shared, -1)


@change_of.register
def _(belief: BlockLowRank, basis: AdditiveBasis, blocks: Blocks) -> Change:
    belief.check_site(basis)
    own, _, shared = belief.pieces(blocks)
    return Change(own, shared, -1)


def _mean(belief: AbstractBelief | Point, basis: AdditiveBasis, blocks: Blocks) -> Float[Array, "C N"]:
    whitened = belief.v if isinstance(belief, Point) else belief.whitened_mean
    if whitened.ndim != 1:
        fail("the value of the site", "one vector of whitened values", f"shape {whitened.shape}", "Use jax.vmap.")
    return jnp.stack([whitened[at] @ block for at, block in zip(basis.slices, blocks, strict=True)])


def component_marginals(belief: AbstractBelief | Point, basis: AdditiveBasis, X: Float[Array, "N D"]) -> Marginals:
    """``A_c^T m_c`` and ``var f_c(x_n)`` for each component, both ``(C, N)`` (mathematics.md section 6.1)."""
    blocks, prior = basis.blocks(X), basis.diagonals(X)
    own, shared, sign = change_of(belief, basis, blocks)
    together = 0.0 if shared is None else sign * jnp.sum(shared**2, axis=1)
    return Marginals(_mean(belief, basis, blocks), positive(prior + own + together, prior))


def component_covariance(
    belief: AbstractBelief | Point, basis: AdditiveBasis, X: Float[Array, "N D"]
) -> Float[Array, "N C C"]:
    """``cov(f_c(x_n), f_e(x_n))``, ``(N, C, C)`` (mathematics.md section 6.1)."""
    blocks = basis.blocks(X)
    own, shared, sign = change_of(belief, basis, blocks)
    diagonal = (basis.diagonals(X) + own).T
    eye = jnp.eye(len(blocks), dtype=diagonal.dtype)[None]
    result = diagonal[:, :, None] * eye
    return result if shared is None else result + sign * jnp.einsum("crn,ern->nce", shared, shared)


def whitened_blocks(belief: AbstractBelief | Point, basis: AdditiveBasis) -> Blocks:
    """Covariance of the whitened values of each component, ``(M_c, M_c)``: the diagonal blocks of ``S``."""
    if isinstance(belief, Point):
        return tuple(jnp.zeros((size, size), belief.v.dtype) for size in basis.sizes)
    factor = _factor(belief, basis)
    return tuple(factor[at] @ factor[at].T for at in basis.slices)
