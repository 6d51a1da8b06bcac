"""A belief of additive models: a covariance for each component, and one of low rank between them."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, over_axes, store, value_type
from numpyro_gp.beliefs import component_factors
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import Joint, Marginals, positive
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.beliefs.probe import BlockProbe
from numpyro_gp.beliefs.whitened import Whitened
from numpyro_gp.linalg import factorise, half_log_det, inverse_factor, inverse_lower, matmul


@value_type(static=("names",))
class BlockLowRank(component_factors.LowRank):
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
    precision_trils: component_factors.BlocksField
    W: ArrayField
    names: tuple[str, ...] | None = None
    probe: BlockProbe | None = None

    def __post_init__(self) -> None:
        mean = component_factors.check_mean(self.mean)
        blocks, names = component_factors.check_factors("precision_trils", self.precision_trils, mean)
        W = component_factors.check_columns(self.W, mean)
        store(self, mean=mean, precision_trils=blocks, W=W, names=self.names if names is None else names)

    def check_site(self, basis: AbstractBasis) -> AdditiveBasis:
        """The site's basis, if its components are those of this belief."""
        return component_factors.check_components("precision_trils", self.precision_trils, self.names, basis)

    def roots(self) -> tuple[list[Array], list[Array], Array]:
        """``P_c^-1``, ``V_c = U_c P_c^-1`` ``(r, M_c)`` and ``L_H``: ``S_ce = d_ce P_c^-T P_c^-1 - V_c^T V_e``.

        The first two in stacks of components of one size.
        """
        stacks = Stacks.of(self.precision_trils)
        inverses = [inverse_lower(P) for P in stacks.stacked(self.precision_trils)]
        scaled = [matmul(inverse, rows) for inverse, rows in zip(inverses, stacks.apart(self.W), strict=True)]
        factor, inner = component_factors.half_of(component_factors.rows_of(scaled))
        pairs = zip(scaled, inverses, strict=True)
        shared = [matmul(matmul(inner, jnp.swapaxes(one, -1, -2)), inverse) for one, inverse in pairs]
        return inverses, shared, factor

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        def factor(W: Array, blocks: component_factors.Blocks) -> Array:
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
        return stacks.squares(own) - stacks.squares(blocks), component_factors.rows_of(own), explained

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``k_n - sum |A_c|^2 + sum |B_c|^2 - |E_n|^2``."""
        features, prior = self.check_site(basis).features(X), basis.diagonal(X)
        change, _, explained = self.pieces(features)
        variance = prior + jnp.sum(change, axis=0) - jnp.sum(jnp.sum(explained, axis=0) ** 2, axis=0)
        variance = component_factors.probed(self.probe, basis, features, positive(variance, prior))
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
        trace = component_factors.sum_of_squares(inverses) - component_factors.sum_of_squares(shared)
        # log |P_c^-1| is minus log |P_c|.
        half_log = half_log_det(factor) - sum(jnp.sum(half_log_det(inverse)) for inverse in inverses)
        value = 0.5 * (jnp.sum(self.mean**2) + trace - self.mean.shape[0]) + half_log
        return value if self.probe is None else value + self.probe.kl()
