"""What data said about a process, as normal pseudo-data at its inducing inputs (mathematics.md section 14.1).

``t(u) = exp(shift . u - u^T precision u / 2)`` over ``u = f(Z) = level + L v``, the mean function included. It stands
still while hyper-parameters move; `Conditional` has the distribution of the whitened values at each of them.
"""

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, over_axes
from numpyro_gp.linalg import identity_like, matmul, solve_lower

Vector = Float[Array, "*#batch M"]
Square = Float[Array, "*#batch M M"]


def pseudo_data_of(
    mean: Vector, scale_tril: Square, factor: Square, level: Vector | None = None
) -> tuple[Float[Array, "*batch M"], Float[Array, "*batch M M"]]:
    """The pseudo-data that make ``N(mean, C C^T)`` of the whitened values at the factor of their fit: the way back.

    ``Lambda = L^-T (S^-1 - I) L^-1`` and ``shift = L^-T S^-1 mean + Lambda level`` (mathematics.md section 14.2). Where
    ``S`` is wider than the prior in some direction, as in a fit that has not converged, that direction is left to the
    prior: negative eigenvalues of ``S^-1 - I`` become zero. The mean is kept.

    Parameters
    ----------
    mean, scale_tril : Array (..., M), (..., M, M)
        Whitened mean and lower factor ``C``.
    factor : Array (..., M, M)
        ``L`` with ``L L^T = k(Z, Z) + eps I``, at the hyper-parameters of that fit.
    level : Array (..., M), optional
        Mean function at ``Z``.

    Returns
    -------
    shift : Array (..., M)
    precision : Array (..., M, M)
    """
    arrays = [(mean, 1), (scale_tril, 2), (factor, 2), *([] if level is None else [(level, 1)])]
    lead = jnp.broadcast_shapes(*[array.shape[: array.ndim - rank] for array, rank in arrays])
    axes = tuple(0 if array.ndim > rank else None for array, rank in arrays)
    # What all members share is not repeated.
    whole = [jnp.broadcast_to(a, lead + a.shape[a.ndim - r :]) if a.ndim > r else a for a, r in arrays]
    return over_axes(_pseudo_data, len(lead), axes)(*whole)


def positive_part(precision: Square) -> Square:
    """The symmetric matrices with their negative eigenvalues set to zero."""
    values, vectors = jnp.linalg.eigh(precision)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))[..., None, :]
    return matmul(root, jnp.swapaxes(root, -1, -2))


def _pseudo_data(mean: Array, scale_tril: Array, factor: Array, level: Array | float = 0.0) -> tuple[Array, Array]:
    inverse = solve_lower(scale_tril, identity_like(scale_tril))
    values, vectors = jnp.linalg.eigh(matmul(inverse.T, inverse) - identity_like(inverse))
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))[None]
    pulled = mean + matmul(root, matmul(root.T, mean))  # S^-1 mean
    found = solve_lower(factor, jnp.concatenate([root, pulled[:, None]], axis=-1), transpose=True)
    side, shift = found[:, :-1], found[:, -1]
    precision = matmul(side, side.T)
    return shift + matmul(precision, jnp.broadcast_to(level, shift.shape)), precision
