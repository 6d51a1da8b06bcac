"""``latent_inputs``: unobserved input columns, one set for each datum."""

import jax.numpy as jnp
import numpyro

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_points
from numpyro_gp.primitives.opening import check_name
from numpyro_gp.sites import standard_normal


def latent_inputs(name: str, X: ArrayLike, dim: int = 1) -> Array:
    """Inputs that nobody measured, one draw for each datum: sample ``w_n ~ N(0, I)`` and append it, ``[x_n, w_n]``.

    Call it inside the data plate (mathematics.md section 10.1). Leading axes of ``w`` (importance samples) and of
    ``X`` (function draws) broadcast against each other.

    Parameters
    ----------
    name : str
        Name of the site, event shape ``(dim,)``.
    X : array (..., N, D)
        Inputs of the data in the plate.
    dim : int
        Number of latent columns.

    Returns
    -------
    Array (..., N, D + dim)
        Inputs with the latent columns last.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.plate("data", 5):
    ...     ngp.latent_inputs("w", jnp.zeros((5, 2))).shape
    (5, 3)
    """
    inputs = check_points("X", X, leading=True)
    dim = check_count("dim", dim)
    standard = standard_normal((inputs.shape[-2], dim), inputs.dtype, 1)
    w = numpyro.sample(check_name("name", name), standard, infer={"numpyro_gp": "latent"})
    batch = jnp.broadcast_shapes(inputs.shape[:-1], w.shape[:-1])
    left = jnp.broadcast_to(inputs, batch + inputs.shape[-1:])
    return jnp.concatenate([left, jnp.broadcast_to(w, batch + w.shape[-1:])], axis=-1)
