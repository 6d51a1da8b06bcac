"""Beliefs over the stacked whitened values of an additive process (mathematics.md section 6).

`Coupled` is the full posterior of such a site; here are the three that never form an ``M x M`` matrix.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, Converted, Shape, over_axes, store, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals, above_rounding
from numpyro_gp.beliefs.basis import AbstractBasis, Whitened, covariance_kl
from numpyro_gp.beliefs.coupled import check_mean
from numpyro_gp.beliefs.curvature_taps import BlockProbe
from numpyro_gp.beliefs.gaussian_data import ridge_factor
from numpyro_gp.beliefs.members import Stacked, Stacks
from numpyro_gp.checks import check_positive, check_shape, check_triangle, check_type, fail
from numpyro_gp.linalg import factorise, flipped, half_log_det, inverse_factor, inverse_lower, matmul

# --------------------------------------------------------------------------------------
# Factors of components, as beliefs of additive sites hold them: their checks, and sums over them.


DiagonalBlocks = tuple[Array, ...] | Stacked
# What a mean of an additive belief must be, and the cure.
OF_ALL = "of shape (M,), whitened values of all components", "Stack them in component order."
BlocksField = Converted[DiagonalBlocks, Mapping[str, ArrayLike] | Sequence[ArrayLike]]


def stacked_rows(stacks: Sequence[Array]) -> Float[Array, "R N"]:
    """Rows of stacks ``(C_s, M_s, N)`` one after the other, for what does not depend on their order."""
    return jnp.concatenate([stack.reshape(-1, stack.shape[-1]) for stack in stacks])


def check_low_rank(W: ArrayLike, mean: Array) -> Array:
    """The part of low rank ``W (M, r)``."""
    meaning, cure = "rows as mean, a column for each rank", "Pass W of shape (M, rank)."
    array = check_shape("W", W, (*mean.shape, None), meaning, cure)
    if array.shape[-1] < 1:
        fail("W", "of rank at least 1", f"shape {array.shape}", "Use BlockDiagonal for a belief without W.")
    return array


def half_of(W: Float[Array, "M r"]) -> tuple[Float[Array, "r r"], Float[Array, "r r"]]:
    """``L_H = chol(I + W^T W)`` and ``L_H^-1``."""
    return factorise(jnp.eye(W.shape[1], dtype=W.dtype) + matmul(W.T, W))


class LowRankBelief(AbstractBelief):
    """A belief whose precision is ``P P^T + W W^T``."""

    mean: ArrayField
    W: ArrayField

    def divided(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        """``P^-1 X``, where ``P`` is no identity."""
        return rows

    def divided_back(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        """``P^-T X``, where ``P`` is no identity."""
        return rows

    def draw_whitened(self, key: Array, sample_shape: Shape = (), basis: AbstractBasis | None = None) -> Array:
        """Draws ``m + S (P e_1 + W e_2)`` of the whitened values, ``P e_1 + W e_2`` being of covariance ``S^-1``.

        With ``B = P^-1 W`` and ``H = I + B^T B`` it is ``m + P^-T (e_1 + B H^-1 (e_2 - B^T e_1))``: precise data make
        ``W`` large, and a product of it with ``S``, which they make small, would have no right digit in float32.
        """
        if self.ndim > 1:
            return super().draw_whitened(key, sample_shape, basis)
        key_own, key_shared = jax.random.split(key)
        noise = jax.random.normal(key_own, sample_shape + self.W.shape[:1], self.W.dtype)
        shared = jax.random.normal(key_shared, sample_shape + self.W.shape[1:], self.W.dtype)
        B = self.divided(self.W)
        inverse = half_of(B)[1]
        scaled = matmul(matmul(shared.reshape(-1, B.shape[1]), inverse.T), inverse)  # rows e_2^T H^-1
        columns = noise.reshape(-1, B.shape[0]).T
        root = matmul(inverse, B.T)  # L_H^-1 B^T: rows of length below one
        drawn = self.divided_back(columns - matmul(root.T, matmul(root, columns)) + matmul(B, scaled.T))
        return self.mean[(None,) * len(sample_shape)] + drawn.T.reshape(noise.shape)


class InBlocks(AbstractBelief):
    """A belief with a factor for each component, in the field ``factors``, and perhaps a part of low rank."""

    factors: ClassVar[str]
    names: Any
    probe: BlockProbe | None = None

    def __post_init__(self) -> None:
        mean, blocks, names = check_mean("mean", self.mean, *OF_ALL), self.blocks, self.names
        if not isinstance(blocks, Stacked):  # a tuple in component order, or a dictionary, which has the names
            labelled = blocks.items() if isinstance(blocks, Mapping) else enumerate(blocks)
            names, axes = tuple(blocks) if isinstance(blocks, Mapping) else names, (*mean.shape[:-1], None)
            blocks = tuple(check_triangle(f"{self.factors}[{at!r}]", L, axes, positive=True) for at, L in labelled)
            sizes = [block.shape[-1] for block in blocks]
            if sum(sizes) != mean.shape[-1]:
                cure = "Pass one factor for each component, of the size of its inducing inputs."
                fail(self.factors, f"of sizes that add up to {mean.shape[-1]}, as mean has", f"{sizes}", cure)
        store(self, mean=mean, names=names, **{self.factors: blocks})

    @property
    def blocks(self) -> DiagonalBlocks:
        """The factors of the components."""
        return getattr(self, self.factors)

    def check_site(self, basis: AbstractBasis) -> AdditiveBasis:
        """Return the site's basis, if its components are those of this belief."""
        if not isinstance(basis, AdditiveBasis):
            fail("the site", "an additive_gp", "a single gp", "Use ngp.beliefs.Coupled or Structured there.", TypeError)
        sizes, names = Stacks.of(self.blocks).sizes, self.names
        if sizes != basis.sizes or (names is not None and names != basis.names):
            wanted = dict(zip(basis.names, basis.sizes, strict=True))
            got = sizes if names is None else dict(zip(names, sizes, strict=True))
            cure = "Build it with the names of kernels: {name: jnp.eye(len(inducing[name])) for name in kernels}."
            fail(self.factors, f"one for each component of the site, in its order: {wanted}", got, cure)
        return basis

    @abc.abstractmethod
    def pieces(
        self, features: Float[Array, "M N"]
    ) -> tuple[Float[Array, "C N"], Float[Array, "M N"], Float[Array, "C r N"] | None]:
        """``|B_cn|^2 - |A_cn|^2``, rows of all ``B_c``, and what the part of low rank explains, ``E_c``."""

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``k_n - sum |A_c|^2 + sum |B_c|^2 - |E_n|^2``."""
        site = self.check_site(basis)
        features, prior = site.features(X), site.diagonal(X)
        change, _, explained = self.pieces(features)
        variance = prior + jnp.sum(change, axis=0)
        if explained is not None:
            variance = variance - jnp.sum(jnp.sum(explained, axis=0) ** 2, axis=0)
        variance = above_rounding(variance, prior)
        if self.probe is not None:
            variance = self.probe.seen(features, Stacks.of_sizes(site.sizes).apart(features), variance)
        return Marginals(matmul(self.mean, features), variance)

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        features = self.check_site(basis).features(X)
        _, rooted, explained = self.pieces(features)
        covariance = basis.matrix(X) - matmul(features.T, features) + matmul(rooted.T, rooted)
        if explained is not None:
            total = jnp.sum(explained, axis=0)
            covariance = covariance - matmul(total.T, total)
        return Joint(matmul(self.mean, features), covariance)


@value_type(static=("names",))
class BlockDiagonal(InBlocks):
    """Mean field over the components of an additive site: ``q(v) = prod_c N(m_c, C_c C_c^T)``, full within each.

    Its component bands are too narrow wherever components compete for the same data: `Structured` has the couplings.

    Parameters
    ----------
    mean : Array (M,)
        Whitened means, stacked in component order.
    scale_trils : dict or tuple of Array (M_c, M_c)
        Whitened lower factor of each component; a dictionary has the names in the order of the site.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.beliefs.BlockDiagonal(jnp.zeros(5), {"a": jnp.eye(2), "b": jnp.eye(3)}).shape
    (5,)
    """

    mean: ArrayField
    scale_trils: BlocksField
    names: tuple[str, ...] | None = None
    factors = "scale_trils"

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, over_axes(block_diag, self.ndim - 1)(*self.scale_trils))

    def pieces(self, features: Float[Array, "M N"]) -> tuple[Float[Array, "C N"], Float[Array, "M N"], None]:
        """With ``B_c = C_c^T A_c``."""
        stacks = Stacks.of(self.scale_trils)
        blocks = stacks.apart(features)
        pairs = zip(stacks.stacked(self.scale_trils), blocks, strict=True)
        rooted = [matmul(flipped(factor), A) for factor, A in pairs]
        return stacks.squares(rooted) - stacks.squares(blocks), stacked_rows(rooted), None

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``|m|^2/2 + sum_c kl(C_c)``."""
        self.check_site(basis)
        factors = Stacks.of(self.scale_trils).stacked(self.scale_trils)
        return 0.5 * jnp.sum(self.mean**2) + sum(covariance_kl(factor) for factor in factors)


@value_type()
class Structured(LowRankBelief):
    """A belief of an additive site that keeps couplings between components: ``q(v) = N(m, (I + W W^T)^-1)``.

    With ``W = A diag(lambda)^(1/2)`` and ``r = N`` it is the exact optimum; couplings between components
    are kept at ``O(M r)`` parameters. ``W = 0`` is a stationary point: start elsewhere.

    Parameters
    ----------
    mean : Array (M,)
    W : Array (M, r)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> belief = ngp.beliefs.Structured(jnp.zeros(3), jnp.ones((3, 1)))
    >>> [round(float(s) ** 2, 3) for s in belief.whitened_moments()[1]]
    [0.75, 0.75, 0.75]
    """

    mean: ArrayField
    W: ArrayField
    probe: BlockProbe | None = None

    def __post_init__(self) -> None:
        mean = check_mean("mean", self.mean, *OF_ALL)
        store(self, mean=mean, W=check_low_rank(self.W, mean))

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, over_axes(ridge_factor, self.ndim - 1)(self.W))

    def root(self) -> Float[Array, "r M"]:
        """``U = L_H^-1 W^T``, with ``S = I - U^T U``."""
        return matmul(half_of(self.W)[1], self.W.T)

    def _check_one(self) -> None:
        """Refuse outputs: methods see members of plates one by one, and outputs that share a kernel together."""
        if self.ndim > 1:
            cure = "Use ngp.beliefs.Coupled for a gp with outputs=."
            fail("mean of Structured", "of shape (M,) at a site without outputs", f"shape {self.mean.shape}", cure)

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``k_n - |E_n|^2`` with ``E = L_H^-1 W^T A``: nothing cancels next to inducing points."""
        self._check_one()
        features, prior = basis.features(X), basis.diagonal(X)
        explained = jnp.sum(matmul(self.root(), features) ** 2, axis=0)
        variance = above_rounding(prior - explained, prior)
        if self.probe is not None:
            assert isinstance(basis, AdditiveBasis)
            variance = self.probe.seen(features, Stacks.of_sizes(basis.sizes).apart(features), variance)
        return Marginals(matmul(self.mean, features), variance)

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """``A^T m`` and ``k(X, X) - E^T E``."""
        self._check_one()
        features = basis.features(X)
        explained = matmul(self.root(), features)
        return Joint(matmul(self.mean, features), basis.matrix(X) - matmul(explained.T, explained))

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:  # noqa: ARG002
        """``(|m|^2 + |L_H^-1|_F^2 - r)/2 + sum_i log L_H,ii``."""
        self._check_one()
        factor, inverse = half_of(self.W)
        value = 0.5 * (jnp.sum(self.mean**2) + jnp.sum(inverse**2) - factor.shape[0]) + half_log_det(factor)
        return value if self.probe is None else value + self.probe.kl()


# --------------------------------------------------------------------------------------
# A belief of additive models: a covariance for each component, and one of low rank between them.


@value_type(static=("names",))
class BlockLowRank(InBlocks, LowRankBelief):
    """The richest belief of an additive site in few numbers: ``q(v) = N(m, (blockdiag(P_c P_c^T) + W W^T)^-1)``.

    ``W = 0`` is mean field over components, ``P_c = I`` is `Structured`: no worse than either at the same rank
    (mathematics.md section 6.3).

    Parameters
    ----------
    mean : Array (M,)
    precision_trils : dict or tuple of Array (M_c, M_c)
        Lower factor ``P_c`` of each component's own precision, names or order as those of the site.
    W : Array (M, r)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.beliefs.BlockLowRank(jnp.zeros(5), {"a": jnp.eye(2), "b": jnp.eye(3)}, jnp.ones((5, 1))).shape
    (5,)
    """

    mean: ArrayField
    precision_trils: BlocksField
    W: ArrayField
    names: tuple[str, ...] | None = None
    probe: BlockProbe | None = None
    factors = "precision_trils"

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, W=check_low_rank(self.W, self.mean))

    def roots(self) -> tuple[list[Array], list[Array], Array]:
        """``P_c^-1``, ``V_c = U_c P_c^-1`` ``(r, M_c)`` and ``L_H``: ``S_ce = d_ce P_c^-T P_c^-1 - V_c^T V_e``.

        The first two in stacks of components of one size.
        """
        stacks = Stacks.of(self.precision_trils)
        inverses = [inverse_lower(P) for P in stacks.stacked(self.precision_trils)]
        scaled = [matmul(inverse, rows) for inverse, rows in zip(inverses, stacks.apart(self.W), strict=True)]
        factor, inner = half_of(stacked_rows(scaled))
        pairs = zip(scaled, inverses, strict=True)
        shared = [matmul(matmul(inner, jnp.swapaxes(block, -1, -2)), inverse) for block, inverse in pairs]
        return inverses, shared, factor

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        def factor(W: Array, blocks: DiagonalBlocks) -> Array:
            stacks = Stacks.of(blocks)
            squares = [matmul(P, jnp.swapaxes(P, -1, -2)) for P in stacks.stacked(blocks)]
            return inverse_factor(stacks.diagonal(squares) + matmul(W, W.T))

        return Whitened(self.mean, over_axes(factor, self.ndim - 1)(self.W, self.precision_trils))

    def times_precision(self, x: Float[Array, "M K"]) -> Float[Array, "M K"]:
        """``S^-1 X``."""
        product = self._of_each(lambda P, rows: matmul(P, matmul(jnp.swapaxes(P, -1, -2), rows)), x)
        return product + matmul(self.W, matmul(self.W.T, x))

    def _of_each(self, function: Callable[[Array, Array], Array], x: Array) -> Array:
        """A function of the factors ``P_c`` of components of one size, and of their rows of ``X (M, K)``."""
        stacks = Stacks.of(self.precision_trils)
        return stacks.together(list(map(function, stacks.stacked(self.precision_trils), stacks.apart(x))))

    def own_covariances(self) -> list[Array]:
        """``S_cc`` of each component, in stacks of components of one size."""
        inverses, shared, _ = self.roots()
        pairs = zip(inverses, shared, strict=True)
        return [matmul(jnp.swapaxes(R, -1, -2), R) - matmul(jnp.swapaxes(V, -1, -2), V) for R, V in pairs]

    def divided(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        return self._of_each(lambda P, x: matmul(inverse_lower(P), x), rows)

    def divided_back(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        return self._of_each(lambda P, x: matmul(jnp.swapaxes(inverse_lower(P), -1, -2), x), rows)

    def pieces(
        self, features: Float[Array, "M N"]
    ) -> tuple[Float[Array, "C N"], Float[Array, "M N"], Float[Array, "C r N"]]:
        """With ``B_c = P_c^-1 A_c`` and ``E_c = V_c A_c``."""
        stacks, (inverses, shared, _) = Stacks.of(self.precision_trils), self.roots()
        blocks = stacks.apart(features)
        rooted = [matmul(inverse, A) for inverse, A in zip(inverses, blocks, strict=True)]
        explained = stacks.in_order([matmul(root, A) for root, A in zip(shared, blocks, strict=True)])
        return stacks.squares(rooted) - stacks.squares(blocks), stacked_rows(rooted), explained

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``(|m|^2 + tr S - M + log |Lambda|)/2``."""
        self.check_site(basis)
        inverses, shared, factor = self.roots()
        trace, taken = (jnp.sum(jnp.stack([jnp.sum(x**2) for x in stacks])) for stacks in (inverses, shared))
        # log |P_c^-1| is minus log |P_c|.
        half_log = half_log_det(factor) - sum(jnp.sum(half_log_det(inverse)) for inverse in inverses)
        value = 0.5 * (jnp.sum(self.mean**2) + (trace - taken) - self.mean.shape[0]) + half_log
        return value if self.probe is None else value + self.probe.kl()


# --------------------------------------------------------------------------------------
# The rank that a belief of low rank needs, by the spectrum of what it holds beyond its blocks.

AnyLowRank = TypeVar("AnyLowRank", Structured, BlockLowRank)


def truncate(belief: AnyLowRank, nats: float = 0.5) -> AnyLowRank:
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
    blocks: DiagonalBlocks = belief.precision_trils if isinstance(belief, BlockLowRank) else ()
    sizes = Stacks.of(blocks)

    def by_blocks(W: Array, factors: DiagonalBlocks, invert: bool) -> Array:
        """``P W``, or ``P^-1 W``, with the factors of all components on a diagonal; ``W`` itself without factors."""
        if not factors:
            return W
        stacks = (inverse_lower(P) if invert else P for P in sizes.stacked(factors))
        return sizes.together([matmul(P, rows) for P, rows in zip(stacks, sizes.apart(W), strict=True)])

    def spectrum(W: Array, factors: DiagonalBlocks) -> tuple[Array, Array]:
        vectors, values, _ = jnp.linalg.svd(by_blocks(W, factors, True), full_matrices=False)
        return by_blocks(vectors * values[None], factors, False), 0.5 * (values**2 - jnp.log1p(values**2))

    columns, losses = over_axes(spectrum, belief.ndim - 1)(belief.W, blocks)
    each = np.asarray(jax.device_get(losses), float).reshape(-1, losses.shape[-1]).sum(0)
    rest = np.cumsum(each[::-1])[::-1]  # lost where this column and all after it are left out
    return replace(belief, W=columns[..., : max(1, int(np.sum(rest > nats)))], probe=None)
