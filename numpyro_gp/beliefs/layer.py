"""The belief of decoupled deep processes: mean and covariance on two sets of points (mathematics.md section 5.1)."""

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, store, value_type
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals, positive
from numpyro_gp.beliefs.basis import AbstractBasis, Basis
from numpyro_gp.beliefs.coupled import joint_covariance
from numpyro_gp.beliefs.decoupled import inverse_covariance
from numpyro_gp.beliefs.marginals import whitened_marginals
from numpyro_gp.beliefs.mean_basis import check_coefficients, mean_norm, single
from numpyro_gp.beliefs.whitened import covariance_kl
from numpyro_gp.checks import check_choice, check_points, check_triangle, fail
from numpyro_gp.linalg import add_to_diagonal, factorise, matmul


@value_type(static=("mean",))
class DecoupledLayer(AbstractBelief):
    """A layer of a deep process with its own points for the mean (Havasi et al. 2018).

    Its mean stands on ``Z_mean``, its covariance on the site's inducing inputs, ``Z_b`` in mathematics.md
    section 5.1. The KL is exactly that of the process, whether the two sets of points are disjoint or overlap
    (mathematics.md section 5.2); with the jitter in ``L_a`` the ``gp`` and ``gpcent`` forms are an upper bound of it.
    ``O(N (M_a + M_b^2) + M_a^3 + M_b^3)`` for each output, without ``M_a^3`` for ``mean="cb"``.

    Parameters
    ----------
    Z_mean : Array (M_a, D)
    mean_parameter : Array (M_a,) or (P, M_a)
        ``mean="gpcent"``: ``m'`` with mean ``K_Xa L_a^-T m'`` and norm ``|m'|^2``, the best conditioned; ``"gp"``:
        ``m`` with ``K_Xa L_a^-T L_a^-1 m`` and ``|L_a^-1 m|^2``; ``"cb"``: ``a`` with ``K_Xa a`` and ``a^T K_aa a``.
    mean : {"gpcent", "gp", "cb"}
    scale_tril : Array (M_b, M_b) or (P, M_b, M_b), optional
        Whitened lower factor ``C`` of the covariance (mathematics.md section 3.1).
    B_tril : Array, same shape, optional
        Lower triangular ``L_B`` of the covariance (mathematics.md section 4.2). Exactly one of the two is given.

    Notes
    -----
    Its whitened mean depends on the kernel, so the array this value looks like holds zeros.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> Z_mean = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> DecoupledLayer(Z_mean, jnp.zeros((2, 5)), scale_tril=jnp.stack([jnp.eye(3)] * 2)).shape
    (2, 3)
    """

    Z_mean: ArrayField
    mean_parameter: ArrayField
    mean: str = "gpcent"
    scale_tril: Array | None = None
    B_tril: Array | None = None

    def __post_init__(self) -> None:
        check_choice("mean", self.mean, ("gpcent", "gp", "cb"))
        points = check_points("Z_mean", self.Z_mean)
        parameter = check_coefficients("mean_parameter", self.mean_parameter, "Z_mean", points)
        if (self.scale_tril is None) == (self.B_tril is None):
            got = "both" if self.B_tril is not None else "neither"
            cure = "Pass scale_tril alone: it is the usual choice."
            fail("scale_tril or B_tril", "given, exactly one of them", got, cure)
        name = "scale_tril" if self.B_tril is None else "B_tril"
        factor = check_triangle(name, getattr(self, name), (*parameter.shape[:-1], None), positive=name == "scale_tril")
        store(self, Z_mean=points, mean_parameter=parameter, **{name: factor})

    @property
    def whitened_mean(self) -> Float[Array, "*batch M"]:
        return jnp.zeros_like(self._factor[..., 0])

    @property
    def _factor(self) -> Float[Array, "*batch M M"]:
        """The one of the two that is given."""
        factor = self.scale_tril if self.scale_tril is not None else self.B_tril
        assert factor is not None
        return factor

    def _inverse_factor(self, basis: Basis) -> Float[Array, "G G"]:
        """``L_a^-1``, with the jitter of the covariance basis."""
        gram = basis.kernel.matrix(self.Z_mean)
        return factorise(add_to_diagonal(gram, basis.jitter[None]))[1]

    def coefficients(self, basis: Basis) -> Float[Array, "*batch G"]:
        """``a`` of the mean ``K_Xa a``: once, so that data cost ``N M_a``."""
        if self.mean == "cb":
            return self.mean_parameter
        inverse = self._inverse_factor(basis)
        white = self.mean_parameter if self.mean == "gpcent" else matmul(self.mean_parameter, inverse.T)
        return matmul(white, inverse)

    def _mean(self, site: Basis, X: Float[Array, "N D"]) -> Float[Array, "*batch N"]:
        return matmul(self.coefficients(site), site.kernel.matrix(self.Z_mean, X))

    def _reduction(self, basis: Basis, X: Float[Array, "N D"]) -> Float[Array, "*batch M N"]:
        gram = basis.kernel.matrix(basis.inducing)
        return matmul(inverse_covariance(gram, self._factor).projection, basis.kernel.matrix(basis.inducing, X))

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """Mean on ``Z_mean``, variance on ``Z_b``."""
        site = single(self, basis)
        mean, prior = self._mean(site, X), site.diagonal(X)
        if self.B_tril is None:
            return Marginals(mean, whitened_marginals(site, X, self.whitened_mean, self._factor).variance)
        full = jnp.broadcast_to(prior, mean.shape)
        return Marginals(mean, positive(full - jnp.sum(self._reduction(site, X) ** 2, axis=-2), full))

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """The same with full covariance."""
        site = single(self, basis)
        mean, prior = self._mean(site, X), site.matrix(X)
        if self.B_tril is None:
            return Joint(mean, joint_covariance(site.features(X), prior, self._factor))
        reduction = self._reduction(site, X)
        explained = matmul(jnp.swapaxes(reduction, -1, -2), reduction)
        return Joint(mean, jnp.broadcast_to(prior, explained.shape) - explained)

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``q_mean / 2`` plus the KL of the covariance, summed over outputs."""
        site = single(self, basis)
        if self.mean == "cb":
            norm = mean_norm(site.kernel, self.Z_mean, self.mean_parameter)
        elif self.mean == "gpcent":
            norm = jnp.sum(self.mean_parameter**2)
        else:
            norm = jnp.sum(matmul(self.mean_parameter, self._inverse_factor(site).T) ** 2)
        if self.B_tril is None:
            return 0.5 * norm + covariance_kl(self._factor)
        return 0.5 * norm + inverse_covariance(site.kernel.matrix(site.inducing), self._factor).kl
