"""Beliefs over the stacked whitened values of an additive process (mathematics.md section 6).

`Coupled` is the full posterior of such a site; here are the three that never form an ``M x M`` matrix.
"""

import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, over_axes, store, value_type
from numpyro_gp.beliefs import component_factors
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals, positive
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.beliefs.probe import BlockProbe
from numpyro_gp.beliefs.ridge import ridge_factor
from numpyro_gp.beliefs.whitened import Whitened, covariance_kl
from numpyro_gp.checks import fail
from numpyro_gp.linalg import flipped, half_log_det, matmul


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
    scale_trils: component_factors.BlocksField
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        mean = component_factors.check_mean(self.mean)
        blocks, names = component_factors.check_factors("scale_trils", self.scale_trils, mean)
        store(self, mean=mean, scale_trils=blocks, names=self.names if names is None else names)

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, over_axes(block_diag, self.ndim - 1)(*self.scale_trils))

    def check_site(self, basis: AbstractBasis) -> AdditiveBasis:
        """The site's basis, if its components are those of this belief."""
        return component_factors.check_components("scale_trils", self.scale_trils, self.names, basis)

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
        return Marginals(matmul(self.mean, features), positive(variance, prior))

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        features = self.check_site(basis).features(X)
        rooted = component_factors.rows_of(self.rooted(features))
        covariance = basis.matrix(X) - matmul(features.T, features) + matmul(rooted.T, rooted)
        return Joint(matmul(self.mean, features), covariance)

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``|m|^2/2 + sum_c kl(C_c)``."""
        self.check_site(basis)
        factors = Stacks.of(self.scale_trils).stacked(self.scale_trils)
        return 0.5 * jnp.sum(self.mean**2) + sum(covariance_kl(factor) for factor in factors)


@value_type()
class Structured(component_factors.LowRank):
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
        mean = component_factors.check_mean(self.mean)
        store(self, mean=mean, W=component_factors.check_columns(self.W, mean))

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, over_axes(ridge_factor, self.ndim - 1)(self.W))

    def root(self) -> Float[Array, "r M"]:
        """``U = L_H^-1 W^T``, with ``S = I - U^T U``."""
        return matmul(component_factors.half_of(self.W)[1], self.W.T)

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
        variance = component_factors.probed(self.probe, basis, features, positive(prior - explained, prior))
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
        factor, inverse = component_factors.half_of(self.W)
        value = 0.5 * (jnp.sum(self.mean**2) + jnp.sum(inverse**2) - factor.shape[0]) + half_log_det(factor)
        return value if self.probe is None else value + self.probe.kl()
