"""Gaussian beliefs over the whitened values of the site's own inducing points (mathematics.md section 3.1)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, over_axes, store, value_type
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals, above_rounding, taken_back
from numpyro_gp.beliefs.basis import AbstractBasis, Whitened
from numpyro_gp.beliefs.products import (
    Factor,
    RowMoments,
    Vector,
    at_blocks,
    lower_moved,
    lower_outer_square,
    lower_times,
    outer_square_in_forms,
    quadratic_forms,
    symmetric_moved,
    triangle_rows,
)
from numpyro_gp.checks import check_floating, check_positive, check_triangle, fail
from numpyro_gp.linalg import (
    add_to_diagonal,
    factor_of,
    flipped,
    half_diagonal,
    identity_like,
    matmul,
    outer_square,
    row_times,
)

# --------------------------------------------------------------------------------------
# Mean and variance at each input of ``N(m, S)`` over whitened values: the plain form, and two that cost less.
#
# With ``A = W k(Z, X)``, ``W = L^-1``, both are ``A^T m`` and ``k_nn + A_n^T (S - I) A_n``; `plain_marginals` has
# two products of ``M x M`` by ``M x N``. It is what the others are tested against, and what a basis without
# `AbstractBasis.cross` gets. `whitened_marginals` chooses by shape:
#
# * few rows, ``N < M / 8``: the plain form;
# * a derivative is asked for: four products over the rows in place of six (`_marginals_jvp`);
# * no derivative, ``N >= 4 M``: half of one product or one, with a root of ``I - S`` found once (`_at_many_rows`).

# Rows for each inducing point from which an eigendecomposition is repaid by the product that it saves, and
# inducing points below which nothing is gained.
ROWS_TO_REPAY = 4
FEWEST_INDUCING = 64


def plain_marginals(
    features: Float[Array, "M N"],
    prior: Float[Array, " N"],
    mean: Vector,
    factor: Factor,
    left: Float[Array, "*#batch M M"] | None = None,
) -> Marginals:
    """``A^T m`` and ``k_nn - |A_n|^2 - |R^T A_n|^2 + |C^T A_n|^2``; ``R`` is `left_in_posterior`.

    What the inducing values leave open is kept from being negative by itself: the last term may be far smaller than
    its rounding errors.
    """
    rooted = matmul(flipped(factor), features)
    spread = jnp.sum(rooted**2, axis=-2)
    rest = open_variance(features, prior, left)
    return Marginals(matmul(mean, features), jnp.broadcast_to(jnp.where(rest < 0, 0, rest), spread.shape) + spread)


def open_variance(
    features: Float[Array, "M N"], prior: Float[Array, " N"], left: Float[Array, "*#batch M M"] | None
) -> Float[Array, "*batch N"]:
    """``k_nn - |A_n|^2 - |R^T A_n|^2``, which rounding can make negative."""
    rest = prior - jnp.sum(features**2, axis=0)
    if left is None:
        return rest
    of_jitter = jnp.sum(matmul(flipped(left), features) ** 2, axis=-2)
    return jnp.broadcast_to(rest, of_jitter.shape) - of_jitter


def left_in_posterior(basis: AbstractBasis, moved: Callable[[Array], Array]) -> Array | None:
    """``(I - S) R`` of `AbstractBasis.left_by_jitter`: what a jitter leaves where data know the values.

    ``moved(R)`` is ``S R``, of shape ``(..., M, M)``, where ``S`` is no wider than the prior in any direction.
    """
    if (left := basis.left_by_jitter()) is None:
        return None
    product = moved(left)
    return jnp.broadcast_to(left, product.shape) - product


@custom_vmap
def beyond_prior(covariance: Factor) -> Factor:
    """``(S - I)+``, what a belief is wider than the prior: as of outliers, or of scales that a guide has at its start.

    Data do not know the values there. It takes an eigendecomposition where there is any, by more than a fifth: the
    square of less, noise of a fit among it, is nothing beside what a jitter leaves.
    """
    narrowed = add_to_diagonal(-covariance, jnp.full(covariance.shape[:-1], 1.2, covariance.dtype))
    is_narrow = jnp.all(jnp.isfinite(factor_of(narrowed)))
    return lax.cond(is_narrow, jnp.zeros_like, _excess, covariance)


def _excess(covariance: Factor) -> Factor:
    values, vectors = jnp.linalg.eigh(covariance, symmetrize_input=False)
    return outer_square(vectors * jnp.sqrt(jnp.maximum(values - 1, 0))[..., None, :])


@beyond_prior.def_vmap
def _beyond_prior_of_each(size: int, is_mapped: list[bool], covariance: Factor) -> tuple[Factor, bool]:  # noqa: ARG001
    """One choice for all: of one that members make apart `vmap` would compute both sides."""
    return beyond_prior(covariance), True


def left_of(basis: AbstractBasis, covariance: Factor) -> Array | None:
    """`left_in_posterior` of a whole ``S``."""
    return left_in_posterior(basis, lambda R: matmul(covariance - beyond_prior(lax.stop_gradient(covariance)), R))


def whitened_marginals(
    basis: AbstractBasis, X: Float[Array, "N D"], mean: Vector, factor: Factor, covariance: Factor | None = None
) -> Marginals:
    """``A^T m`` and ``k_nn + A_n^T (C C^T - I) A_n`` at each row, kept above rounding error.

    Parameters
    ----------
    basis : AbstractBasis
    X : Array (N, D)
    mean, factor : Array (M,) and (M, M), or with P on the left
        ``m`` and lower ``C``.
    covariance : Array like ``factor``, optional
        ``S = C C^T`` where it is at hand: derivatives then reach it without passing through its factor.
    """
    prior, size = basis.diagonal(X), basis.size
    spread = lower_outer_square(factor) if covariance is None else covariance
    left = left_of(basis, spread)
    cross = basis.cross(X) if 8 * X.shape[0] >= size else None
    if cross is None:
        mean, variance = plain_marginals(basis.features(X), prior, mean, factor, left)
    else:
        inverse, turn, values = cross
        many = X.shape[0] >= ROWS_TO_REPAY * size and size >= FEWEST_INDUCING
        moments = _at_many_rows(basis, X, inverse, mean, factor, left) if many else None
        moving = outer_square_in_forms(factor) if covariance is None else covariance
        if left is not None:
            of_jitter = jnp.broadcast_to(outer_square(left), spread.shape)
            moving, spread = moving - of_jitter, spread - of_jitter
        mean, variance = _marginals(turn, values, prior, mean, moving, spread, factor, inverse, left, moments)
    return Marginals(mean, above_rounding(variance, prior))


def _at_many_rows(
    basis: AbstractBasis, X: Array, inverse: Array, mean: Vector, factor: Factor, left: Array | None
) -> RowMoments:
    """Both moments without a derivative, from the inputs themselves: ``k(Z, X)`` need not be held whole."""
    basis, X, inverse, mean, factor, left = lax.stop_gradient((basis, X, inverse, mean, factor, left))

    def at(points: Array) -> tuple[Array, Array]:
        cross = basis.cross(points)
        assert cross is not None
        return cross.values, basis.diagonal(points)

    def in_full(cross: Array, prior: Array) -> Array:
        return plain_marginals(lower_times(inverse, cross), prior, mean, factor, left).variance

    return lax.stop_gradient(at_blocks(triangle_rows(inverse, mean, factor, left), at, X, basis.size, in_full))


@jax.custom_jvp
def _marginals(
    turn: Float[Array, "M M"],  # noqa: ARG001
    cross: Float[Array, "M N"],
    prior: Float[Array, " N"],
    mean: Float[Array, "*batch M"],
    moving: Float[Array, "*batch M M"],  # noqa: ARG001
    covariance: Float[Array, "*batch M M"],  # noqa: ARG001
    factor: Float[Array, "*batch M M"],
    inverse: Float[Array, "M M"],
    left: Float[Array, "*#batch M M"] | None,
    moments: RowMoments | None,
) -> RowMoments:
    """Mean and variance; ``covariance`` is of ``factor``, less that of ``left``; ``turn`` is of ``inverse``.

    ``moving`` has the derivative of ``covariance`` in quadratic forms, and no value that is read.

    What is already ``found`` is returned: ``cross`` is then made for derivatives alone, which in turn need nothing of
    what is found, and a compiled program holds one of both.
    """
    if moments is None:
        loc, variance = plain_marginals(lower_times(inverse, cross), prior, mean, factor, left)
        return loc, variance
    return moments


@_marginals.defjvp
def _marginals_jvp(
    primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """With ``P = Phi(d turn)``, ``dW = -P W`` (`beliefs.basis.Frame`), and ``E = (S - I) A``.

    ``dloc = (dm - P^T m)^T A + m^T W dk`` and ``dvar = dk_nn + A_n^T Y A_n + 2 E_n^T W dk_n`` with
    ``Y = dS - 2 (S - I) P``. Transposed, the rows of data enter ``Y``, and with it ``S`` and ``K``, through the one
    product ``A diag(h) A^T``. The derivatives of ``S`` and ``K`` are taken where they are matrices, so those of
    ``C`` and ``W`` are left out here; they are followed when this rule is differentiated again.
    """
    _, cross, prior, mean, _, covariance, _, inverse, left, _ = primals
    turn_dot, cross_dot, prior_dot, mean_dot, moving_dot, *_ = tangents
    features, change = lower_times(inverse, cross), covariance - identity_like(covariance)
    excess, lead = matmul(change, features), (None,) * (mean.ndim - 1)
    variance = jnp.sum(features[lead] * excess, axis=-2)
    shrink = half_diagonal(turn_dot)
    turned = moving_dot - 2 * symmetric_moved(change, shrink)
    lifted = lower_moved(inverse, cross_dot)
    mean_change = matmul(mean_dot - matmul(mean, shrink), features) + matmul(mean, lifted)
    variance_change = quadratic_forms(turned, features) + 2 * jnp.sum(excess * lifted[lead], axis=-2)
    # As `plain_marginals` has it: JAX takes the batch axes of a value from there where a compiled function is mapped.
    rest = open_variance(features, prior, left)
    prior = jnp.broadcast_to(prior, variance.shape) - jnp.broadcast_to(jnp.where(rest < 0, rest, 0), variance.shape)
    variance_change = jnp.broadcast_to(prior_dot, variance.shape) + variance_change
    return (row_times(mean, features), prior + variance), (mean_change, variance_change)


# --------------------------------------------------------------------------------------
# The beliefs.


def check_mean(
    argument: str,
    mean: ArrayLike,
    required: str = "of shape (M,), or (P, M) for P outputs",
    cure: str = "Pass a row for each output.",
) -> Array:
    """Return a whitened mean ``(M,)`` or ``(P, M)``, with the axes of plates on its left."""
    array = check_floating(argument, mean)
    if array.ndim == 0:
        fail(argument, required, f"shape {array.shape}", cure)
    return array


def joint_covariance(
    basis: AbstractBasis, X: Float[Array, "N D"], features: Float[Array, "M N"], factor: Factor
) -> Float[Array, "*batch N N"]:
    """``k(X, X) - A^T A + (C^T A)^T (C^T A)``, less what a jitter leaves, as marginals have it."""
    spread = outer_square(matmul(features.T, factor))
    rest = jnp.broadcast_to(basis.matrix(X) - matmul(features.T, features), spread.shape)
    return taken_back(rest, left_of(basis, lower_outer_square(factor)), features) + spread


class CovarianceMoments(NamedTuple):
    """``S = C C^T`` and the KL divergence, where they are not made of ``C``: derivatives then pass it by."""

    covariance: Float[Array, "*batch M M"]
    divergence: Float[Array, "*batch"]


@value_type()
class Coupled(AbstractBelief):
    """The usual sparse variational posterior: ``q(v) = N(m, C C^T)`` over whitened inducing values.

    Parameters
    ----------
    mean : Array (M,) or (P, M)
        Whitened mean ``m``; the mean of ``u = f(Z)`` is ``L m``.
    scale_tril : Array (M, M) or (P, M, M)
        Whitened lower factor ``C`` with a positive diagonal.
    moments : Moments, optional
        Set by recipes that hold ``S = C C^T`` by itself; it changes no value.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> belief = ngp.beliefs.Coupled(jnp.zeros(3), jnp.eye(3))
    >>> belief.shape
    (3,)
    """

    mean: ArrayField
    scale_tril: ArrayField
    moments: CovarianceMoments | None = None

    def __post_init__(self) -> None:
        mean = check_mean("mean", self.mean)
        store(self, mean=mean, scale_tril=check_triangle("scale_tril", self.scale_tril, mean.shape, positive=True))

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, self.scale_tril)

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``k_nn - |A_n|^2 + |C^T A_n|^2``."""
        covariance = None if self.moments is None else self.moments.covariance
        return whitened_marginals(basis, X, self.mean, self.scale_tril, covariance)

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """``A^T m`` and ``k(X, X) - A^T A + (C^T A)^T (C^T A)``."""
        features = basis.features(X)
        return Joint(matmul(self.mean, features), joint_covariance(basis, X, features, self.scale_tril))

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:  # noqa: ARG002
        """``|m|^2/2 + kl(C)``."""
        return self.whitened().kl() if self.moments is None else jnp.sum(self.moments.divergence)


@value_type()
class MeanField(AbstractBelief):
    """Independent whitened inducing values, for very many of them: ``q(v) = N(m, diag(scale^2))``.

    Parameters
    ----------
    mean : Array (M,) or (P, M)
    scale : Array, same shape, positive
        Standard deviations of the whitened values.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.beliefs.MeanField(jnp.zeros(3), jnp.ones(3)).shape
    (3,)
    """

    mean: ArrayField
    scale: ArrayField

    def __post_init__(self) -> None:
        mean = check_mean("mean", self.mean)
        scale = check_positive("scale", self.scale)
        if scale.shape != mean.shape:
            fail("scale", f"of shape {mean.shape}, like mean", f"shape {scale.shape}", "Pass one scale for each value.")
        store(self, mean=mean, scale=scale)

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:  # noqa: ARG002
        return Whitened(self.mean, over_axes(jnp.diag, self.ndim - 1)(self.scale))

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T m`` and ``k_nn + sum_i (scale_i^2 - 1) A_in^2``."""
        features, prior = basis.features(X), basis.diagonal(X)
        left = self._left(basis)
        rest, spread = open_variance(features, prior, left), matmul(self.scale**2, features**2)
        variance = jnp.broadcast_to(jnp.where(rest < 0, 0, rest), spread.shape) + spread
        return Marginals(matmul(self.mean, features), above_rounding(variance, prior))

    def _left(self, basis: AbstractBasis) -> Array | None:
        narrow = jnp.minimum(self.scale[..., None] ** 2, 1)
        return left_in_posterior(basis, lambda R: narrow * R[(None,) * (narrow.ndim - 2)])

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """``A^T m`` and ``k(X, X) + A^T (diag(scale^2) - I) A``."""
        features = basis.features(X)
        change = matmul(features.T, (self.scale**2 - 1)[..., None] * features[(None,) * (self.scale.ndim - 1)])
        covariance = jnp.broadcast_to(basis.matrix(X), change.shape) + change
        return Joint(matmul(self.mean, features), taken_back(covariance, self._left(basis), features))

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:  # noqa: ARG002
        """``sum (m^2 + scale^2 - 1)/2 - log scale``."""
        return jnp.sum(0.5 * (self.mean**2 + self.scale**2 - 1) - jnp.log(self.scale))
