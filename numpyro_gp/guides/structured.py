"""Recipes for additive sites: beliefs over the stacked whitened values of all components (mathematics.md section 6)."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike, over_axes
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.members import Stacks, alike
from numpyro_gp.beliefs.structured import BlockDiagonal, BlockLowRank, Structured
from numpyro_gp.checks import check_count, fail
from numpyro_gp.guides.natural import SPARE, LowRank, lower_factor, natural_low_rank, natural_param, natural_to_mean
from numpyro_gp.guides.recipes import Recipe, identity_factor, member_param, start_mean, start_scale
from numpyro_gp.sites import InducingPrior

# Size of the entries at which W starts. Zero would be a stationary point of every bound (mathematics.md section 6.2).
START = 0.1


def _basis(name: str, prior: InducingPrior) -> AdditiveBasis:
    basis = getattr(prior, "basis", None)
    if not isinstance(basis, AdditiveBasis):
        fail(f"the site {name!r}", "an additive_gp", "a single process", "Use ngp.guides.coupled() there.", TypeError)
    return basis


def block_diagonal(*, natural: bool = False, scale: float = 1.0, mean: ArrayLike | None = None) -> Recipe:
    """Mean field over the components of an additive site, full covariance within each: `BlockDiagonal`.

    Parameters
    ----------
    natural : bool
        Store natural parameters of each component, for `ngp.optim.natural_gradient`.
    scale : float
        Standard deviation of the whitened values at the start; 1 is the prior.
    mean : array (M,), optional
        Whitened mean at the start; zero is the prior.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`, at an additive site.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> recipes = {"f": ngp.guides.block_diagonal(natural=True)}   # for ngp.AutoGP(model, recipes)
    """
    start_scale(scale)
    return partial(_block_diagonal, natural=natural, scale=scale, mean=mean)


def _factors(name: str, prior: InducingPrior, basis: AdditiveBasis, kind: str, scale: float) -> dict[str, Array]:
    """A lower factor for each component, which starts at ``scale * I``."""
    factors = {}
    for component, size in zip(basis.names, basis.sizes, strict=True):
        start = identity_factor((*prior.batch_shape, size), scale, prior.dtype)
        factors[component] = member_param(f"{name}/{component}/{kind}", prior, start, 2, constraint=lower_factor)
    return factors


def _block_diagonal(
    name: str, prior: InducingPrior, *, natural: bool, scale: float, mean: ArrayLike | None
) -> BlockDiagonal:
    basis, start = _basis(name, prior), start_mean(name, prior, mean)
    if not natural:
        center = member_param(f"{name}/mean", prior, start)
        return BlockDiagonal(center, _factors(name, prior, basis, "scale_tril", scale))
    start = start / scale**2
    shifts, precisions = [], []
    for component, at, size in zip(basis.names, basis.slices, basis.sizes, strict=True):
        shifts.append(natural_param(f"{name}/{component}", "shift", start[..., at], 1))
        begin = identity_factor((*prior.batch_shape, size), scale**-2, prior.dtype)
        precisions.append(natural_param(f"{name}/{component}", "precision", begin, 2))
    stacks = Stacks.of(precisions)
    pairs = zip(stacks.stacked(shifts), stacks.stacked(precisions), strict=True)
    means, factors = zip(*[natural_to_mean(*pair) for pair in pairs], strict=True)
    own = dict(zip(basis.names, stacks.unstacked(factors), strict=True))
    return BlockDiagonal(jnp.concatenate(stacks.unstacked(means), axis=-1), own)


def structured(
    rank: int,
    *,
    natural: bool = False,
    mean: ArrayLike | None = None,
) -> Recipe:
    """Couplings between the components of an additive site in few numbers: `Structured`, with precision ``I + W W^T``.

    ``W`` starts at small random numbers.

    Parameters
    ----------
    rank : int
        Number r of columns of W; at ``rank=N`` the exact optimum of a factorising likelihood can be attained.
        `ngp.beliefs.truncate` says from a fit which rank is enough.
    natural : bool
        Parameters for `ngp.optim.natural_gradient`, with steps up to 0.2: the mean takes Newton's step, by a running
        mean of the curvature of the batches within each component, and by ``W``; ``W`` iterates towards the leading
        eigenvectors of ``A diag(lambda) A^T``, with eight columns more than the belief has, which takes the largest.
        Always to be preferred: Adam alone stays far from the optimum for thousands of steps.
    mean : array (M,), optional
        Whitened mean at the start.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`, at an additive site.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> recipes = {"f": ngp.guides.structured(rank=20)}   # for ngp.AutoGP(model, recipes)
    """
    return partial(_low_rank, rank=check_count("rank", rank), natural=natural, mean=mean, scale=None)


def block_low_rank(
    rank: int,
    *,
    natural: bool = False,
    scale: float = 1.0,
    mean: ArrayLike | None = None,
) -> Recipe:
    """Couplings between components beside a full covariance within each: `BlockLowRank`, for an additive site.

    Its precision is ``blockdiag(P_c P_c^T) + W W^T``.

    Parameters
    ----------
    rank : int
        Number r of columns of W.
    natural, mean
        As in `structured`.
    scale : float
        As in `block_diagonal`.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`, at an additive site.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> recipes = {"f": ngp.guides.block_low_rank(2)}   # for ngp.AutoGP(model, recipes)
    """
    start_scale(scale)
    return partial(_low_rank, rank=check_count("rank", rank), natural=natural, scale=scale, mean=mean)


def _random_W(prior: InducingPrior, key: Array, rank: int) -> Array:
    return START * jax.random.normal(key, (*prior.shape(), rank), prior.dtype)


def _low_rank(
    name: str, prior: InducingPrior, rank: int, natural: bool, mean: ArrayLike | None, scale: float | None
) -> LowRank:
    """`Structured`, or with a ``scale`` `BlockLowRank`, whose factors start at its inverse."""
    basis, at = _basis(name, prior), start_mean(name, prior, mean)
    if natural:
        stacks, batch = Stacks(basis.sizes, alike(basis.sizes)), prior.batch_shape

        def blocks(kind: str, size: float) -> tuple[Array, ...]:
            """A matrix for each component, those of one size in one parameter."""
            shapes = [(*batch, len(own), basis.sizes[own[0]]) for own in stacks.members]
            return tuple(
                natural_param(name, f"{kind}{number}_precision", identity_factor(shape, size, prior.dtype), 3)
                for number, shape in enumerate(shapes)
            )

        shift = natural_param(name, "shift", at, 1)
        spare = min(SPARE, basis.size - rank) if scale is None else 0

        def columns(key: Array) -> Array:
            W = _random_W(prior, key, rank)
            return W if spare <= 0 else jnp.concatenate([W, _random_W(prior, jax.random.fold_in(key, 1), spare)], -1)

        W = natural_param(name, "W", columns, 2)
        own = None if scale is None else blocks("own", scale**-2)
        each = over_axes(partial(natural_low_rank, stacks, rank), shift.ndim - 1)
        belief: LowRank = each(shift, W, blocks("mean", 1.0), own)
        return replace(belief, names=basis.names) if isinstance(belief, BlockLowRank) else belief
    center = member_param(f"{name}/mean", prior, at)
    W = member_param(f"{name}/W", prior, lambda key: _random_W(prior, key, rank), 2)
    if scale is None:
        return Structured(center, W)
    return BlockLowRank(center, _factors(name, prior, basis, "precision_tril", 1 / scale), W)
