"""``AutoGP``: a NumPyro guide made of one recipe for each GP site and an ordinary autoguide for the rest."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtri
from numpyro import handlers
from numpyro.infer.autoguide import AutoDelta, AutoGuide, AutoMultivariateNormal

from numpyro_gp.arrays import Array, Model, Shape
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.conditional import Conditional
from numpyro_gp.beliefs.neighbours.pseudo_rows import PseudoRows
from numpyro_gp.checks import check_type, fail
from numpyro_gp.guides import other_sites
from numpyro_gp.guides.fit_registry import FitRecord, begin, fits_of, known_fit
from numpyro_gp.guides.recipes import LocalPrior, Recipe, coupled, free_latent, pseudo_data
from numpyro_gp.primitives.inducing import INDEX, Inducing, noted_inducing, sites_at_start
from numpyro_gp.primitives.neighbours.row_sites import RowPrior
from numpyro_gp.programs import set_up
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.programs.private import (
    Args,
    Kwargs,
    from_medians,
    has_values,
    is_run_by_renyi,
    list_in_order,
    make_plates,
    set_plates,
)
from numpyro_gp.rows.batch_plates import inside_blocks, keyed_rows
from numpyro_gp.rows.call import Arguments, named_arguments, shapes_in_words
from numpyro_gp.sites import Belief, Site, Trace, fits, is_latent, role, standard_normal, unwrap

# Sites whose values are asked for after a fit: all but the noise of functions drawn in the model.
ASKED_ROLES = ("gp", "latent", None)


class AutoGP(AutoGuide):
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

    model: Model

    def __init__(
        self,
        model: Model,
        recipes: Mapping[str, Recipe] | None = None,
        rest: Callable[..., object] = AutoDelta,
        *,
        prefix: str = "auto",
        create_plates: Callable[..., object] | None = None,
    ) -> None:
        self.recipes = dict(recipes or {})
        for name, recipe in self.recipes.items():
            try:
                inspect.signature(recipe).bind(name, None)
            except TypeError:
                cure = "Call the factory: ngp.guides.coupled()."
                fail(f"recipes[{name!r}]", "a recipe", f"{recipe!r:.60}", cure, TypeError)
        other_sites.check_rest(rest)
        self.rest_factory = rest
        self.rest: Any = None
        # Whether draws of the user's own sites differ; known from the first call on.
        self.is_random = True
        self.inducing: Inducing = {}  # of the last call that may have started a fit, with known arguments
        super().__init__(model, prefix=prefix, create_plates=create_plates)

    @property
    def init_loc_fn(self) -> Any:
        """A start for all sites, which this guide has not: only ``SteinVI`` asks for it, when it is made."""
        cure = "Take points, ngp.stein.SVGD(model, ...), or components with one: "
        cure += "SteinVI(model, AutoNormal(model), ...)."
        required = "one whose components have a density"
        got = "AutoGP, whose beliefs enter a bound by their divergence: nothing would keep the components apart"
        fail("the guide of SteinVI", required, got, cure, TypeError)

    @init_loc_fn.setter
    def init_loc_fn(self, start: object) -> None:
        """NumPyro's constructor of guides sets one."""

    # ------------------------------------------------------------------ structure of the model

    def _learn_model(self, *args: object, **kwargs: object) -> None:
        with noted_inducing(self._holds) as self.inducing:
            self.prototype_trace = self._run_model(args, kwargs)
        fits_of(self)[:] = [FitRecord(None, self.inducing, shapes_in_words(Arguments(args, dict(kwargs))))]
        other_sites.check_masks(self.prototype_trace)
        latent, mine = self._latent(), set(self._mine())
        if unknown := sorted(set(self.recipes) - set(latent)):
            fail("recipes", f"about latent sites of the model: {sorted(latent)}", f"{unknown}", "Check the spelling.")
        if inside := [name for name in mine if "_scan_current_index" in latent[name]["infer"]]:
            cure = "Make the process before the scan and use it in there, or sample the model with ngp.NUTS."
            fail("a process under a guide", "outside of control_flow.scan", f"{sorted(inside)} inside", cure)
        self._use_plates(self.prototype_trace)
        self._fitted_sizes, self._data_plates = dict(self._full_sizes), other_sites.data_plates(self.prototype_trace)
        if set(latent) - mine:
            self._remainder = other_sites.Remainder(self.model, mine)
            seen = handlers.block(self._remainder, hide_fn=other_sites.NotOfRest(mine))
            self.rest = other_sites.at_medians(self.rest_factory)(seen)
            other_sites.check_rest(self.rest)

    def _run_model(self, args: Args, kwargs: dict[str, object]) -> dict[str, Site]:
        key = numpyro.prng_key()
        checks = set_up.Validated() if set_up.is_set_up_here() else nullcontext()
        with handlers.block(), inside_blocks(), checks, handlers.seed(rng_seed=key), set_up.Feasible():
            return dict(handlers.trace(self.model).get_trace(*args, **kwargs))

    def _use_plates(self, trace: Trace) -> None:
        """Take the frames of the plates around latent sites and of minibatches, and the full sizes of all plates.

        A minibatch without latent sites is opened too, for its rows: the model replays those of the guide.
        """
        sizes = {name: site["args"][0] for name, site in trace.items() if site["type"] == "plate"}
        stacks = [(is_latent(site), site["cond_indep_stack"]) for site in trace.values() if site["type"] == "sample"]
        self._frames = {
            f.name: f for is_ours, stack in stacks for f in stack if is_ours or f.size != sizes.get(f.name, f.size)
        }
        self._full_sizes = sizes
        set_plates(self, self._frames, sizes)

    def _holds(self, site: str, part: str) -> bool:
        """Whether what the guide holds is of this part of a site: pseudo-data are of rows, not of their neighbours."""
        return part != INDEX or self.recipes.get(site, pseudo_data()) is not pseudo_data()

    def _latent(self) -> dict[str, Site]:
        return {name: site for name, site in self.prototype_trace.items() if is_latent(site)}

    def _mine(self) -> dict[str, Site]:
        """Sites that this guide handles itself, in the order of the model."""
        latent = self._latent().items()
        return {name: s for name, s in latent if role(s) not in (None, "coordinates") or name in self.recipes}

    # ---------------------------------------------------------------------------- the guide

    @alone
    def __call__(self, *args: object, **kwargs: object) -> dict[str, Any]:
        """Sample every latent site; GP sites hold beliefs."""
        return dict(set_up.in_one_program(lambda: self._sample_sites(args, kwargs), self))

    def _sample_sites(self, args: Args, kwargs: dict[str, object]) -> dict[str, Any]:
        if is_new := self.prototype_trace is None:
            self._learn_model(*args, **kwargs)
        else:
            # Make plates for the data of this call: NumPyro's guides would keep those of the first call.
            sites, given = sites_at_start(self.model, args, kwargs, self._holds)
            if given is not None and not has_values():  # else it is evaluated at parameters that it has
                begin(self, None, given, is_again=True)
                self.inducing = given
            if self._frames:
                sites = set_up.abstract_trace(self.model, args, kwargs) if sites is None else sites
                other_sites.check_masks(sites)
                self._use_plates(sites)
        if is_run_by_renyi():
            other_sites.check_renyi(self.prototype_trace)
        # A recipe may start at values of the prior, of which a compiled first call has left the shapes only.
        has_shapes = any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(self._mine()))
        values = self._run_model(args, kwargs) if has_shapes else {}
        with keyed_rows():
            plates = make_plates(self, args, kwargs)
        result: dict[str, Any] = {}
        drawn: dict[str, dist.Distribution] = {}
        if self.rest is not None:
            result.update(other_sites.call_rest(self.rest, self._remainder, plates, args, kwargs))
        for name, site in {name: values.get(name, site) for name, site in self._mine().items()}.items():
            with ExitStack() as stack:
                for frame in sorted(site["cond_indep_stack"], key=lambda frame: frame.dim):
                    stack.enter_context(plates[frame.name])
                fn = drawn[name] = self._distribution(name, site, args, kwargs, result)
                result[name] = numpyro.sample(name, fn, infer=dict(site["infer"]))
        latent = self._latent()
        list_in_order(latent)
        if is_new:
            own = [unwrap(drawn[name]) for name, site in self._mine().items() if role(site) is None]
            is_point = self.rest is None or isinstance(self.rest, AutoDelta)
            self.is_random = not is_point or not all(isinstance(fn, dist.Delta) for fn in own)
            keep = (lambda leaf: leaf) if set_up.is_set_up_here() else set_up.without_tracer
            fields = set_up.SITE_FIELDS
            self.prototype_trace = {n: {k: jax.tree.map(keep, s[k]) for k in fields} for n, s in latent.items()}
        return result

    def _distribution(
        self, name: str, site: Site, args: Args, kwargs: dict[str, object], values: Mapping[str, object] | None = None
    ) -> dist.Distribution:
        """What the recipe of a site returns, as its distribution: of a belief one that holds it."""
        kind, prior, inner = role(site), site["fn"], unwrap(site["fn"])
        if kind in ("noise", "function") and name not in self.recipes:
            # The noise of a function draw: its own prior, of the site's event shape.
            in_plates, axes = {frame.dim for frame in site["cond_indep_stack"]}, len(prior.batch_shape)
            batch = tuple(1 if at - axes in in_plates else size for at, size in enumerate(prior.batch_shape))
            return standard_normal(batch + prior.event_shape, site["value"].dtype, prior.event_dim)
        # The shape of the value over whole plates, whose sizes are those that the guide was made for.
        shape = list(jnp.shape(site["value"]))
        for frame in site["cond_indep_stack"]:
            size, fitted = self._full_sizes[frame.name], self._fitted_sizes[frame.name]
            if size != fitted and (kind == "gp" or name not in self.recipes):
                unit = "members" if kind == "gp" else "rows"
                required = f"the {fitted} {unit} that the guide was made for: site {name!r} has parameters for each"
                cure = "Predict with ngp.Posterior, which draws what is new from its prior."
                cure += " Fit other rows by a new guide."
                fail(f"the data in plate {frame.name!r}", required, f"{size} {unit}", cure)
            shape[frame.dim - prior.event_dim] = size
        if kind == "gp":
            told = inner.of_one(tuple(shape[: len(shape) - inner.event_dim]))
        else:
            named = named_arguments(self.model, args, kwargs)
            told = LocalPrior(prior, site["value"].dtype, tuple(shape), prior.event_shape, args, kwargs, named)
        default = free_latent() if kind == "latent" else coupled()
        default = pseudo_data() if isinstance(inner, RowPrior) else default
        made = self.recipes.get(name, default)(name, told)
        if isinstance(made, AbstractBelief):
            if isinstance(made, Conditional) and made.is_joint:
                if not isinstance(self.rest, AutoMultivariateNormal):
                    required = "AutoMultivariateNormal, as pseudo-data with joint=True move with its coordinates"
                    got = "no other sites" if self.rest is None else type(self.rest).__name__
                    fail("rest", required, got, "Pass it to AutoGP, or leave joint=True out.")
                start = jnp.zeros((*told.shape(), int(self.rest.latent_dim)), told.dtype)
                made = replace(made, slopes=numpyro.param(f"{name}/slopes", start, event_dim=told.event_dim + 1))
            return Belief(made if values is None else made.given(values, self._coordinates(values, [made])))
        required = "a function that returns a belief or a NumPyro distribution"
        if isinstance(made, dist.Distribution):
            if kind != "gp" or isinstance(unwrap(made), (Belief, dist.Delta)):
                return made
            # The process would be drawn in training, and stand at the mean of its values in predictions.
            required, made = "one that returns a belief, or a Delta: the site is a process", unwrap(made)
        cure = "Return a belief, such as ngp.beliefs.Coupled(mean, scale_tril) or MeanField(mean, scale): "
        cure += "help(ngp.guides) says what a recipe is."
        fail(f"the recipe of site {name!r}", required, f"one that returned a {type(made).__name__}", cure, TypeError)

    def _coordinates(
        self, values: Mapping[str, Any], beliefs: Iterable[object], params: Mapping[str, object] | None = None
    ) -> Array | None:
        """How far unconstrained values of the other sites are from their medians, where a belief moves with them."""
        is_asked = any(isinstance(belief, Conditional) and belief.is_joint for belief in beliefs)
        return from_medians(self.rest, values, params) if is_asked else None

    def declare_global(self) -> None:
        """The statements of this guide about its GP sites alone: the parameters that predictions need."""
        # Zeros in place of values of which a set-up inside the user's own ``jit`` has kept the shape alone.
        as_zeros = lambda x: jnp.zeros(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x  # noqa: E731
        for name, site in self._mine().items():
            if role(site) == "gp":
                self._distribution(name, {**site, "fn": jax.tree.map(as_zeros, site["fn"])}, (), {})

    # ------------------------------------------------------------------------- after a fit

    def _distributions(
        self, params: "FittedParams", args: Args, kwargs: Kwargs, sites: Trace | None = None
    ) -> dict[str, dist.Distribution]:
        """Distribution of each of this guide's own sites, or of some, at given parameters, over the whole plate."""
        found: dict[str, dist.Distribution] = {}
        for name, site in (self._mine() if sites is None else sites).items():
            if role(site) not in ASKED_ROLES:
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
        # The user's own sites that belong to no single data.
        mine = [(name, site) for name, site in own._mine().items() if role(site) is None]
        outside = {n: site for n, site in mine if plates.isdisjoint(f.name for f in site["cond_indep_stack"])}
        found = own._distributions(params, args, kwargs, outside)
        rng_key, *keys = jax.random.split(rng_key, 1 + len(found)) if found else [rng_key]
        values.update({name: found[name].sample(key) for name, key in zip(found, keys, strict=True)})
        if own.rest is not None:
            values.update(other_sites.draws_of_rest(own.rest, rng_key, params, args, kwargs))
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
            result.update(other_sites.draws_of_rest(own.rest, key_rest, params, args, kwargs, sample_shape))
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
        rest = {} if own.rest is None else other_sites.median_of_rest(own.rest, params)
        found = own._own_quantiles(params, jnp.asarray([0.5]), rest, args, kwargs)
        return {**rest, **{name: value[0] for name, value in found.items()}}

    @alone
    def quantiles(
        self, params: Mapping[str, object], quantiles: object, *args: object, **kwargs: object
    ) -> dict[str, Any]:
        """Quantiles of all latent sites, levels on the first axis; of the whitened values at GP sites, as `median`."""
        own, params = self._fitted(params)
        levels = jnp.atleast_1d(jnp.asarray(quantiles))
        rest = {} if own.rest is None else other_sites.quantiles_of_rest(own.rest, params, levels)
        middle = {} if own.rest is None else other_sites.median_of_rest(own.rest, params)
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
            middle = {n: other_sites.site_quantiles(n, fn, jnp.asarray([0.5]))[0] for n, fn in others.items()}
            moments |= OnBases(self.model, following, params, args, kwargs).moments({**rest, **middle})
        result: dict[str, Any] = {}
        for name, fn in found.items():
            if name in moments:
                mean, scale = moments[name]
                steps = ndtri(levels).reshape((-1,) + (1,) * mean.ndim).astype(mean.dtype)
                result[name] = mean[None] + steps * scale[None]
            else:
                result[name] = other_sites.site_quantiles(name, fn, levels)
        return result


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


# --------------------------------------------------------------------------------------
# Whitened values of beliefs that read their basis, which the model builds anew at each draw of hyper-parameters.


Beliefs = Mapping[str, AbstractBelief]


class OnBases:
    """A model and its arguments, which gives beliefs the bases that they stand on.

    ``values`` below are those of the other latent sites, at one draw; ``params`` are of the fit, the model's own among
    them.
    """

    def __init__(
        self,
        model: Model,
        beliefs: Beliefs,
        params: Mapping[str, object],
        args: Args,
        kwargs: Kwargs,
        coordinates: Callable[[Mapping[str, Any]], Array | None] = lambda _: None,
    ) -> None:
        other_sites.check_given(
            model, args, kwargs, f"whitened values of {sorted(beliefs)} follow from the hyper-parameters"
        )
        self.model, self.beliefs, self.params, self.args, self.kwargs = model, beliefs, dict(params), args, kwargs
        self.coordinates = coordinates

    @alone
    def bases(self, values: Mapping[str, object]) -> dict[str, tuple[AbstractBelief, AbstractBasis]]:
        """Each belief with its basis, at values of the other sites."""
        beliefs = {name: belief.given(values, self.coordinates(values)) for name, belief in self.beliefs.items()}

        def known(site: Site) -> Any:
            name = site["name"]
            if site["type"] in ("param", "mutable"):
                return self.params.get(name)
            if not is_latent(site) or name in beliefs:
                return beliefs.get(name) if is_latent(site) else None
            value = values.get(name)
            return value if value is not None and fits(value, site) else None

        with handlers.block(), inside_blocks(), handlers.seed(rng_seed=0):
            given = handlers.substitute(self.model, substitute_fn=known)
            trace = handlers.trace(given).get_trace(*self.args, **self.kwargs)
        sites = {name: trace[name] for name in beliefs}
        return {name: (site["value"], unwrap(site["fn"]).basis_of(site["value"])) for name, site in sites.items()}

    def moments(self, values: Mapping[str, object]) -> dict[str, tuple[Array, Array]]:
        """Means and standard deviations of the whitened values."""
        return {name: belief.whitened_moments(basis) for name, (belief, basis) in self.bases(values).items()}

    def draws(self, key: Array, values: Mapping[str, Any], shape: Shape, is_random: bool) -> dict[str, Array]:
        """A draw of the whitened values for each of the ``values``, which have ``shape`` on their left."""

        def drawn(key: Array, one: Mapping[str, object], own: Shape = ()) -> dict[str, Array]:
            keys = jax.random.split(key, len(self.beliefs))
            found = self.bases(one).items()
            return {n: belief.draw_whitened(k, own, basis) for k, (n, (belief, basis)) in zip(keys, found, strict=True)}

        first = {name: value[(0,) * len(shape)] for name, value in values.items()} if shape else values
        if not (shape and is_random):
            return drawn(key, first, shape)
        for belief, basis in self.bases(first).values():  # refused where values are known; inside of a map they are not
            belief.whitened(basis)
        flat = {name: value.reshape(-1, *value.shape[len(shape) :]) for name, value in values.items()}
        keys = jax.random.split(key, math.prod(shape))
        found = jax.jit(lambda *pair: jax.lax.map(lambda own: drawn(*own), pair))(keys, flat)
        return {name: leaf.reshape(shape + leaf.shape[1:]) for name, leaf in found.items()}
