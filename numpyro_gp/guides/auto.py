"""``AutoGP``: a NumPyro guide made of one recipe for each GP site and an ordinary autoguide for the rest."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import ndtri
from numpyro import handlers

from numpyro_gp.arrays import Array, Shape
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.neighbours.pseudo_rows import PseudoRows
from numpyro_gp.checks import check_type, fail
from numpyro_gp.guides import other_sites as local_sites
from numpyro_gp.guides.fit_registry import fits_of, known_fit
from numpyro_gp.guides.other_sites import draws_of_rest, median_of_rest, quantiles_of_rest
from numpyro_gp.guides.own_sites import GuideOfSites, OnBases
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.programs.private import Args, Kwargs
from numpyro_gp.sites import Belief, Site, Trace, role

# Sites whose values are asked for after a fit: all but the noise of functions drawn in the model.
KINDS = ("gp", "latent", None)


class AutoGP(GuideOfSites):
    """The guide of a model for SVI: a belief at every GP site, and an autoguide over everything else.

    Parameters
    ----------
    model : callable
        NumPyro model with `gp` sites.
    recipes : dict, optional
        Site name to recipe (`ngp.guides`). GP sites that are not named get ``coupled()``, latent inputs
        ``free_latent()``. Naming a site of another kind gives it to that recipe.
    rest : callable
        ``AutoDelta``, ``AutoNormal`` or any ``model -> guide`` for all other sites; the guide may be a function of
        your own with the arguments of the model. A class starts at medians of the priors, where NumPyro's own start
        is random; ``lambda model: AutoNormal(model, init_loc_fn=...)`` starts where you say. The model that it gets has
        every process held at zero: autoguides that read its density (Laplace, DAIS) are refused.
    prefix, create_plates
        As in NumPyro's guides.

    Examples
    --------
    >>> import jax, numpyro, numpyro.distributions as dist, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X)
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    >>> X = jax.numpy.linspace(0.0, 1.0, 5)[:, None]
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     guide(X, X[:, 0])["f"].shape
    (5,)
    """

    def _distributions(
        self, params: "FittedParams", args: Args, kwargs: Kwargs, sites: Trace | None = None
    ) -> dict[str, dist.Distribution]:
        """Distribution of each of this guide's own sites, or of some, at given parameters, over the whole plate."""
        found: dict[str, dist.Distribution] = {}
        for name, site in (self._mine() if sites is None else sites).items():
            if role(site) not in KINDS:
                continue
            with handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(substitute_fn=params.of_site):
                found[name] = self._distribution(name, site, args, kwargs)
        return found

    @alone
    def beliefs(self, params: Mapping[str, object]) -> dict[str, AbstractBelief]:
        """The belief at each GP site at given parameters."""
        own, params = self._fitted(params)
        found = own._distributions(params, (), {}, {n: site for n, site in own._mine().items() if role(site) == "gp"})
        return {name: fn.value if isinstance(fn, Belief) else fn.mean for name, fn in found.items()}

    @alone
    def global_values(
        self, rng_key: Array, params: Mapping[str, object], *args: object, **kwargs: object
    ) -> dict[str, Any]:
        """One draw of the sites outside every plate of local sites, with beliefs at the GP sites: for prediction."""
        return self.values_outside(None, rng_key, params, args, kwargs)

    @alone
    def values_outside(
        self, plates: frozenset[str] | None, rng_key: Array, params: Mapping[str, object], args: Args, kwargs: Kwargs
    ) -> dict[str, Any]:
        """`global_values` outside of these plates, by default those of the data that the guide was set up on."""
        own, params = self._fitted(params)
        values, plates = own.beliefs(params), own._data_plates if plates is None else plates
        found = own._distributions(params, args, kwargs, local_sites.shared_sites(own._mine(), plates))
        rng_key, *keys = jax.random.split(rng_key, 1 + len(found)) if found else [rng_key]
        values.update({name: found[name].sample(key) for name, key in zip(found, keys, strict=True)})
        if own.rest is not None:
            values.update(draws_of_rest(own.rest, rng_key, params, args, kwargs))
        at = own._coordinates(values, values.values(), params)
        return {n: one.given(values, at) if isinstance(one, AbstractBelief) else one for n, one in values.items()}

    def _fitted(self, params: Mapping[str, object]) -> tuple["AutoGP", "FittedParams"]:
        """The guide as the fit of the parameters set it up, where that is known, and the parameters."""
        if self.prototype_trace is None:
            cure = "Run svi.init or call the guide first."
            fail("the guide", "initialised", "one that has not seen data", cure, RuntimeError)
        check_type("params", params, Mapping, "a dictionary of parameters", "Pass result.params.")
        found = known_fit(self, params) if any(fit.guide is not None for fit in fits_of(self)) else None
        return self if found is None or found.guide is None else found.guide, FittedParams(params)

    @alone
    def sample_posterior(
        self, rng_key: Array, params: dict[str, object], *args: object, sample_shape: Shape = (), **kwargs: object
    ) -> dict[str, Any]:
        """Draws of all latent sites; GP sites give whitened values ``v`` drawn from the belief's marginals of ``v``.

        A belief that reads its basis, as `Conditional`, needs the arguments of the model: its
        values are those at each draw of the hyper-parameters.
        """
        own, params = self._fitted(params)
        key_rest, key = jax.random.split(rng_key)
        result: dict[str, Any] = {}
        following: dict[str, AbstractBelief] = {}
        if own.rest is not None:
            result.update(draws_of_rest(own.rest, key_rest, params, args, kwargs, sample_shape))
        for name, fn in own._distributions(params, args, kwargs).items():
            key, key_site = jax.random.split(key)
            if _is_by_rows(fn):
                cure = "Predict with ngp.Posterior, and take hyper-parameters from its hyperparameters(key, *args)."
                fail(f"the site {name!r}", "a process of inducing inputs, to draw values of", "one by neighbours", cure)
            if isinstance(fn, Belief) and not fn.value.holds_whitened:
                following[name] = fn.value
            elif isinstance(fn, Belief):
                result[name] = fn.value.draw_whitened(key_site, sample_shape)
            else:
                result[name] = fn.sample(key_site, sample_shape)
        if following:
            moved = partial(own._coordinates, beliefs=following.values(), params=params)
            at = OnBases(own.model, following, params, args, kwargs, moved)
            result.update(at.draws(key, result, sample_shape, own.is_random))
        return result

    @alone
    def median(self, params: Mapping[str, object], *args: object, **kwargs: object) -> dict[str, Any]:
        """Medians of all latent sites, in constrained space; whitened means at GP sites.

        A belief that reads its basis needs the arguments of the model; its values are at the medians of the others.
        Processes by neighbours have no whitened means, and are left out.
        """
        own, params = self._fitted(params)
        rest = {} if own.rest is None else median_of_rest(own.rest, params)
        found = own._own_quantiles(params, jnp.asarray([0.5]), rest, args, kwargs)
        return {**rest, **{name: value[0] for name, value in found.items()}}

    @alone
    def quantiles(
        self, params: Mapping[str, object], quantiles: object, *args: object, **kwargs: object
    ) -> dict[str, Any]:
        """Quantiles of all latent sites, levels on the first axis; of the whitened values at GP sites, as `median`."""
        own, params = self._fitted(params)
        levels = jnp.atleast_1d(jnp.asarray(quantiles))
        rest = {} if own.rest is None else quantiles_of_rest(own.rest, params, levels)
        middle = {} if own.rest is None else median_of_rest(own.rest, params)
        return {**rest, **own._own_quantiles(params, levels, middle, args, kwargs)}

    def _own_quantiles(
        self, params: "FittedParams", levels: Array, rest: Mapping[str, object], args: Args, kwargs: Kwargs
    ) -> dict[str, Any]:
        """Quantiles of the values of this guide's own sites; of the whitened values for beliefs."""
        found = self._distributions(params, args, kwargs)
        found = {name: fn for name, fn in found.items() if not _is_by_rows(fn)}
        beliefs = {name: fn.value for name, fn in found.items() if isinstance(fn, Belief)}
        moments = {name: belief.whitened_moments() for name, belief in beliefs.items() if belief.holds_whitened}
        if following := {name: belief for name, belief in beliefs.items() if name not in moments}:
            others = {n: fn for n, fn in found.items() if n not in beliefs}
            middle = {n: local_sites.site_quantiles(n, fn, jnp.asarray([0.5]))[0] for n, fn in others.items()}
            moments |= OnBases(self.model, following, params, args, kwargs).moments({**rest, **middle})

        def of_belief(mean: Array, scale: Array) -> Array:
            steps = ndtri(levels).reshape((-1,) + (1,) * mean.ndim).astype(mean.dtype)
            return mean[None] + steps * scale[None]

        return {
            name: of_belief(*moments[name]) if name in moments else local_sites.site_quantiles(name, fn, levels)
            for name, fn in found.items()
        }


class FittedParams(dict[str, Any]):
    """Parameters by name; one that is missing is refused: the guide would answer with what it starts at."""

    def __missing__(self, name: str) -> Any:
        cure = "Pass svi.get_params(state), or result.params, of the fit of this guide."
        fail("params", f"the parameters of the guide, {name!r} among them", f"{sorted(self)}", cure)

    def of_site(self, site: Site) -> Any:
        """The value of a ``param`` or ``mutable`` site, for ``handlers.substitute``."""
        return self[site["name"]] if site["type"] in ("param", "mutable") else None


def _is_by_rows(fn: object) -> bool:
    """Whether a distribution of a guide holds the pseudo-data of a process by neighbours."""
    return isinstance(fn, Belief) and isinstance(fn.value, PseudoRows)
