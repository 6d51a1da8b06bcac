"""Beliefs over the stacked whitened values of an additive process (mathematics.md section 6).

`Coupled` is the full posterior of such a site; here are the three that never form an ``M x M`` matrix.
"""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, Converted, Shape, over_axes, store, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals, above_rounding
from numpyro_gp.beliefs.basis import AbstractBasis, Whitened, covariance_kl
from numpyro_gp.beliefs.curvature_taps import BlockProbe
from numpyro_gp.beliefs.gaussian_data import ridge_factor
from numpyro_gp.beliefs.members import Stacked, Stacks
from numpyro_gp.checks import check_shape, check_triangle, fail
from numpyro_gp.linalg import factorise, flipped, half_log_det, inverse_factor, inverse_lower, matmul

# --------------------------------------------------------------------------------------
# Factors of components, as beliefs of additive sites hold them: their checks, and sums over them.


Blocks = tuple[Array, ...] | Stacked
BlocksField = Converted[Blocks, Mapping[str, ArrayLike] | Sequence[ArrayLike]]


def check_mean_of_one(mean: ArrayLike) -> Array:
    """Whitened means ``(M,)``, with the axes of plates on their left."""
    axes = (None,) * max(1, jnp.ndim(mean))
    return check_shape("mean", mean, axes, "whitened values of all components", "Stack them in component order.")


def check_factors(argument: str, value: object, mean: Array) -> tuple[Blocks, tuple[str, ...] | None]:
    """Factors as a tuple in component order, and the names where a dictionary gave them."""
    if isinstance(value, Stacked):
        return value, None
    if not isinstance(value, (Mapping, tuple, list)) or not value:
        cure = "Pass {name: jnp.eye(M)} with an entry for each component."
        fail(argument, "a dictionary or a tuple with one factor for each component", f"{value!r:.60}", cure, TypeError)
    names = tuple(value) if isinstance(value, Mapping) else None
    blocks = []
    for number, block in enumerate(value.values() if isinstance(value, Mapping) else value):
        label = f"{argument}[{names[number] if names else number!r}]"
        blocks.append(check_triangle(label, block, (*mean.shape[:-1], None), positive=True))
    total = sum(block.shape[-1] for block in blocks)
    if total != mean.shape[-1]:
        sizes = [block.shape[-1] for block in blocks]
        cure = "Pass one factor for each component, of the size of its inducing inputs."
        fail(argument, f"of sizes that add up to {mean.shape[-1]}, as mean has", f"{sizes}", cure)
    return tuple(blocks), names


def check_components_of(
    argument: str, blocks: Blocks, names: tuple[str, ...] | None, basis: AbstractBasis
) -> AdditiveBasis:
    """Refuse a site whose components are not those of the belief."""
    if not isinstance(basis, AdditiveBasis):
        fail("the site", "an additive_gp", "a single gp", "Use ngp.beliefs.Coupled or Structured there.", TypeError)
    sizes = Stacks.of(blocks).sizes
    if sizes != basis.sizes or (names is not None and names != basis.names):
        wanted = dict(zip(basis.names, basis.sizes, strict=True))
        got = sizes if names is None else dict(zip(names, sizes, strict=True))
        cure = "Build it with the names of kernels: {name: jnp.eye(len(inducing[name])) for name in kernels}."
        fail(argument, f"one for each component of the site, in its order: {wanted}", got, cure)
    return basis


def sum_of_squares(stacks: Sequence[Array]) -> Float[Array, ""]:
    """Of all numbers in stacks."""
    return jnp.sum(jnp.stack([jnp.sum(stack**2) for stack in stacks]))


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


def probed(
    probe: BlockProbe | None, basis: AbstractBasis, features: Float[Array, "M N"], variance: Float[Array, " N"]
) -> Float[Array, " N"]:
    """Variances whose gradient a probe reads, where there is one."""
    if probe is None:
        return variance
    assert isinstance(basis, AdditiveBasis)
    return probe.seen(features, Stacks.of_sizes(basis.sizes).apart(features), variance)


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
        own = jax.random.normal(key_own, sample_shape + self.W.shape[:1], self.W.dtype)
        shared = jax.random.normal(key_shared, sample_shape + self.W.shape[1:], self.W.dtype)
        B = self.divided(self.W)
        inverse = half_of(B)[1]
        scaled = matmul(matmul(shared.reshape(-1, B.shape[1]), inverse.T), inverse)  # rows e_2^T H^-1
        columns = own.reshape(-1, B.shape[0]).T
        root = matmul(inverse, B.T)  # L_H^-1 B^T: rows of length below one
        drawn = self.divided_back(columns - matmul(root.T, matmul(root, columns)) + matmul(B, scaled.T))
        return self.mean[(None,) * len(sample_shape)] + drawn.T.reshape(own.shape)


@value_type(static=("names",))
class BlockDiagonal(AbstractBelief):
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

    def __post_init__(self) -> None:
        mean = check_mean_of_one(self.mean)
        blocks, names = check_factors("scale_trils", self.scale_trils, mean)
        store(self, mean=mean, scale_trils=blocks, names=self.names if names is None else names)

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, over_axes(block_diag, self.ndim - 1)(*self.scale_trils))

    def check_site(self, basis: AbstractBasis) -> AdditiveBasis:
        """The site's basis, if its components are those of this belief."""
        return check_components_of("scale_trils", self.scale_trils, self.names, basis)

    def rooted(self, features: Float[Array, "M N"]) -> list[Array]:
        """``C_c^T A_c``, in stacks of components of one size."""
        stacks = Stacks.of(self.scale_trils)
        pairs = zip(stacks.stacked(self.scale_trils), stacks.apart(features), strict=True)
        return [matmul(flipped(factor), A) for factor, A in pairs]

    def change(self, features: Float[Array, "M N"]) -> Float[Array, "C N"]:
        """``|C_c^T A_cn|^2 - |A_cn|^2`` of each component."""
        stacks = Stacks.of(self.scale_trils)
        return stacks.squares(self.rooted(features)) - stacks.squares(stacks.apart(features))

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``sum_c (k_c - |A_c|^2 + |C_c^T A_c|^2)``."""
        features, prior = self.check_site(basis).features(X), basis.diagonal(X)
        variance = prior + jnp.sum(self.change(features), axis=0)
        return Marginals(matmul(self.mean, features), above_rounding(variance, prior))

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        features = self.check_site(basis).features(X)
        rooted = stacked_rows(self.rooted(features))
        covariance = basis.matrix(X) - matmul(features.T, features) + matmul(rooted.T, rooted)
        return Joint(matmul(self.mean, features), covariance)

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
    >>> [round(float(s) ** 2, 3) for s in belief.whitened_scale]
    [0.75, 0.75, 0.75]
    """

    mean: ArrayField
    W: ArrayField
    probe: BlockProbe | None = None

    def __post_init__(self) -> None:
        mean = check_mean_of_one(self.mean)
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
        variance = probed(self.probe, basis, features, above_rounding(prior - explained, prior))
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
class BlockLowRank(LowRankBelief):
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

    def __post_init__(self) -> None:
        mean = check_mean_of_one(self.mean)
        blocks, names = check_factors("precision_trils", self.precision_trils, mean)
        W = check_low_rank(self.W, mean)
        store(self, mean=mean, precision_trils=blocks, W=W, names=self.names if names is None else names)

    def check_site(self, basis: AbstractBasis) -> AdditiveBasis:
        """The site's basis, if its components are those of this belief."""
        return check_components_of("precision_trils", self.precision_trils, self.names, basis)

    def roots(self) -> tuple[list[Array], list[Array], Array]:
        """``P_c^-1``, ``V_c = U_c P_c^-1`` ``(r, M_c)`` and ``L_H``: ``S_ce = d_ce P_c^-T P_c^-1 - V_c^T V_e``.

        The first two in stacks of components of one size.
        """
        stacks = Stacks.of(self.precision_trils)
        inverses = [inverse_lower(P) for P in stacks.stacked(self.precision_trils)]
        scaled = [matmul(inverse, rows) for inverse, rows in zip(inverses, stacks.apart(self.W), strict=True)]
        factor, inner = half_of(stacked_rows(scaled))
        pairs = zip(scaled, inverses, strict=True)
        shared = [matmul(matmul(inner, jnp.swapaxes(one, -1, -2)), inverse) for one, inverse in pairs]
        return inverses, shared, factor

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        def factor(W: Array, blocks: Blocks) -> Array:
            stacks = Stacks.of(blocks)
            own = [matmul(P, jnp.swapaxes(P, -1, -2)) for P in stacks.stacked(blocks)]
            return inverse_factor(stacks.diagonal(own) + matmul(W, W.T))

        return Whitened(self.mean, over_axes(factor, self.ndim - 1)(self.W, self.precision_trils))

    def times_precision(self, x: Float[Array, "M K"]) -> Float[Array, "M K"]:
        """``S^-1 X``."""
        own = self._of_each(lambda P, rows: matmul(P, matmul(jnp.swapaxes(P, -1, -2), rows)), x)
        return own + matmul(self.W, matmul(self.W.T, x))

    def _of_each(self, function: Callable[[Array, Array], Array], x: Array) -> Array:
        """A function of the factors ``P_c`` of components of one size, and of their rows of ``X (M, K)``."""
        stacks = Stacks.of(self.precision_trils)
        return stacks.together(list(map(function, stacks.stacked(self.precision_trils), stacks.apart(x))))

    def own_covariances(self) -> list[Array]:
        """``S_cc`` of each component, in stacks of components of one size."""
        inverses, shared, _ = self.roots()
        pairs = zip(inverses, shared, strict=True)
        return [matmul(jnp.swapaxes(one, -1, -2), one) - matmul(jnp.swapaxes(V, -1, -2), V) for one, V in pairs]

    def own_precisions(self) -> list[Array]:
        """``S_cc^-1`` of each component, in stacks of components of one size."""
        roots = [factorise(S)[1] for S in self.own_covariances()]
        return [matmul(jnp.swapaxes(root, -1, -2), root) for root in roots]

    def divided(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        return self._of_each(lambda P, own: matmul(inverse_lower(P), own), rows)

    def divided_back(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        return self._of_each(lambda P, own: matmul(jnp.swapaxes(inverse_lower(P), -1, -2), own), rows)

    def pieces(
        self, features: Float[Array, "M N"]
    ) -> tuple[Float[Array, "C N"], Float[Array, "M N"], Float[Array, "C r N"]]:
        """``|B_cn|^2 - |A_cn|^2``, rows of all ``B_c = P_c^-1 A_c``, and ``E_c = V_c A_c``."""
        stacks, (inverses, shared, _) = Stacks.of(self.precision_trils), self.roots()
        blocks = stacks.apart(features)
        own = [matmul(inverse, A) for inverse, A in zip(inverses, blocks, strict=True)]
        explained = stacks.in_order([matmul(one, A) for one, A in zip(shared, blocks, strict=True)])
        return stacks.squares(own) - stacks.squares(blocks), stacked_rows(own), explained

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``k_n - sum |A_c|^2 + sum |B_c|^2 - |E_n|^2``."""
        features, prior = self.check_site(basis).features(X), basis.diagonal(X)
        change, _, explained = self.pieces(features)
        variance = prior + jnp.sum(change, axis=0) - jnp.sum(jnp.sum(explained, axis=0) ** 2, axis=0)
        variance = probed(self.probe, basis, features, above_rounding(variance, prior))
        return Marginals(matmul(self.mean, features), variance)

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        features = self.check_site(basis).features(X)
        _, rooted, explained = self.pieces(features)
        total = jnp.sum(explained, axis=0)
        covariance = basis.matrix(X) - matmul(features.T, features) + matmul(rooted.T, rooted) - matmul(total.T, total)
        return Joint(matmul(self.mean, features), covariance)

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``(|m|^2 + tr S - M + log |Lambda|)/2``."""
        self.check_site(basis)
        inverses, shared, factor = self.roots()
        trace = sum_of_squares(inverses) - sum_of_squares(shared)
        # log |P_c^-1| is minus log |P_c|.
        half_log = half_log_det(factor) - sum(jnp.sum(half_log_det(inverse)) for inverse in inverses)
        value = 0.5 * (jnp.sum(self.mean**2) + trace - self.mean.shape[0]) + half_log
        return value if self.probe is None else value + self.probe.kl()
