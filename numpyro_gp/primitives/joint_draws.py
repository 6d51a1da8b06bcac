"""One function at the several inputs of a datum, drawn through its whitened values: a factor ``K`` cheaper."""

from contextlib import AbstractContextManager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, set_to
from numpyro_gp.beliefs import Coupled
from numpyro_gp.beliefs.base import Process
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.batch_basis import BatchBasis
from numpyro_gp.linalg import add_to_diagonal, einsum, matmul, small_cholesky
from numpyro_gp.means import Mean
from numpyro_gp.primitives.lifted import LiftedMean
from numpyro_gp.sites import Site

_is_free: ContextVar[bool] = ContextVar("_is_free", default=False)


def free_noise() -> AbstractContextManager[bool]:
    """Inside, a draw may open noise sites that guides do not know: for engines that take noise from the model alone."""
    return set_to(_is_free, True)


def values_to_draw(process: Process, basis: AbstractBasis, mean: Mean, noise: Site) -> Coupled | None:
    """The belief whose whitened values a draw goes through; None where it takes the joint covariance of its inputs.

    ``noise`` is the site of the inputs' own noise. A value that the user gave it is the noise of that covariance.
    """
    is_drawn = _is_free.get() and noise["kwargs"]["rng_key"] is not None
    is_plain = not isinstance(basis, BatchBasis) and not isinstance(mean, LiftedMean)  # rows of one process and unit
    return process if is_drawn and is_plain and isinstance(process, Coupled) else None


def drawn_through(
    belief: Coupled,
    basis: AbstractBasis,
    rows: Float[Array, "R N D"],
    values: Float[Array, "N *batch M"],
    white: Float[Array, "R N *batch"],
    relative: float,
) -> Float[Array, "R N *batch"]:
    """``f_r = a_r . (m + C z) + (chol(k(X, X) - A^T A + eps I) e)_r`` for the R inputs of each of N data.

    ``z`` (``values``) is standard normal, one draw for each datum and output, and so is ``e`` (``white``): the same
    distribution as by the joint covariance, whose ``C^T a_r`` cost ``M^2`` for every input (mathematics.md
    section 10.2). ``eps`` is ``relative`` to the mean prior variance.
    """
    sets, count, columns = rows.shape
    rows = jnp.swapaxes(rows, 0, 1)
    every = rows.reshape(-1, columns)  # of one datum after another: devices that have pieces of the data keep them
    features = basis.features(every).reshape(-1, count, sets)
    drawn = belief.mean[..., None] + matmul(belief.scale_tril, jnp.moveaxis(values, 0, -1))
    prior = jax.vmap(basis.matrix)(rows)
    amount = relative * jnp.mean(basis.diagonal(every))
    rest = add_to_diagonal(prior - einsum("mnr,mns->nrs", features, features), jnp.broadcast_to(amount, (count, sets)))
    return einsum("mnr,...mn->rn...", features, drawn) + einsum("nrs,sn...->rn...", small_cholesky(rest), white)
