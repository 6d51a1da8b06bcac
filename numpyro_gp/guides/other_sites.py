"""The autoguide of all sites that are no Gaussian process: what it sees of the model, and what it is asked."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtri
from numpyro import handlers
from numpyro.infer import autoguide, init_to_median, init_to_uniform

from numpyro_gp.arrays import Array, Model, Shape
from numpyro_gp.checks import fail, when_known
from numpyro_gp.programs.private import (
    Args,
    Kwargs,
    active_handlers,
    is_density_asked,
    mask_of,
    one_try,
    shared_plates,
    starts_well,
)
from numpyro_gp.programs.set_up import UnfitStart, is_set_up_here
from numpyro_gp.rows.batch_plates import BatchPlate, inside_blocks
from numpyro_gp.sites import (
    Observation,
    Site,
    Trace,
    is_latent,
    role,
    unwrap,
)

# What these say depends on the density of the model that they were made for, not on their parameters alone.
DAIS = (autoguide.AutoDAIS, autoguide.AutoSurrogateLikelihoodDAIS, autoguide.AutoSemiDAIS)
READ_THE_DENSITY = (autoguide.AutoLaplaceApproximation, *DAIS)


def check_rest(rest: object) -> None:
    """Refuse an autoguide, or its class, that reads the density of its model: here every process in it is zero.

    A guide that is a list is looked through.
    """
    rest = getattr(rest, "func", rest)  # of a partial
    for part in rest if isinstance(rest, autoguide.AutoGuideList) else ():
        check_rest(part)
    kind = rest if isinstance(rest, type) else type(rest)
    if issubclass(kind, READ_THE_DENSITY):
        required = "an autoguide that its parameters alone describe"
        got = f"{kind.__name__}, which reads the density of the model: it would see every process held at zero"
        cure = "Use AutoNormal, AutoMultivariateNormal, AutoLowRankMultivariateNormal, AutoIAFNormal or AutoDelta."
        fail("rest", required, got, cure)


def to_median(site: object = None) -> object:
    """NumPyro's start at the median of draws, which promotes ranks where a prior has arrays for parameters."""
    with jax.numpy_rank_promotion("allow"):
        return partial(to_median) if site is None else init_to_median(site)


def at_medians(rest: Any) -> Any:
    """An autoguide class, or a partial of one, that starts at medians of the priors and not anywhere; others unchanged.

    NumPyro's classes start uniformly in (-2, 2) of their unconstrained coordinates, whatever the priors say, and an
    exponential link makes first steps there that an optimiser is slow to forget. A start that is named, by an argument
    of the partial or by the default of the user's own class, is that of the user.
    """
    kind, named = getattr(rest, "func", rest), getattr(rest, "keywords", {})
    if not (isinstance(kind, type) and issubclass(kind, autoguide.AutoGuide)) or "init_loc_fn" in named:
        return rest
    own = inspect.signature(kind).parameters.get("init_loc_fn")
    starts_anywhere = own is not None and own.default is init_to_uniform
    return partial(rest, init_loc_fn=to_median) if starts_anywhere else rest


class Remainder:
    """The model with its GP points and noise held at zero: what the autoguide of the other sites is set up on."""

    def __init__(self, model: Model, sites: set[str]) -> None:
        self.model, self.sites, self.has_density = model, frozenset(sites), True

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if not self.has_density and is_density_asked():
            return numpyro.factor("no_density", 0.0)
        with inside_blocks():
            return handlers.substitute(self.model, substitute_fn=self._zero)(*args, **kwargs)

    @contextmanager
    def without_density(self) -> Iterator[None]:
        """Every start is a good one inside the block: no autoguide then traces a search for one that is."""
        self.has_density = False
        try:
            with one_try():
                yield
        finally:
            self.has_density = True

    def _zero(self, site: Site) -> Array | None:
        if site["type"] == "sample" and site["name"] in self.sites and role(site) is not None:
            return jnp.zeros(site["fn"].shape(), getattr(unwrap(site["fn"]), "dtype", None))
        return None


class NotOfRest:
    """Whether the autoguide of the other sites is not to see a message: one of these sites, or a deterministic one.

    NumPyro's guides run the model again for its deterministic sites, at each draw, and need its arguments for that.
    """

    def __init__(self, sites: set[str]) -> None:
        self.sites = frozenset(sites)

    def __call__(self, site: Site) -> bool:
        return site.get("name") in self.sites or site.get("type") == "deterministic"


def _check_start(is_finite: object) -> None:
    """Have NumPyro search for a start where the first one is not finite."""
    if not is_finite:
        raise UnfitStart


def call_rest(
    rest: object, remainder: Remainder, plates: Mapping[str, object], args: Args, kwargs: Kwargs
) -> dict[str, Any]:
    """Run the autoguide of the other sites with the whole guide's plates, so that minibatches agree."""
    if not isinstance(rest, autoguide.AutoGuide):
        return _latent_values(rest, args, kwargs)
    is_checked_here = rest.prototype_trace is None and is_set_up_here()
    with shared_plates(rest, plates), remainder.without_density() if is_checked_here else nullcontext():
        result: dict[str, Any] = rest(*args, **kwargs)
    if is_checked_here:
        when_known(_check_start, starts_well(rest))
    return result


def _latent_values(rest: object, args: Args, kwargs: Kwargs) -> dict[str, object]:
    """What a guide that is a plain function samples; it need not return it."""
    trace = handlers.trace(rest).get_trace(*args, **kwargs)
    return {name: site["value"] for name, site in trace.items() if is_latent(site)}


def draws_of_rest(rest: Any, key: Array, params: Any, args: Args, kwargs: Kwargs, shape: Shape = ()) -> dict[str, Any]:
    """Draws of the other sites. A guide that is a plain function is run for each, with the arguments of the model."""
    if hasattr(rest, "sample_posterior"):
        return dict(rest.sample_posterior(key, params, *args, sample_shape=shape, **kwargs))
    check_given(rest, args, kwargs, "the guide of the other sites is a function, and runs with them")

    def one(key: Array) -> dict[str, Any]:
        with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(substitute_fn=params.of_site):
            return _latent_values(rest, args, kwargs)

    if not shape:
        return one(key)
    found = jax.lax.map(one, jax.random.split(key, math.prod(shape)))
    return {name: leaf.reshape(shape + leaf.shape[1:]) for name, leaf in found.items()}


def check_given(function: Callable[..., object], args: Args, kwargs: Kwargs, why: str) -> None:
    """Refuse arguments that are not those of a model, or of a guide that is a function, which is to run with them."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        cure = "Pass them after the parameters: guide.sample_posterior(key, params, *args)."
        fail("args", f"those of the model: {why}", f"others ({error})", cure, TypeError)


def median_of_rest(rest: Any, params: Mapping[str, object]) -> dict[str, Any]:
    """Medians of the other sites."""
    _check_answers(rest, "median")
    return dict(rest.median(params))


def _check_answers(rest: object, question: str) -> None:
    if not hasattr(rest, question):
        cure = f"Take the {question} from sample_posterior(key, params, *args, sample_shape=(1000,))."
        fail("rest", f"an autoguide to be asked for {question}", f"a {type(rest).__name__}", cure)


def quantiles_of_rest(rest: Any, params: Mapping[str, object], levels: Array) -> dict[str, object]:
    """Quantiles of the other sites, levels on the first axis."""
    _check_answers(rest, "quantiles")
    if type(rest).quantiles is not autoguide.AutoGuide.quantiles:
        return dict(rest.quantiles(params, levels))
    if not isinstance(rest, autoguide.AutoDelta):
        cure = "Take them from sample_posterior(key, params, *args)."
        fail("rest", "an autoguide with quantiles, such as AutoNormal", type(rest).__name__, cure)
    # A point mass has one value at every level.
    return {n: jnp.broadcast_to(value, levels.shape + jnp.shape(value)) for n, value in rest.median(params).items()}


# --------------------------------------------------------------------------------------
# What ``AutoGP`` makes of the recipe of one site, and what it answers about that site.


def data_plates(trace: Trace, site: str | None = None) -> frozenset[str]:
    """The rightmost plate around sites that `observe` opened: what stands in it belongs to single data.

    That of the data ``site``, or those of all data that are not observed, or of all where none is left to predict:
    members of a plate whose own data are given are members of the fit.
    """
    data = [s for s in trace.values() if s["type"] == "sample" and isinstance(unwrap(s["fn"]), Observation)]
    data = [trace[site]] if site is not None else [s for s in data if is_latent(s)] or data
    frames = [max(s["cond_indep_stack"], key=lambda frame: frame.dim) for s in data if s["cond_indep_stack"]]
    return frozenset(frame.name for frame in frames)


def site_quantiles(name: str, fn: dist.Distribution, levels: Array) -> Array:
    """Quantiles of each entry of a site's value, levels on the first axis."""
    inner, shape = fn, fn.batch_shape + fn.event_shape
    while isinstance(inner, (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)):
        inner = inner.base_dist
    dtype = jnp.result_type(*jax.tree.leaves(inner))
    levels = levels.astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else levels

    def at(level: Array) -> Array:
        if isinstance(inner, dist.Delta):  # one value at every level
            return jnp.asarray(inner.v)
        if isinstance(inner, (dist.MultivariateNormal, dist.LowRankMultivariateNormal)):
            return jnp.asarray(inner.mean + ndtri(level) * jnp.sqrt(inner.variance))
        try:
            return jnp.asarray(inner.icdf(level))
        except (RuntimeError, ImportError):  # NumPyro has none, or none without a package that is not there
            cure = "Take them from guide.sample_posterior(key, params, *args)."
            fail(f"the distribution of site {name!r}", "one whose quantiles are known", type(inner).__name__, cure)

    return jax.vmap(lambda level: jnp.broadcast_to(at(level), shape))(levels)


def check_renyi(trace: Trace) -> None:
    """Refuse the bound of Renyi for functions drawn in the model: their beliefs enter by a divergence.

    The logarithm of an average of ``exp(l - KL)`` over draws of inner layers from their beliefs is no bound: it has the
    divergence where importance weights need the ratio of the densities at the draw.
    """
    if drawn := [name for name, site in trace.items() if role(site) in ("noise", "function")]:
        required, cure = "a bound", "Use Trace_ELBO, or ngp.ImportanceWeightedELBO for latent inputs."
        got = "RenyiELBO, which is none: a belief enters by its divergence, not by a weight of each draw"
        fail(f"the objective of a model that draws inner functions, {drawn},", required, got, cure)


def check_masks(trace: Trace) -> None:
    """Refuse a mask over latent values of rows: this guide would gain from the spread of what the model has hidden."""
    if any(isinstance(handler, BatchPlate) for handler in active_handlers()):  # whose mask model and guide share
        return
    for name, site in trace.items():
        # An array is refused whatever it holds: inside of a program nobody knows.
        if is_latent(site) and role(site) not in (None, "gp") and mask_of(site["fn"]) is not True:
            cure = "Put handlers.mask around ngp.observe alone: latent values of rows without data stay at their prior."
            fail(f"site {name!r}", "outside of handlers.mask", "a mask over it", cure)
