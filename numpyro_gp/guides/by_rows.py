"""The recipe of a process by neighbours: one pseudo-datum for each row of the data."""

import jax.numpy as jnp

from numpyro_gp.beliefs.pseudo_rows import PseudoRows
from numpyro_gp.checks import fail
from numpyro_gp.guides.natural import natural_param
from numpyro_gp.guides.recipes import Recipe
from numpyro_gp.primitives.gp_by_neighbours import RowPrior


def pseudo_data() -> Recipe:
    """One normal pseudo-datum for each row, `PseudoRows`: what ``gp("f", kernel, near[idx])`` gets by default.

    Every row has a shift and a precision of its own, which start at 0, where nothing was said. They train by
    ``ngp.optim.natural_gradient(optax.adam(0.03))``, whose step is 0.7 for them: a row moves when a minibatch holds it,
    and its step is not that of all data. No step can fail, as precisions stay at 0 or above (mathematics.md section
    16.4). For Gaussian noise a step of 1 makes them the data.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> recipes = {"f": ngp.guides.pseudo_data()}   # for ngp.AutoGP(model, recipes)
    """
    return _pseudo_data


def _pseudo_data(name: str, prior: object) -> PseudoRows:
    if not isinstance(prior, RowPrior):
        cure = "Open it by ngp.gp(name, kernel, near[idx]), or take ngp.guides.coupled()."
        fail(f"the site {name!r} of pseudo_data()", "a process whose rows have neighbours", "another", cure)
    start = jnp.zeros(prior.rows.near.size, prior.dtype)
    # Whole in the plate: a row reads the pseudo-data of its neighbours, which a minibatch need not hold.
    shift, precision = (natural_param(name, f"row_{kind}", start, None) for kind in ("shift", "precision"))
    return PseudoRows(shift, precision)
