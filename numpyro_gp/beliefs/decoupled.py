"""Beliefs whose mean has a basis of its own, larger than that of their covariance (mathematics.md section 4).

All three take the site's own inducing inputs ``Z_beta`` as covariance basis and add points for the
mean alone, at a cost linear in their number. Their KL divergence is that of the processes, so the
objective never exceeds the evidence, whether the two bases are disjoint, overlap or coincide
(mathematics.md section 4.1).
"""

import abc
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, same_fields, store, value_type
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals, above_rounding
from numpyro_gp.beliefs.basis import AbstractBasis, Basis, Whitened, covariance_kl
from numpyro_gp.beliefs.coupled import check_mean, joint_covariance, whitened_marginals
from numpyro_gp.beliefs.curvature_taps import (
    Probe,
    gamma_scale,
    largest_eigenvalue,
    prior_curvature,
    residual_variance,
    watched,
    whiten,
)
from numpyro_gp.checks import check_points, check_triangle, fail, when_known
from numpyro_gp.kernels import Kernel
from numpyro_gp.linalg import einsum, factorise, flipped, half_log_det, matmul, row_times

# --------------------------------------------------------------------------------------
# Norms of a mean with points of its own, exact or by sampled rows, and its checks.

# Indices of the rows of a mean basis that stand for all of them.
RowIds = Int[Array, " J"] | None


def mean_norm(
    kernel: Kernel, points: Float[Array, "G D"], a: Float[Array, "*batch G"], columns: RowIds = None
) -> Float[Array, ""]:
    """``a^T K a``, or its unbiased estimate ``(M/|J|) a_J^T K_J a`` from rows ``J`` (mathematics.md section 4.6).

    The result is summed over outputs. No jitter: it would enter the
    full form and not the sampled one.
    """
    if columns is None:
        return jnp.sum(a * row_times(a, kernel.matrix(points)))
    rows = row_times(a, kernel.matrix(points, points[columns]))
    return points.shape[0] / columns.shape[0] * jnp.sum(a[..., columns] * rows)


def projected(basis: Basis, points: Float[Array, "G D"], a: Float[Array, "*batch G"]) -> Float[Array, "*batch M"]:
    """``t = R a = L^-1 (K_beta,gamma a)``, never forming ``R`` (mathematics.md section 4.4)."""
    return matmul(row_times(a, basis.kernel.matrix(basis.inducing, points).T), basis.inverse.T)


def residual_norm(
    basis: Basis, points: Float[Array, "G D"], a: Float[Array, "*batch G"], t: Float[Array, "*batch M"], columns: RowIds
) -> Float[Array, ""]:
    """``a^T H a = a^T K a - |t|^2``, or ``(M/|J|) a_J^T (K_J a - K_J,beta L^-T t)`` (mathematics.md section 4.6).

    The sampled form takes rows of ``H a``. The other unbiased form, which samples ``a^T K a`` and subtracts
    an exact ``|t|^2``, has about a hundred times its variance.
    """
    if columns is None:
        return mean_norm(basis.kernel, points, a) - jnp.sum(t**2)
    sampled = points[columns]
    rows = row_times(a, basis.kernel.matrix(points, sampled))
    rows = rows - row_times(matmul(t, basis.inverse), basis.kernel.matrix(basis.inducing, sampled))
    return points.shape[0] / columns.shape[0] * jnp.sum(a[..., columns] * rows)


def check_coefficients(argument: str, a: ArrayLike, name: str, points: Float[Array, "G D"]) -> Float[Array, "*batch G"]:
    """Return mean coefficients, one for each row of ``points``."""
    array = check_mean(argument, a)
    if array.shape[-1] != points.shape[0]:
        required = f"of shape ({points.shape[0]},), or (P, {points.shape[0]}): one coefficient for each row of {name}"
        fail(argument, required, f"shape {array.shape}", f"Pass jnp.zeros({points.shape[0]}) to start at a zero mean.")
    return array


def check_sampled_rows(columns: ArrayLike | None, size: int) -> RowIds:
    """Return an index set of the mean basis: whole numbers, at most one of each."""
    if columns is None:
        return None
    array = jnp.asarray(columns)
    cure = "Draw jax.random.choice(key, M_gamma, (number,), replace=False), or pass None for the exact form."
    if array.ndim != 1 or not jnp.issubdtype(array.dtype, jnp.integer):
        fail("columns", "a vector of whole numbers", f"dtype {array.dtype}, shape {array.shape}", cure)
    if not 0 < array.shape[0] <= size:
        fail("columns", f"1 to {size} indices, one for each sampled row of the mean basis", array.shape[0], cure)

    def check(indices: np.ndarray) -> None:
        if indices.min() < 0 or indices.max() >= size:
            fail("columns", f"indices from 0 to {size - 1}", f"{indices.min()} to {indices.max()}", cure)
        if len(np.unique(indices)) != len(indices):
            fail("columns", "drawn without replacement", "a repeated index", cure)

    when_known(check, array)
    return array


def single(belief: AbstractBelief, basis: AbstractBasis) -> Basis:
    """The site's basis; refuse those that are not of one Gaussian process: a mean basis has one kernel."""
    if not isinstance(basis, Basis):
        required = "a single Gaussian process, made by gp()"
        cure = "For an additive site use Coupled or one of the additive beliefs."
        fail(f"the site of a {type(belief).__name__} belief", required, f"a {type(basis).__name__}", cure, TypeError)
    return basis


# --------------------------------------------------------------------------------------
# The beliefs.


class InverseCovariance(NamedTuple):
    """The covariance ``K - E^T E`` of a process given ``B``, with ``E = projection @ k(Z_beta, X)``.

    Attributes
    ----------
    inverse
        ``L_T^-1``.
    projection
        ``L_T^-1 L_B^T``.
    kl
        ``sum_i log L_T,ii - (M - |L_T^-1|_F^2) / 2``, summed over outputs.
    """

    inverse: Float[Array, "*batch M M"]
    projection: Float[Array, "*batch M M"]
    kl: Float[Array, ""]


def inverse_covariance(gram: Float[Array, "M M"], B_tril: Float[Array, "*batch M M"]) -> InverseCovariance:
    """The inverse-parametrised covariance of Cheng and Boots (mathematics.md section 4.2).

    ``L_T = chol(I + L_B^T K L_B)`` for ``B = L_B L_B^T``: ``B`` is never inverted, ``B = 0`` is the
    prior, and ``gram`` is neither factorised nor jittered.
    """
    size = gram.shape[-1]
    transposed = jnp.swapaxes(B_tril, -1, -2)
    eye = jnp.broadcast_to(jnp.eye(size, dtype=gram.dtype), B_tril.shape)
    factor, inverse = factorise(eye + matmul(transposed, matmul(gram, B_tril)))
    outputs = B_tril.size // size**2
    kl = jnp.sum(half_log_det(factor)) - 0.5 * (outputs * size - jnp.sum(inverse**2))
    return InverseCovariance(inverse, matmul(inverse, transposed), kl)


class WithMeanPoints(AbstractBelief):
    """A belief with the mean ``K_X,points a``, besides that of inducing values, of one Gaussian process."""

    points: ClassVar[str] = "Z_gamma"  # the field of the points of the mean
    a: Any  # coefficients, where `coefficients` does not say otherwise
    scale_tril: Any  # whitened factor of the covariance, where `covariance` is None
    B_tril: Any  # that of an `InverseCovariance`

    @property
    def mean_points(self) -> Float[Array, "G D"]:
        """The points of the mean."""
        return getattr(self, self.points)

    def coefficients(self, site: Basis) -> Float[Array, "*batch G"]:  # noqa: ARG002
        """``a``, at the kernel of the moment."""
        return self.a

    def remaining(self, site: Basis) -> Float[Array, "*batch M"] | None:  # noqa: ARG002
        """The whitened mean that is left to the inducing values; None for zeros."""
        return None

    def covariance(self, site: Basis) -> InverseCovariance | None:  # noqa: ARG002
        """The covariance, where that is no whitened factor ``scale_tril``."""
        return None

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``K_X,points a + A^T remaining``, and ``k_nn - |E_n|^2`` or the variance of `Coupled`."""
        site = single(self, basis)
        mean = row_times(self.coefficients(site), site.kernel.matrix(self.mean_points, X))
        covariance = self.covariance(site)
        if covariance is not None:
            prior = jnp.broadcast_to(site.diagonal(X), mean.shape)
            explained = matmul(covariance.projection, site.kernel.matrix(site.inducing, X))
            return Marginals(mean, above_rounding(prior - jnp.sum(explained**2, axis=-2), prior))
        rest = self.remaining(site)
        whitened = whitened_marginals(site, X, self.whitened_mean if rest is None else rest, self.scale_tril)
        return Marginals(mean if rest is None else mean + whitened.mean, whitened.variance)

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """The same with full covariance."""
        site = single(self, basis)
        mean = row_times(self.coefficients(site), site.kernel.matrix(self.mean_points, X))
        covariance = self.covariance(site)
        if covariance is not None:
            explained = matmul(covariance.projection, site.kernel.matrix(site.inducing, X))
            square = matmul(jnp.swapaxes(explained, -1, -2), explained)
            return Joint(mean, jnp.broadcast_to(site.matrix(X), square.shape) - square)
        features, rest = site.features(X), self.remaining(site)
        mean = mean if rest is None else mean + matmul(rest, features)
        return Joint(mean, joint_covariance(site, X, features, self.scale_tril))


class Parts(NamedTuple):
    """What marginals and KL divergence of a belief share, of one factorisation each.

    Attributes
    ----------
    coefficients
        ``a`` of the mean ``K_X,points a``.
    norm
        ``a^T K a``, where that is no sum over rows.
    covariance
        That of ``B_tril``.
    """

    coefficients: Float[Array, "*batch G"]
    norm: Float[Array, ""] | None
    covariance: InverseCovariance | None


class OfParts(WithMeanPoints):
    """A belief whose mean and covariance have nothing in common but the kernel."""

    columns: Array | None
    shared: Parts | None  # at the basis that `ready` was asked about

    @abc.abstractmethod
    def parts(self, site: Basis) -> Parts:
        """At a basis."""

    def ready(self, basis: AbstractBasis) -> Self:
        value: Any = self
        return replace(value, shared=self.parts(basis)) if isinstance(basis, Basis) else self

    def coefficients(self, site: Basis) -> Float[Array, "*batch G"]:
        return (self.shared or self.parts(site)).coefficients

    def covariance(self, site: Basis) -> InverseCovariance | None:
        return (self.shared or self.parts(site)).covariance

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``a^T K a / 2`` plus the KL of the covariance, summed over outputs."""
        site = single(self, basis)
        coefficients, norm, covariance = self.shared or self.parts(site)
        if norm is None:
            norm = mean_norm(site.kernel, self.mean_points, coefficients, self.columns)
        return 0.5 * norm + (covariance_kl(self.scale_tril) if covariance is None else covariance.kl)


@value_type()
class Decoupled(OfParts):
    """More points for the mean than for the covariance (Cheng and Boots 2017). Prefer `Orthogonal`: it trains better.

    The mean is ``k(., Z_alpha) a``, the covariance ``(K^-1 + B)^-1`` on the site's inducing inputs. It costs
    ``O(N M_alpha + N M^2 + M^3)``, and ``O(M_alpha^2)`` for the KL, or ``O(J M_alpha)`` with ``J`` numbers in
    ``columns``. The objective is concave in ``a`` but ill-conditioned (mathematics.md section 4.2).

    Parameters
    ----------
    Z_alpha : Array (M_alpha, D)
    a : Array (M_alpha,) or (P, M_alpha)
    B_tril : Array (M, M) or (P, M, M)
        Lower triangular ``L_B``, ``B = L_B L_B^T``; zero is the prior. Its diagonal may have any sign.
    columns : Array (J,) of integers, optional
        Rows that estimate ``a^T K a``, drawn without replacement and independently of the data batch.

    Notes
    -----
    Its whitened mean depends on the kernel, so the array this value looks like holds zeros.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> belief = ngp.beliefs.Decoupled(jnp.linspace(0.0, 1.0, 5)[:, None], jnp.zeros(5), jnp.zeros((3, 3)))
    >>> belief.shape
    (3,)
    """

    Z_alpha: ArrayField
    a: ArrayField
    B_tril: ArrayField
    columns: Array | None = None
    shared: Parts | None = None
    points = "Z_alpha"

    def __post_init__(self) -> None:
        points = check_points("Z_alpha", self.Z_alpha)
        a = check_coefficients("a", self.a, "Z_alpha", points)
        factor = check_triangle("B_tril", self.B_tril, (*a.shape[:-1], None), positive=False)
        store(self, Z_alpha=points, a=a, B_tril=factor, columns=check_sampled_rows(self.columns, points.shape[0]))

    @property
    def whitened_mean(self) -> Float[Array, "*batch M"]:
        return jnp.zeros_like(self.B_tril[..., 0])

    def coefficients(self, site: Basis) -> Float[Array, "*batch G"]:  # noqa: ARG002 - they are held
        return self.a

    def parts(self, site: Basis) -> Parts:
        return Parts(self.a, None, inverse_covariance(site.kernel.matrix(site.inducing), self.B_tril))


@value_type()
class WithMeanBasis(WithMeanPoints):
    """A belief with the covariance of `Coupled` whose mean has points of its own besides."""

    Z_gamma: ArrayField
    a: ArrayField
    mean: ArrayField
    scale_tril: ArrayField
    columns: Array | None = None

    def __post_init__(self) -> None:
        points = check_points("Z_gamma", self.Z_gamma)
        weights, mean = check_coefficients("a", self.a, "Z_gamma", points), check_mean("mean", self.mean)
        if mean.shape[:-1] != (lead := weights.shape[:-1]):
            cure = "With outputs=P every array but the inputs has a leading axis P."
            fail("mean", f"of as many outputs as a: leading axes {lead}", f"shape {mean.shape}", cure)
        factor = check_triangle("scale_tril", self.scale_tril, mean.shape, positive=True)
        rows = check_sampled_rows(self.columns, points.shape[0])
        store(self, Z_gamma=points, a=weights, mean=mean, scale_tril=factor, columns=rows)


@same_fields
class Hybrid(WithMeanBasis):
    """The family of `Orthogonal` in other coordinates, which train more slowly: for comparison.

    The mean is ``K_X,gamma a + A^T m``, the covariance that of `Coupled` (mathematics.md section 4.3). Its ``(a, m)``
    are ``(a, m + R a)`` there: ``mean`` is *not* the mean of the whitened values. Optimisation couples ``a`` and ``m``.

    Parameters
    ----------
    Z_gamma : Array (M_gamma, D)
    a : Array (M_gamma,) or (P, M_gamma)
    mean : Array (M,) or (P, M)
    scale_tril : Array (M, M) or (P, M, M)
        Whitened lower factor with a positive diagonal.
    columns : Array (J,) of integers, optional
        As in `Orthogonal`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> Z_gamma = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> ngp.beliefs.Hybrid(Z_gamma, jnp.zeros(5), jnp.zeros(3), jnp.eye(3)).shape
    (3,)
    """

    def remaining(self, site: Basis) -> Float[Array, "*batch M"]:  # noqa: ARG002
        return self.mean

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``(a^T H a + |m + R a|^2) / 2 + kl(C)``."""
        site = single(self, basis)
        t = projected(site, self.Z_gamma, self.a)
        residual = residual_norm(site, self.Z_gamma, self.a, t, self.columns)
        return 0.5 * (residual + jnp.sum((self.mean + t) ** 2)) + covariance_kl(self.scale_tril)


@value_type()
class Orthogonal(WithMeanBasis):
    """A coupled belief with further points for the mean alone, orthogonal to the rest (Salimbeni et al. 2018).

    The mean is ``A^T m + F^T a``, the covariance that of `Coupled` (mathematics.md section 4.4), where
    ``F = K_gamma,X - R^T A`` with ``R = L^-1 k(Z_beta, Z_gamma)``: ``m`` and ``C`` keep their meaning as mean and
    factor of the whitened inducing values, and ``Z_gamma`` extends the mean alone.
    ``O(N (M_gamma + M^2) + M^3 + M_gamma M)``, and ``O(M_gamma^2)`` for the KL, or ``O(J M_gamma)`` with ``J``
    numbers in ``columns``.

    Parameters
    ----------
    Z_gamma : Array (M_gamma, D)
    a : Array (M_gamma,) or (P, M_gamma)
    mean : Array (M,) or (P, M)
        Whitened mean ``m``.
    scale_tril : Array (M, M) or (P, M, M)
        Whitened lower factor ``C`` with a positive diagonal.
    columns : Array (J,) of integers, optional
        Rows of ``H a`` that estimate ``a^T H a`` without bias, drawn without replacement and independently
        of the data batch; the KL may then be negative. None is exact.
    probe : Probe, optional
        Set by recipes that need the curvature in ``a``; it changes no value.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> Z_gamma = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> ngp.beliefs.Orthogonal(Z_gamma, jnp.zeros(5), jnp.zeros(3), jnp.eye(3)).shape
    (3,)
    """

    Z_gamma: ArrayField
    a: ArrayField
    mean: ArrayField
    scale_tril: ArrayField
    columns: Array | None = None
    probe: Probe | None = None

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, self.scale_tril)

    def remaining(self, site: Basis) -> Float[Array, "*batch M"]:
        return self.mean - projected(site, self.Z_gamma, self.coefficients(site))

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        plain = super().marginals(basis, X)
        return Marginals(plain.mean, self._probed(single(self, basis), X, plain.variance, 1))

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        plain = super().joint(basis, X)
        return Joint(plain.mean, self._probed(single(self, basis), X, plain.covariance, 2))

    def _probed(self, site: Basis, X: Float[Array, "N D"], spread: Array, axes: int) -> Array:
        """Variances or covariances as they are, in sight of the probe."""
        probe = self.probe
        if probe is None or (not probe.of_data and probe.top is None):
            return spread
        explained = matmul(flipped(site.features(self.Z_gamma)), site.features(X))
        residual = lax.stop_gradient(site.kernel.matrix(self.Z_gamma, X) - explained)  # F = K_gamma,X - R^T A
        if probe.of_data:
            half = matmul(probe.covariance, residual)
            return spread + (einsum("gn,...gn->...n", residual, half) if axes == 1 else matmul(residual.T, half))
        white = whiten(site, self.Z_gamma, residual, probe.eps, probe.covariance.ndim == self.a.ndim)
        return watched(probe.top, spread, white, axes)

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``(a^T H a + |m|^2) / 2 + kl(C)`` with ``H = K_gamma,gamma - R^T R``."""
        site = single(self, basis)
        a = self.coefficients(site)
        residual = residual_norm(site, self.Z_gamma, a, projected(site, self.Z_gamma, a), self.columns)
        value = 0.5 * (residual + jnp.sum(self.mean**2)) + covariance_kl(self.scale_tril)
        if (probe := self.probe) is None:
            return value
        is_diagonal = probe.covariance.ndim == self.a.ndim
        # ``weight + tr(Omega H) / 2``, and ``top`` times an eigenvalue: zero, with gradients that are not.
        prior = (residual_variance if is_diagonal else prior_curvature)(site, self.Z_gamma)
        lead = (None,) * (probe.covariance.ndim - prior.ndim)
        value = value + (probe.weight + 0.5 * jnp.sum(probe.covariance * lax.stop_gradient(prior)[lead]))
        if probe.top is None:
            return value
        if not is_diagonal:
            return value + jnp.sum(probe.top)
        # The largest eigenvalue of ``(diag(H) + eps)^-1 H``; rows drawn stand for all, on the safe side.
        points = self.Z_gamma if self.columns is None else self.Z_gamma[self.columns]
        half = whiten(site, points, prior_curvature(site, points), probe.eps, True)
        white = whiten(site, points, half.T, probe.eps, True)
        top = largest_eigenvalue(lambda x: matmul(white, x), points.shape[0], white.dtype)
        return value + jnp.sum(probe.top) * (top * (self.Z_gamma.shape[0] / points.shape[0]))


@value_type(static=("eps",))
class Preconditioned(Orthogonal):
    """`Orthogonal` with coefficients ``a + b / (diag(H) + eps)``, whose divisor is that of the kernel of the moment.

    It is a constant to derivatives: ``b`` is where an optimiser that takes steps of one size, such as Adam, takes them.
    """

    b: Array | None = None
    eps: float = 0.0

    def coefficients(self, site: Basis) -> Float[Array, "*batch G"]:
        b = jnp.asarray(self.b)
        width: Array = lax.stop_gradient(gamma_scale(site, jnp.asarray(self.Z_gamma), self.eps))
        return jnp.asarray(self.a) + width[(None,) * (b.ndim - 1)] * b
