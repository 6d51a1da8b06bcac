"""Recipes: how a guide declares the parameters of one site and makes its belief from them.

A recipe is any callable ``recipe(name, prior) -> belief``, where ``prior`` is the site's `InducingPrior`: its
``event_shape`` is that of the whitened values, its ``basis`` has the inducing inputs. In plates its ``shape()`` has
the axes of the whole plates on the left, and its ``basis`` is that of their first member: for what steers the speed
of training alone. Parameters of the members are declared by `member_param`, which hands out those of a minibatch.
It may also return a NumPyro distribution, for sites that are not Gaussian processes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape
from numpyro_gp.beliefs import Conditional, Coupled, MeanField
from numpyro_gp.beliefs.coupled import CovarianceMoments
from numpyro_gp.beliefs.neighbours.pseudo_rows import PseudoRows
from numpyro_gp.checks import check_positive, fail
from numpyro_gp.guides.natural import lower_factor, natural_expectations, natural_param
from numpyro_gp.primitives.neighbours.row_sites import RowPrior
from numpyro_gp.sites import InducingPrior

Recipe = Callable[[str, Any], Any]


class LocalPrior(NamedTuple):
    """What a recipe is told about a local site: its prior, its dtype, and its shape over the whole plate.

    ``named`` has the arguments of the model by its own names for them, None for those that are not passed.
    """

    prior: dist.Distribution
    dtype: np.dtype
    full_shape: Shape
    event_shape: Shape
    arguments: tuple[object, ...]
    keywords: Mapping[str, object]
    named: Mapping[str, object] = {}


def start_scale(scale: ArrayLike) -> None:
    """Check the standard deviation at which a belief starts."""
    array = check_positive("scale", scale)
    if array.ndim:
        fail("scale", "one positive number", f"shape {array.shape}", "Pass a number such as 1.0.")


def identity_factor(shape: Shape, scale: float, dtype: np.dtype) -> Array:
    """``scale * I`` for each output: factors ``(M, M)`` or ``(P, M, M)``."""
    return jnp.broadcast_to(scale * jnp.eye(shape[-1], dtype=dtype), shape + shape[-1:])


def coupled(*, natural: bool = False, scale: float = 1.0, mean: ArrayLike | None = None) -> Recipe:
    """The usual recipe: a full covariance over the site's inducing values, `Coupled` (mathematics.md section 3).

    Parameters
    ----------
    natural : bool
        Store natural parameters, for `ngp.optim.natural_gradient`; Adam alone would end in NaN.
    scale : float
        Standard deviation of the whitened values at the start; 1 is the prior, small values suit inner layers.
    mean : array, optional
        Whitened mean at the start; zero is the prior.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`. It is the default of `gp` sites.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> recipes = {"f": ngp.guides.coupled(natural=True)}   # for ngp.AutoGP(model, recipes)
    """
    start_scale(scale)
    return partial(_coupled, natural=natural, scale=scale, mean=mean)


def member_param(name: str, prior: InducingPrior, start: object, axes: int = 1, **options: object) -> Array:
    """Declare a parameter of a site's belief, with ``axes`` axes after those of plates and outputs.

    Inside plates NumPyro hands out the members of the minibatch.
    """
    return numpyro.param(name, start, event_dim=prior.event_dim - 1 + axes, **options)


def start_mean(name: str, prior: InducingPrior, mean: ArrayLike | None) -> Array:
    """Whitened mean at the start, of all members of plates."""
    if hasattr(prior, "basis_of") and not hasattr(prior, "basis"):
        got, cure = "one of inducing values", "Leave it to AutoGP, or take ngp.guides.pseudo_data()."
        fail(f"the recipe of site {name!r}", "one of pseudo-data, as its rows have neighbours", got, cure)
    if not hasattr(prior, "basis"):
        got = "a belief's recipe at a site that no gp opened"
        cure = "Give other sites to rest=, or a recipe that returns a NumPyro distribution."
        fail(f"the recipe of site {name!r}", "one for its kind of site", got, cure)
    if mean is None:
        return jnp.zeros(prior.shape(), prior.dtype)
    start = jnp.asarray(mean, prior.dtype)
    if start.shape not in (prior.event_shape, prior.shape()):
        cure = f"Pass jnp.zeros({tuple(prior.shape())}), or give each site a recipe of its own."
        fail(f"mean of the recipe for {name!r}", f"of shape {prior.shape()}", f"shape {start.shape}", cure)
    return jnp.broadcast_to(start, prior.shape())


def _coupled(name: str, prior: InducingPrior, *, natural: bool, scale: float, mean: ArrayLike | None) -> Coupled:
    center, axes = start_mean(name, prior, mean), prior.event_dim
    if not natural:
        center, start = member_param(f"{name}/mean", prior, center), identity_factor(prior.shape(), scale, prior.dtype)
        return Coupled(center, member_param(f"{name}/scale_tril", prior, start, 2, constraint=lower_factor))
    shift = natural_param(name, "shift", center / scale**2, axes)
    start = identity_factor(prior.shape(), scale**-2, prior.dtype)
    found = natural_expectations(shift, natural_param(name, "precision", start, axes + 1))
    return Coupled(found.mean, found.scale_tril, CovarianceMoments(found.covariance, found.divergence))


def conditional(*, natural: bool = True, noise: str | None = None, joint: bool = False) -> Recipe:
    """A belief that follows the hyper-parameters, `Conditional`: use it where they are uncertain, or move far.

    It stores pseudo-data, what the data said at the inducing inputs, and starts at the prior, where nothing was said.
    Beside it ``rest=AutoMultivariateNormal`` lets hyper-parameters vary together. A step costs one more factorisation
    of ``M x M`` than that of ``coupled(natural=True)``. With a likelihood that is not log-concave, as Student's t, an
    outlier can say less than nothing, and a long step may leave the positive definite matrices: the bound is then NaN,
    and `fit` stops. Take a ``step`` of 0.3 or less, or `ngp.optim.ramp`: nothing is repaired silently.

    Parameters
    ----------
    natural : bool
        Natural steps by `ngp.optim.natural_gradient` (mathematics.md section 14.3). There are no others: plain steps
        on pseudo-data, by Adam alone, do not arrive.
    noise : str, optional
        Site that samples the standard deviation of a `likelihoods.Gaussian`, which the pseudo-data are then measured
        in: what few rows say of a function and of its noise hang together. With inducing inputs at all rows the belief
        is exact at every value of the hyper-parameters (mathematics.md section 14.1).
    joint : bool
        Whether the pseudo-data move with the other sites, linearly in the coordinates of
        ``rest=AutoMultivariateNormal``, which it then needs. For models that add something sampled to the process: an
        intercept, effects of groups, coefficients. Where these are higher, the data leave less for the process
        (mathematics.md section 14.1). There are as many slopes for each inducing input as the other sites have numbers.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`, at a `gp` or an `additive_gp`.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> from numpyro.infer.autoguide import AutoMultivariateNormal
    >>> recipes = {"f": ngp.guides.conditional()}   # for ngp.AutoGP(model, recipes, rest=AutoMultivariateNormal)
    """
    if natural is not True:
        cure = "Train it with ngp.optim.natural_gradient, or take ngp.guides.coupled() for other optimisers."
        fail("natural", "True, as plain steps on pseudo-data do not arrive", natural, cure)
    if noise is not None and not isinstance(noise, str):
        cure = 'Name the site that samples it: noise="noise".'
        fail("noise", "the name of a site", f"a {type(noise).__name__}", cure, TypeError)
    return partial(_conditional, noise=noise, joint=joint)


def _conditional(name: str, prior: InducingPrior, *, noise: str | None, joint: bool) -> Conditional:
    start, axes = start_mean(name, prior, None), prior.event_dim
    shift = natural_param(name, "shift", start, axes)
    precision = natural_param(name, "precision", jnp.zeros((*start.shape, start.shape[-1]), prior.dtype), axes + 1)
    return Conditional(shift, precision, is_natural=True, noise_site=noise, is_joint=joint)


def mean_field(*, scale: float = 1.0, mean: ArrayLike | None = None) -> Recipe:
    """Independent whitened inducing values, for very many of them: `MeanField`.

    Parameters
    ----------
    scale : float
        Standard deviation of the whitened values at the start; 1 is the prior.
    mean : array, optional
        Whitened mean at the start; zero is the prior.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> recipes = {"f": ngp.guides.mean_field(scale=0.1)}   # for ngp.AutoGP(model, recipes)
    """
    start_scale(scale)
    return partial(_mean_field, scale=scale, mean=mean)


def _mean_field(name: str, prior: InducingPrior, *, scale: float, mean: ArrayLike | None) -> MeanField:
    center = member_param(f"{name}/mean", prior, start_mean(name, prior, mean))
    start = jnp.full(prior.shape(), scale, prior.dtype)
    return MeanField(center, member_param(f"{name}/scale", prior, start, constraint=constraints.softplus_positive))


def free_latent(*, scale: float = 0.1) -> Recipe:
    """A free Normal for the latent inputs of each datum: what `latent_inputs` sites get where nothing is said.

    It stands inside their plate. New rows have no parameters, and are drawn from the prior.

    Parameters
    ----------
    scale : float
        Standard deviation at the start.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`, at a `latent_inputs` site.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> recipes = {"w": ngp.guides.free_latent(scale=0.01)}   # for ngp.AutoGP(model, recipes)
    """
    start_scale(scale)
    return partial(_free_latent, scale=scale)


def _free_latent(name: str, prior: LocalPrior, *, scale: float) -> dist.Distribution:
    # Parameters span the whole plate; inside it NumPyro hands out the rows of the minibatch.
    shape, dtype = prior.full_shape, prior.dtype
    loc = numpyro.param(f"{name}/loc", jnp.zeros(shape, dtype), event_dim=1)
    start = jnp.full(shape, scale, dtype)
    spread = numpyro.param(f"{name}/scale", start, constraint=constraints.softplus_positive, event_dim=1)
    return dist.Normal(loc, spread).to_event(1)


# --------------------------------------------------------------------------------------
# The recipe of a process by neighbours: one pseudo-datum for each row of the data.


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
    return _pseudo_data_recipe


def _pseudo_data_recipe(name: str, prior: object) -> PseudoRows:
    if not isinstance(prior, RowPrior):
        cure = "Open it by ngp.gp(name, kernel, near[idx]), or take ngp.guides.coupled()."
        fail(f"the site {name!r} of pseudo_data()", "a process whose rows have neighbours", "another", cure)
    start = jnp.zeros(prior.size, prior.dtype)
    # Whole in the plate: a row reads the pseudo-data of its neighbours, which a minibatch need not hold.
    shift, precision = (natural_param(name, f"row_{kind}", start, None) for kind in ("shift", "precision"))
    return PseudoRows(shift, precision)
