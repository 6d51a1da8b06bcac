"""Inputs that were measured with an error of known spread (mathematics.md section 10.5)."""

import jax.numpy as jnp
import numpy as np
import numpyro

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_nonnegative, check_points, fail
from numpyro_gp.primitives.opening import check_name
from numpyro_gp.sites import standard_normal


def noisy_inputs(name: str, X: ArrayLike, scale: ArrayLike) -> Array:
    """Inputs ``x_n ~ N(X_n, scale_n^2)`` in place of measured ones, one draw for each datum: ``X + scale * e``.

    Call it inside the data plate, and the process at what it returns: ``f(ngp.noisy_inputs("x", X[idx], scale[idx]))``.
    The site holds the error in units of its spread, ``e ~ N(0, I)``, for which every engine has what it needs:
    `AutoGP` a free Normal for each datum or `guides.amortised`, NUTS and particles the errors themselves. A prediction
    of new rows draws their errors from the prior, anew for each draw of the posterior: ask for some hundred
    (``num_samples=300``), and pass a ``scale`` of zero for inputs that are known.

    Parameters
    ----------
    name : str
        Name of the site, event shape ``(D,)``.
    X : array (..., N, D)
        Inputs as measured, of the data in the plate.
    scale : array
        Standard deviation of their errors: one, one for each column ``(D,)``, or one for each entry ``(N, D)``. A
        column of zeros is known.

    Returns
    -------
    Array (..., N, D)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.zeros((5, 2))
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.plate("data", 5):
    ...     x = ngp.noisy_inputs("x", X, jnp.array([0.1, 0.0]))
    >>> x.shape, x[:, 1].tolist()
    ((5, 2), [0.0, 0.0, 0.0, 0.0, 0.0])
    """
    inputs = check_points("X", X, leading=True)
    spread = check_nonnegative("scale", scale).astype(inputs.dtype)
    rows = inputs.shape[-2:]
    if spread.shape not in ((), rows[1:], rows):
        cure = "Give each row its own with scale[:, None], broadcast over the columns; in a minibatch scale[idx]."
        required = f"of shape (), {(rows[1],)} or {rows}"
        fail("scale", required, f"shape {spread.shape}", cure)
    standard = standard_normal(rows, inputs.dtype, 1)
    errors = numpyro.sample(check_name("name", name), standard, infer={"numpyro_gp": "latent"})
    shape = (*np.broadcast_shapes(inputs.shape[:-1], errors.shape[:-1]), rows[1])
    moved = jnp.broadcast_to(spread, rows) if spread.ndim < 2 else spread
    every = [jnp.broadcast_to(part, shape) for part in (inputs, moved, errors)]
    return every[0] + every[1] * every[2]
