"""A guide that samples: a belief or a recipe at each site of its own, and another guide for the rest."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer.autoguide import AutoDelta, AutoGuide

from numpyro_gp.arrays import Array, Model, Shape
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.conditional import Conditional
from numpyro_gp.checks import fail
from numpyro_gp.guides import other_sites as local_sites
from numpyro_gp.guides.fit_registry import FitRecord, begin, fits_of
from numpyro_gp.guides.other_sites import (
    NotOfRest,
    Remainder,
    at_medians,
    call_rest,
    check_given,
    check_rest,
    is_point,
    joint_size,
)
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
from numpyro_gp.sites import Site, Trace, fits, is_latent, role, unwrap


class GuideOfSites(AutoGuide):
    """What `AutoGP` is when it is called: it learns the model and samples each latent site."""

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
        check_rest(rest)
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
        local_sites.check_masks(self.prototype_trace)
        latent, mine = self._latent(), set(self._mine())
        if unknown := sorted(set(self.recipes) - set(latent)):
            fail("recipes", f"about latent sites of the model: {sorted(latent)}", f"{unknown}", "Check the spelling.")
        if inside := [name for name in mine if "_scan_current_index" in latent[name]["infer"]]:
            cure = "Make the process before the scan and use it in there, or sample the model with ngp.NUTS."
            fail("a process under a guide", "outside of control_flow.scan", f"{sorted(inside)} inside", cure)
        self._use_plates(*_plates_of(self.prototype_trace))
        self._fitted_sizes, self._data_plates = dict(self._full_sizes), local_sites.data_plates(self.prototype_trace)
        if set(latent) - mine:
            self._remainder = Remainder(self.model, mine)
            self.rest = at_medians(self.rest_factory)(handlers.block(self._remainder, hide_fn=NotOfRest(mine)))
            check_rest(self.rest)

    def _run_model(self, args: Args, kwargs: dict[str, object]) -> dict[str, Site]:
        key = numpyro.prng_key()
        checks = set_up.Validated() if set_up.is_set_up_here() else nullcontext()
        with handlers.block(), inside_blocks(), checks, handlers.seed(rng_seed=key), set_up.Feasible():
            return dict(handlers.trace(self.model).get_trace(*args, **kwargs))

    def _use_plates(self, frames: dict[str, object], full_sizes: dict[str, int]) -> None:
        self._frames, self._full_sizes = frames, full_sizes
        set_plates(self, frames, full_sizes)

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
                local_sites.check_masks(sites)
                self._use_plates(*_plates_of(sites))
        if is_run_by_renyi():
            local_sites.check_renyi(self.prototype_trace)
        # A recipe may start at values of the prior, of which a compiled first call has left the shapes only.
        has_shapes = any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(self._mine()))
        values = self._run_model(args, kwargs) if has_shapes else {}
        with keyed_rows():
            plates = make_plates(self, args, kwargs)
        result: dict[str, Any] = {}
        drawn: dict[str, dist.Distribution] = {}
        if self.rest is not None:
            result.update(call_rest(self.rest, self._remainder, plates, args, kwargs))
        for name, site in {name: values.get(name, site) for name, site in self._mine().items()}.items():
            with ExitStack() as stack:
                for frame in sorted(site["cond_indep_stack"], key=lambda frame: frame.dim):
                    stack.enter_context(plates[frame.name])
                fn = drawn[name] = self._distribution(name, site, args, kwargs, result)
                result[name] = numpyro.sample(name, fn, infer=dict(site["infer"]))
        latent = self._latent()
        list_in_order(latent)
        if is_new:
            own = [name for name, site in self._mine().items() if role(site) is None]
            self.is_random = not is_point(self.rest) or any(not isinstance(unwrap(drawn[n]), dist.Delta) for n in own)
            keep = (lambda leaf: leaf) if set_up.is_set_up_here() else set_up.without_tracer
            fields = set_up.SITE_FIELDS
            self.prototype_trace = {n: {k: jax.tree.map(keep, s[k]) for k in fields} for n, s in latent.items()}
        return result

    def _distribution(
        self, name: str, site: Site, args: Args, kwargs: dict[str, object], values: Mapping[str, object] | None = None
    ) -> dist.Distribution:
        kind, prior = role(site), site["fn"]
        if kind in ("noise", "function") and name not in self.recipes:
            return local_sites.standard_normal_of(site)
        default = free_latent() if kind == "latent" else coupled()
        default = pseudo_data() if isinstance(unwrap(prior), RowPrior) else default
        shape = self._whole_shape(site)
        if kind == "gp":
            inner = unwrap(prior)
            prior = inner.of_one(shape[: len(shape) - inner.event_dim])
        else:
            named = named_arguments(self.model, args, kwargs)
            prior = LocalPrior(prior, site["value"].dtype, shape, prior.event_shape, args, kwargs, named)
        made = self.recipes.get(name, default)(name, prior)
        if isinstance(made, Conditional) and made.is_joint:
            start = jnp.zeros((*prior.shape(), joint_size(self.rest)), prior.dtype)
            made = replace(made, slopes=numpyro.param(f"{name}/slopes", start, event_dim=prior.event_dim + 1))
        if values is not None and isinstance(made, AbstractBelief):
            made = made.given(values, self._coordinates(values, [made]))
        return local_sites.described_site(name, kind, made)

    def _coordinates(
        self, values: Mapping[str, Any], beliefs: Iterable[object], params: Mapping[str, object] | None = None
    ) -> Array | None:
        """How far unconstrained values of the other sites are from their medians, where a belief moves with them."""
        is_asked = any(isinstance(belief, Conditional) and belief.is_joint for belief in beliefs)
        return from_medians(self.rest, values, params) if is_asked else None

    def _whole_shape(self, site: Site) -> tuple[int, ...]:
        """Shape of a site's value over whole plates, whose sizes are those that the guide was made for."""
        shape, kind = list(jnp.shape(site["value"])), role(site)
        for frame in site["cond_indep_stack"]:
            size, fitted = self._full_sizes[frame.name], self._fitted_sizes[frame.name]
            if size != fitted and (kind == "gp" or site["name"] not in self.recipes):
                unit = "members" if kind == "gp" else "rows"
                made = f"the {fitted} {unit} that the guide was made for: site {site['name']!r} has parameters for each"
                cure = "Predict with ngp.Posterior, which draws what is new from its prior."
                cure += " Fit other rows by a new guide."
                fail(f"the data in plate {frame.name!r}", made, f"{size} {unit}", cure)
            shape[frame.dim - site["fn"].event_dim] = size
        return tuple(shape)

    def declare_global(self) -> None:
        """The statements of this guide about its GP sites alone: the parameters that predictions need."""
        for name, site in self._mine().items():
            if role(site) == "gp":
                self._distribution(name, {**site, "fn": jax.tree.map(_of_shape, site["fn"])}, (), {})


def _of_shape(leaf: object) -> Any:
    """A value, zeros for one of which a set-up inside the user's own ``jit`` has kept the shape alone."""
    return jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf


def _plates_of(trace: Trace) -> tuple[dict[str, Any], dict[str, int]]:
    """Frames of the plates around latent sites and of minibatches, and the full sizes of all plates.

    A minibatch without latent sites is opened too, for its rows: the model replays those of the guide (`keyed_rows`).
    """
    sizes = {name: site["args"][0] for name, site in trace.items() if site["type"] == "plate"}
    stacks = [(is_latent(site), site["cond_indep_stack"]) for site in trace.values() if site["type"] == "sample"]
    frames = {f.name: f for is_ours, stack in stacks for f in stack if is_ours or f.size != sizes.get(f.name, f.size)}
    return frames, sizes


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
        check_given(model, args, kwargs, f"whitened values of {sorted(beliefs)} follow from the hyper-parameters")
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
