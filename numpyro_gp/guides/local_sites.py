"""What ``AutoGP`` makes of the recipe of one site, and what it answers about that site."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import ndtri

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.checks import fail
from numpyro_gp.programs.private import active_handlers, mask_of
from numpyro_gp.rows.batch_plates import BatchPlate
from numpyro_gp.sites import Belief, Observation, Site, Trace, is_latent, role, standard_normal, unwrap


def described(name: str, kind: str | None, value: object) -> dist.Distribution:
    """What a recipe returned, as the distribution of its site: a belief, or a distribution where that is enough."""
    if isinstance(value, AbstractBelief):
        return Belief(value)
    if not isinstance(value, dist.Distribution):
        required, got = "a function that returns a belief or a NumPyro distribution", type(value).__name__
        cure = "Return a belief, such as ngp.beliefs.Coupled(mean, scale_tril): help(ngp.guides) says what a recipe is."
        fail(f"the recipe of site {name!r}", required, f"one that returned a {got}", cure, TypeError)
    if kind == "gp" and not isinstance(unwrap(value), (Belief, dist.Delta)):
        # The process would be drawn in training, and stand at the mean of its values in predictions.
        required, got = "one that returns a belief, or a Delta: the site is a process", type(unwrap(value)).__name__
        cure = "Return a belief with these moments: ngp.beliefs.MeanField(mean, scale) or Coupled(mean, scale_tril)."
        fail(f"the recipe of site {name!r}", required, f"one that returned a {got}", cure, TypeError)
    return value


def standard_normal_of(site: Site) -> dist.Distribution:
    """The noise of a function draw in the guide: its own prior, of the site's event shape."""
    fn, value = site["fn"], site["value"]
    in_plates = {frame.dim for frame in site["cond_indep_stack"]}
    batch = [1 if -i in in_plates else size for i, size in zip(range(len(fn.batch_shape), 0, -1), fn.batch_shape)]
    return standard_normal(tuple(batch) + fn.event_shape, value.dtype, fn.event_dim)


def data_plates(trace: Trace, site: str | None = None) -> frozenset[str]:
    """The rightmost plate around sites that `observe` opened: what stands in it belongs to single data.

    That of the data ``site``, or those of all data that are not observed, or of all where none is left to predict:
    members of a plate whose own data are given are members of the fit.
    """
    data = [s for s in trace.values() if s["type"] == "sample" and isinstance(unwrap(s["fn"]), Observation)]
    data = [trace[site]] if site is not None else [s for s in data if is_latent(s)] or data
    frames = [max(s["cond_indep_stack"], key=lambda frame: frame.dim) for s in data if s["cond_indep_stack"]]
    return frozenset(frame.name for frame in frames)


def shared_sites(sites: Trace, plates: frozenset[str]) -> dict[str, Site]:
    """The user's own latent sites that belong to no single data: those outside of the ``plates`` of data."""
    frames = {name: {frame.name for frame in site["cond_indep_stack"]} for name, site in sites.items()}
    return {n: s for n, s in sites.items() if is_latent(s) and role(s) is None and not frames[n] & plates}


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
