"""Recipe of the decoupled layer (mathematics.md section 5)."""

import math
from functools import partial

import jax.numpy as jnp

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.beliefs.layer import DecoupledLayer
from numpyro_gp.checks import check_choice, fail
from numpyro_gp.guides.decoupled import MeanPoints
from numpyro_gp.guides.natural import lower_factor
from numpyro_gp.guides.recipes import Recipe, identity_factor, member_param, start_scale
from numpyro_gp.sites import InducingPrior


def decoupled_layer(
    Z_mean: ArrayLike,
    mean: str = "gpcent",
    covariance: str = "gp",
    *,
    scale: float = 1.0,
    train_inputs: bool = True,
    columns: int | None = None,
) -> Recipe:
    """A layer of a deep model with points of its own for the mean: `DecoupledLayer`.

    Parameters
    ----------
    Z_mean : array (M_a, D)
        Mean inducing inputs at the start.
    mean : {"gpcent", "gp", "cb"}
    covariance : {"gp", "cb"}
    scale : float
        Standard deviation of the whitened values at the start, as for ``coupled``: 1e-2 or less in inner layers. With
        ``covariance="cb"``, whose start ``B = 0`` would be stationary, 1 means nearly the prior.
    train_inputs : bool
        Whether ``Z_mean`` is a parameter.
    columns : int, optional
        For ``mean="cb"``: number of rows of ``K_aa`` drawn anew in every step for ``a^T K_aa a``. None is exact.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> Z_mean = np.linspace(0.0, 1.0, 20)[:, None]
    >>> recipes = {"f": ngp.guides.decoupled_layer(Z_mean, scale=0.01)}   # for ngp.AutoGP(model, recipes)
    """
    check_choice("mean", mean, ("gpcent", "gp", "cb"))
    check_choice("covariance", covariance, ("gp", "cb"))
    start_scale(scale)
    if columns is not None and mean != "cb":
        fail("columns", "None but for mean='cb', whose norm is a sum over rows", columns, "Leave it out.")
    points = MeanPoints.checked("Z_mean", Z_mean, columns, train_inputs)._replace(parameter="inducing_mean")
    return partial(_decoupled_layer, at=points, mean=mean, covariance=covariance, scale=scale)


def _decoupled_layer(
    name: str, prior: InducingPrior, *, at: MeanPoints, mean: str, covariance: str, scale: float
) -> DecoupledLayer:
    shape, dtype, points, drawn = prior.shape(), prior.dtype, at.inputs(name, prior), at.drawn(name)
    parameter = member_param(f"{name}/mean", prior, jnp.zeros(shape[:-1] + points.shape[:1], dtype))
    if covariance == "gp":
        start = identity_factor(shape, scale, dtype)
        factor = member_param(f"{name}/scale_tril", prior, start, 2, constraint=lower_factor)
        return DecoupledLayer(points, parameter, mean, scale_tril=factor, columns=drawn)
    # One observation of precision b^2 at each inducing input leaves about 1 / (1 + b^2) of its variance.
    root = max(0.01, math.sqrt(max(scale**-2 - 1, 0.0)))
    lower = jnp.tril(member_param(f"{name}/B_tril", prior, identity_factor(shape, root, dtype), 2))
    return DecoupledLayer(points, parameter, mean, B_tril=lower, columns=drawn)
