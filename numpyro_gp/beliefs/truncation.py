"""The rank that a belief of low rank needs, by the spectrum of what it holds beyond its blocks."""

from dataclasses import replace
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, over_axes
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.beliefs.structured import BlockLowRank, Blocks, Structured
from numpyro_gp.checks import check_positive, check_type
from numpyro_gp.linalg import inverse_lower, matmul

LowRank = TypeVar("LowRank", Structured, BlockLowRank)


def truncate(belief: LowRank, nats: float = 0.5) -> LowRank:
    """A belief of low rank without the columns that matter least: fit a generous rank, and see which one is enough.

    With the singular values ``s_i`` of ``W`` (of ``P^-1 W`` for `BlockLowRank`) leaving out a direction moves the
    belief by ``(s_i^2 - log(1 + s_i^2)) / 2`` nats of divergence (mathematics.md section 6.3). As many of the smallest
    are left out as lose ``nats`` together, summed over the members of plates; the mean and the blocks stay. Where all
    columns are kept, the rank of the fit may be too small.

    Parameters
    ----------
    belief : Structured or BlockLowRank
        That of a fit, ``guide.beliefs(params)["f"]``.
    nats : float
        The most to lose.

    Returns
    -------
    Structured or BlockLowRank
        Its ``W.shape[-1]`` is the rank: fit again with this number, or go on from ``W``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> belief = ngp.beliefs.Structured(jnp.zeros(3), jnp.diag(jnp.array([9.0, 2.0, 0.1])))
    >>> ngp.beliefs.truncate(belief).W.shape
    (3, 2)
    """
    check_positive("nats", nats)
    cure = 'Pass guide.beliefs(params)["f"].'
    check_type("belief", belief, (Structured, BlockLowRank), "a Structured or a BlockLowRank", cure)
    blocks: Blocks = belief.precision_trils if isinstance(belief, BlockLowRank) else ()
    sizes = Stacks.of(blocks)

    def by_blocks(W: Array, factors: Blocks, invert: bool) -> Array:
        """``P W``, or ``P^-1 W``, with the factors of all components on a diagonal; ``W`` itself without factors."""
        if not factors:
            return W
        stacks = (inverse_lower(P) if invert else P for P in sizes.stacked(factors))
        return sizes.together([matmul(P, rows) for P, rows in zip(stacks, sizes.apart(W), strict=True)])

    def spectrum(W: Array, factors: Blocks) -> tuple[Array, Array]:
        vectors, values, _ = jnp.linalg.svd(by_blocks(W, factors, True), full_matrices=False)
        return by_blocks(vectors * values[None], factors, False), 0.5 * (values**2 - jnp.log1p(values**2))

    columns, losses = over_axes(spectrum, belief.ndim - 1)(belief.W, blocks)
    each = np.asarray(jax.device_get(losses), float).reshape(-1, losses.shape[-1]).sum(0)
    rest = np.cumsum(each[::-1])[::-1]  # lost where this column and all after it are left out
    return replace(belief, W=columns[..., : max(1, int(np.sum(rest > nats)))], probe=None)
