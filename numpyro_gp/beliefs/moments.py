"""Mean and variance at each input of ``N(m, S)`` over whitened values: the plain form, and two that cost less.

With ``A = W k(Z, X)``, ``W = L^-1``, both are ``A^T m`` and ``k_nn + A_n^T (S - I) A_n``; `plain_marginals` says it in
two products of ``M x M`` by ``M x N``. It is what the others are tested against, and what a basis without
`AbstractBasis.cross` gets. `whitened_marginals` chooses by shape:

* few rows, ``N < M / 2``: the plain form;
* a derivative is asked for: four products over the rows in place of six (`_marginals_jvp`);
* no derivative, ``N >= 8 M``: one product, with a root of ``S - I`` that is found once (`signed_rows`).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import Marginals, positive
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.linalg import flipped, half_diagonal, identity_like, matmul, moved, outer_square

# Rows for each inducing point from which an eigendecomposition is repaid by the product that it saves, and
# inducing points below which nothing is gained.
ROWS_TO_REPAY = 8
SMALLEST = 64

Vector = Float[Array, "*batch M"]
Factor = Float[Array, "*batch M M"]


def plain_marginals(
    features: Float[Array, "M N"], prior: Float[Array, " N"], mean: Vector, factor: Factor
) -> Marginals:
    """``A^T m`` and ``k_nn - |A_n|^2 + |C^T A_n|^2``, before it is kept above rounding error."""
    rooted = matmul(flipped(factor), features)
    spread = jnp.sum(rooted**2, axis=-2)
    rest = prior - jnp.sum(features**2, axis=0)
    return Marginals(matmul(mean, features), jnp.broadcast_to(rest, spread.shape) + spread)


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
    cross = basis.cross(X) if 2 * X.shape[0] >= size else None
    if cross is None:
        mean, variance = plain_marginals(basis.features(X), prior, mean, factor)
    else:
        inverse, turn, values = cross
        many = X.shape[0] >= ROWS_TO_REPAY * size and size >= SMALLEST
        rows = lax.stop_gradient(signed_rows(*lax.stop_gradient((inverse, mean, factor)))) if many else None
        spread = outer_square(factor) if covariance is None else covariance
        mean, variance = _marginals(turn, values, prior, mean, spread, factor, inverse, rows)
    return Marginals(mean, positive(variance, prior))


def signed_rows(
    inverse: Float[Array, "M M"], mean: Vector, factor: Factor
) -> tuple[Float[Array, "*batch M+1 M"], Float[Array, "*batch M"]]:
    """All that the rows of data are multiplied with, once for each posterior draw.

    With ``S - I = V diag(t) V^T``: ``B = diag(|t|)^(1/2) V^T W`` above a last row ``m^T W``, and the signs of ``t``, so
    that the variance is ``k_nn + sum_i sign_i (B k(Z, x_n))_i^2``. As accurate as the features are, in float32
    too, where ``W^T (S - I) W`` loses all digits to the condition of ``k(Z, Z)``.
    """
    values, vectors = jnp.linalg.eigh(outer_square(factor) - identity_like(factor), symmetrize_input=False)
    rotated = jnp.swapaxes(vectors * jnp.sqrt(jnp.abs(values))[..., None, :], -1, -2)
    return matmul(jnp.concatenate([rotated, mean[..., None, :]], axis=-2), inverse), jnp.sign(values)


@jax.custom_jvp
def _marginals(
    turn: Float[Array, "M M"],  # noqa: ARG001
    cross: Float[Array, "M N"],
    prior: Float[Array, " N"],
    mean: Float[Array, "*batch M"],
    covariance: Float[Array, "*batch M M"],  # noqa: ARG001
    factor: Float[Array, "*batch M M"],
    inverse: Float[Array, "M M"],
    rows: tuple[Array, Array] | None,
) -> tuple[Float[Array, "*batch N"], Float[Array, "*batch N"]]:
    """Mean and variance; ``factor`` and ``covariance`` are of one matrix, ``turn`` is of ``inverse``."""
    if rows is None:
        loc, variance = plain_marginals(matmul(inverse, cross), prior, mean, factor)
        return loc, variance
    product = matmul(rows[0], cross)
    spread = jnp.sum(rows[1][..., None] * product[..., :-1, :] ** 2, axis=-2)
    return product[..., -1, :], jnp.broadcast_to(prior, spread.shape) + spread


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
    _, cross, prior, mean, covariance, _, inverse, _ = primals
    turn_dot, cross_dot, prior_dot, mean_dot, covariance_dot, _, _, _ = tangents
    features, change = matmul(inverse, cross), covariance - identity_like(covariance)
    excess, lead = matmul(change, features), (None,) * (mean.ndim - 1)
    variance = jnp.sum(features[lead] * excess, axis=-2)
    shrink = half_diagonal(turn_dot)
    turned = covariance_dot - 2 * moved(change, shrink)
    lifted = moved(inverse, cross_dot)
    mean_change = matmul(mean_dot - matmul(mean, shrink), features) + matmul(mean, lifted)
    variance_change = jnp.sum(features[lead] * matmul(turned, features) + 2 * excess * lifted[lead], axis=-2)
    values = matmul(mean, features), jnp.broadcast_to(prior, variance.shape) + variance
    return values, (mean_change, jnp.broadcast_to(prior_dot, variance.shape) + variance_change)
