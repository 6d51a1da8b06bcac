"""What beliefs with a mean basis of their own share: its norms, exact or by sampled rows, and its checks.

No jitter is added to the Gram matrix of the mean basis: it is only multiplied, never factorised, and jitter
would enter the full form and not the sampled one (mathematics.md section 4.6).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis, Basis
from numpyro_gp.beliefs.coupled import check_mean
from numpyro_gp.checks import fail, when_known
from numpyro_gp.kernels import Kernel
from numpyro_gp.linalg import matmul, row_times

# Indices of the rows of a mean basis that stand for all of them.
Rows = Int[Array, " J"] | None


def mean_norm(
    kernel: Kernel, points: Float[Array, "G D"], a: Float[Array, "*batch G"], columns: Rows = None
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
    basis: Basis, points: Float[Array, "G D"], a: Float[Array, "*batch G"], t: Float[Array, "*batch M"], columns: Rows
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


def residual_variance(basis: Basis, points: Float[Array, "G D"]) -> Float[Array, " G"]:
    """``diag(H)_i = k_ii - |R_i|^2``, at least zero."""
    return jnp.maximum(basis.diagonal(points) - jnp.sum(basis.features(points) ** 2, axis=0), 0)


def gamma_scale(basis: Basis, points: Float[Array, "G D"], eps: float) -> Float[Array, " G"]:
    """``1 / (diag(H) + eps)`` (mathematics.md section 4.5)."""
    return 1 / (residual_variance(basis, points) + eps)


def check_coefficients(argument: str, a: ArrayLike, name: str, points: Float[Array, "G D"]) -> Float[Array, "*batch G"]:
    """Return mean coefficients, one for each row of ``points``."""
    array = check_mean(argument, a)
    if array.shape[-1] != points.shape[0]:
        required = f"of shape ({points.shape[0]},), or (P, {points.shape[0]}): one coefficient for each row of {name}"
        fail(argument, required, f"shape {array.shape}", f"Pass jnp.zeros({points.shape[0]}) to start at a zero mean.")
    return array


def check_sampled_rows(columns: ArrayLike | None, size: int) -> Rows:
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
