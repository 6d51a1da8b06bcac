"""What a belief over an additive site says about its components: moments of each, and their covariances.

All follows from the distribution of the whitened values; some beliefs have a cheaper form than its factor.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief, Marginals, Point, above_rounding
from numpyro_gp.beliefs.coupled import MeanField
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.beliefs.structured import BlockLowRank, InBlocks, Structured
from numpyro_gp.checks import fail
from numpyro_gp.linalg import einsum, flipped, matmul


class Change(NamedTuple):
    """How a belief changes the prior covariance of the components at each input.

    ``cov(f_c, f_e) = d_ce (k_c + own_c) + sign * shared_c^T shared_e``, None where components are independent.
    """

    own: Float[Array, "C N"]
    shared: Float[Array, "C R N"] | None = None
    sign: int = 1


def _component_products(
    basis: AdditiveBasis, left: Float[Array, "M R"], features: Float[Array, "M N"]
) -> Float[Array, "C R N"]:
    """``B_c^T A_c`` of each component."""
    stacks = basis.stacks
    pairs = zip(stacks.apart(left), stacks.apart(features), strict=True)
    return stacks.in_order([matmul(flipped(rows), A) for rows, A in pairs])


def _factor(belief: object, basis: AdditiveBasis) -> Float[Array, "M M"]:
    if not isinstance(belief, AbstractBelief):
        required = "a belief over its whitened values or a point"
        cure = "Take one of the recipes for the site: ngp.guides.structured(rank)."
        fail("the belief of an additive site", required, f"a {type(belief).__name__}", cure, TypeError)
    return belief.whitened(basis).scale_tril


def change_of(belief: AbstractBelief | Point, basis: AdditiveBasis, features: Float[Array, "M N"]) -> Change:
    """The `Change` of a belief, from the features of all components."""
    if isinstance(belief, InBlocks):
        belief.check_site(basis)
        change, _, shared = belief.pieces(features)
        return Change(change, shared, -1)
    if isinstance(belief, MeanField):
        return Change(_component_products(basis, (belief.scale**2 - 1)[:, None], features**2)[:, 0])
    if isinstance(belief, Structured):
        shared = _component_products(basis, belief.root().T, features)
        return Change(jnp.zeros((shared.shape[0], shared.shape[2]), belief.dtype), shared, -1)
    prior = -basis.stacks.squares(basis.stacks.apart(features))
    if isinstance(belief, Point):
        return Change(prior)
    return Change(prior, _component_products(basis, _factor(belief, basis), features))


def component_marginals(belief: AbstractBelief | Point, basis: AdditiveBasis, X: Float[Array, "N D"]) -> Marginals:
    """``A_c^T m_c`` and ``var f_c(x_n)`` for each component, both ``(C, N)`` (mathematics.md section 6.1)."""
    features, prior = basis.features(X), basis.diagonals(X)
    change, shared, sign = change_of(belief, basis, features)
    whitened = belief.v if isinstance(belief, Point) else belief.whitened_mean
    if whitened.ndim != 1:
        fail("the value of the site", "one vector of whitened values", f"shape {whitened.shape}", "Map with jax.vmap.")
    mean = _component_products(basis, whitened[:, None], features)[:, 0]
    together = 0.0 if shared is None else sign * jnp.sum(shared**2, axis=1)
    return Marginals(mean, above_rounding(prior + change + together, prior))


def component_covariance(
    belief: AbstractBelief | Point, basis: AdditiveBasis, X: Float[Array, "N D"]
) -> Float[Array, "N C C"]:
    """``cov(f_c(x_n), f_e(x_n))``, ``(N, C, C)`` (mathematics.md section 6.1)."""
    change, shared, sign = change_of(belief, basis, basis.features(X))
    diagonal = (basis.diagonals(X) + change).T
    result = diagonal[:, :, None] * jnp.eye(diagonal.shape[1], dtype=diagonal.dtype)[None]
    return result if shared is None else result + sign * einsum("crn,ern->nce", shared, shared)


def whitened_blocks(belief: AbstractBelief | Point, basis: AdditiveBasis) -> tuple[Array, ...]:
    """Covariance of the whitened values of each component, ``(M_c, M_c)``: the diagonal blocks of ``S``."""
    if isinstance(belief, Point):
        return tuple(jnp.zeros((size, size), belief.v.dtype) for size in basis.sizes)
    stacks = basis.stacks
    if isinstance(belief, BlockLowRank):  # of low rank: no factor of all whitened values
        return tuple(Stacks.of(belief.precision_trils).unstacked(belief.own_covariances()))
    if isinstance(belief, Structured):
        roots = stacks.apart(belief.root().T)
        squares = [jnp.eye(V.shape[-2], dtype=V.dtype)[None] - matmul(V, jnp.swapaxes(V, -1, -2)) for V in roots]
    else:
        squares = [matmul(root, jnp.swapaxes(root, -1, -2)) for root in stacks.apart(_factor(belief, basis))]
    return tuple(stacks.unstacked(squares))
