"""``AutoGP``: a NumPyro guide made of one recipe for each GP site and an ordinary autoguide for the rest."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtri
from numpyro import handlers
from numpyro.infer.autoguide import AutoDelta, AutoGuide

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.pseudo_rows import PseudoRows
from numpyro_gp.checks import fail
from numpyro_gp.guides import local_sites
from numpyro_gp.guides.by_rows import pseudo_data
from numpyro_gp.guides.fits import Fit, begin_again, fits_of, known_fit
from numpyro_gp.guides.other_sites import (
    NotOfRest,
    Remainder,
    at_medians,
    call_rest,
    check_rest,
    draws_of_rest,
    is_point,
    median_of_rest,
    quantiles_of_rest,
)
from numpyro_gp.guides.recipes import LocalPrior, Recipe, check_recipes, coupled, free_latent
from numpyro_gp.guides.whitened_draws import OnBases
from numpyro_gp.primitives.gp_by_neighbours import RowPrior
from numpyro_gp.primitives.inducing import Inducing, noted_inducing, sites_at_start
from numpyro_gp.programs.alone import alone
from numpyro_gp.programs.private import has_values, is_run_by_renyi, list_in_order, make_plates, set_plates
from numpyro_gp.programs.set_up import (
    SITE_FIELDS,
    Feasible,
    Validated,
    abstract_trace,
    in_one_program,
    is_set_up_here,
    without_tracer,
)
from numpyro_gp.rows.batch_plates import inside_blocks, keyed_rows
from numpyro_gp.rows.call import Arguments, named_arguments
from numpyro_gp.rows.shapes import described
from numpyro_gp.sites import Belief, Site, Trace, is_latent, role, unwrap

# Sites whose values are asked for after a fit: all but the noise of functions drawn in the model.
KINDS = ("gp", "latent", None)


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

    def __init__(
        self,
        model: Callable[..., object],
        recipes: Mapping[str, Recipe] | None = None,
        rest: Callable[..., object] = AutoDelta,
        *,
        prefix: str = "auto",
        create_plates: Callable[..., object] | None = None,
    ) -> None:
        if not callable(model):
            got, cure = f"a {type(model).__name__}", "Pass the model function itself: ngp.AutoGP(model)."
            fail("model", "a NumPyro model function", got, cure, TypeError)
        self.recipes = check_recipes(recipes)
        if not callable(rest):
            fail("rest", "an autoguide class", f"{rest!r}", "Pass the class itself: rest=AutoNormal.", TypeError)
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
        cure = (
            "Take points, ngp.stein.SVGD(model, ...), or components with one: SteinVI(model, AutoNormal(model), ...)."
        )
        required = "one whose components have a density"
        got = "AutoGP, whose beliefs enter a bound by their divergence: nothing would keep the components apart"
        fail("the guide of SteinVI", required, got, cure, TypeError)

    @init_loc_fn.setter
    def init_loc_fn(self, start: object) -> None:
        """NumPyro's constructor of guides sets one."""

    # ------------------------------------------------------------------ structure of the model

    def _learn_model(self, *args: object, **kwargs: object) -> None:
        with noted_inducing() as self.inducing:
            self.prototype_trace = self._run_model(args, kwargs)
        fits_of(self)[:] = [Fit(None, self.inducing, described(Arguments(args, dict(kwargs))))]
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

    def _run_model(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, Any]:
        key = numpyro.prng_key()
        checks = Validated() if is_set_up_here() else nullcontext()
        with handlers.block(), inside_blocks(), checks, handlers.seed(rng_seed=key), Feasible():
            return dict(handlers.trace(self.model).get_trace(*args, **kwargs))

    def _use_plates(self, frames: dict[str, object], full_sizes: dict[str, int]) -> None:
        self._frames, self._full_sizes = frames, full_sizes
        set_plates(self, frames, full_sizes)

    def _resize_plates(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Make plates for the data of this call: NumPyro's guides would keep those of the first call."""
        sites, given = sites_at_start(self.model, args, kwargs)
        if given is not None and not has_values():  # else it is evaluated at parameters that it has
            begin_again(self, given)
            self.inducing = given
        if self._frames:
            sites = abstract_trace(self.model, args, kwargs) if sites is None else sites
            local_sites.check_masks(sites)
            self._use_plates(*_plates_of(sites))

    def _latent(self) -> dict[str, Any]:
        return {name: site for name, site in self.prototype_trace.items() if is_latent(site)}

    def _mine(self) -> dict[str, Any]:
        """Sites that this guide handles itself, in the order of the model."""
        latent = self._latent().items()
        return {name: s for name, s in latent if role(s) not in (None, "coordinates") or name in self.recipes}

    # ---------------------------------------------------------------------------- the guide

    @alone
    def __call__(self, *args: object, **kwargs: object) -> dict[str, Any]:
        """Sample every latent site; GP sites hold beliefs."""
        return dict(in_one_program(lambda: self._sample_sites(args, kwargs), self))

    def _sample_sites(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, Any]:
        if is_new := self.prototype_trace is None:
            self._learn_model(*args, **kwargs)
        else:
            self._resize_plates(args, kwargs)
        if is_run_by_renyi():
            local_sites.check_renyi(self.prototype_trace)
        # A recipe may start at values of the prior, of which a compiled first call has left the shapes only.
        values = self._run_model(args, kwargs) if _is_shapes(self._mine()) else {}
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
            keep = (lambda leaf: leaf) if is_set_up_here() else without_tracer
            self.prototype_trace = {
                n: {k: jax.tree.map(keep, site[k]) for k in SITE_FIELDS} for n, site in latent.items()
            }
        return result

    def _distribution(
        self,
        name: str,
        site: Any,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        values: Mapping[str, object] | None = None,
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
        if values is not None and isinstance(made, AbstractBelief):
            made = made.given(values)
        return local_sites.described(name, kind, made)

    def _whole_shape(self, site: Any) -> tuple[int, ...]:
        """Shape of a site's value over whole plates, whose sizes are those that the guide was made for."""
        shape, kind = list(jnp.shape(site["value"])), role(site)
        for frame in site["cond_indep_stack"]:
            size, fitted = self._full_sizes[frame.name], self._fitted_sizes[frame.name]
            if size != fitted and (kind == "gp" or site["name"] not in self.recipes):
                unit = "members" if kind == "gp" else "rows"
                made = f"the {fitted} {unit} that the guide was made for: site {site['name']!r} has parameters for each"
                cure = (
                    "Predict with ngp.Posterior, which draws what is new from its prior. Fit other rows by a new guide."
                )
                fail(f"the data in plate {frame.name!r}", made, f"{size} {unit}", cure)
            shape[frame.dim - site["fn"].event_dim] = size
        return tuple(shape)

    def declare_global(self) -> None:
        """The statements of this guide about its GP sites alone: the parameters that predictions need."""
        for name, site in self._mine().items():
            if role(site) == "gp":
                self._distribution(name, {**site, "fn": jax.tree.map(_of_shape, site["fn"])}, (), {})

    # ------------------------------------------------------------- NumPyro's questions to a guide

    def _distributions(
        self,
        params: "FittedParams",
        args: tuple[object, ...],
        kwargs: dict[str, object],
        sites: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Distribution of each of this guide's own sites, or of some, at given parameters, over the whole plate."""
        found: dict[str, Any] = {}
        for name, site in (self._mine() if sites is None else sites).items():
            if role(site) not in KINDS:
                continue
            with handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(substitute_fn=params.of_site):
                found[name] = self._distribution(name, site, args, kwargs)
        return found

    @alone
    def beliefs(self, params: Mapping[str, object]) -> dict[str, Any]:
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
        self,
        plates: frozenset[str] | None,
        rng_key: Array,
        params: Mapping[str, object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> dict[str, Any]:
        """`global_values` outside of these plates, by default those of the data that the guide was set up on."""
        own, params = self._fitted(params)
        values, plates = own.beliefs(params), own._data_plates if plates is None else plates
        found = own._distributions(params, args, kwargs, local_sites.shared_sites(own._mine(), plates))
        rng_key, *keys = jax.random.split(rng_key, 1 + len(found)) if found else [rng_key]
        values.update({name: found[name].sample(key) for name, key in zip(found, keys, strict=True)})
        if own.rest is not None:
            values.update(draws_of_rest(own.rest, rng_key, params, args, kwargs))
        return {n: one.given(values) if isinstance(one, AbstractBelief) else one for n, one in values.items()}

    def _fitted(self, params: Mapping[str, object]) -> tuple["AutoGP", "FittedParams"]:
        """The guide as the fit of the parameters set it up, where that is known, and the parameters."""
        if self.prototype_trace is None:
            cure = "Run svi.init or call the guide first."
            fail("the guide", "initialised", "one that has not seen data", cure, RuntimeError)
        if not isinstance(params, Mapping):
            fail("params", "a dictionary of parameters", f"a {type(params).__name__}", "Pass result.params.", TypeError)
        found = known_fit(self, params) if any(fit.guide is not None for fit in fits_of(self)) else None
        return self if found is None or found.guide is None else found.guide, FittedParams(params)

    @alone
    def sample_posterior(
        self,
        rng_key: Array,
        params: dict[str, object],
        *args: object,
        sample_shape: tuple[int, ...] = (),
        **kwargs: object,
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
            at = OnBases(own.model, following, params, args, kwargs)
            result.update(at.draws(key, result, sample_shape, own.is_random))
        return result

    @alone
    def median(self, params: Mapping[str, object], *args: object, **kwargs: object) -> dict[str, Any]:
        """Medians of all latent sites, in constrained space; whitened means at GP sites.

        A belief that reads its basis needs the arguments of the model; its values are at the medians of the others.
        Processes by neighbours have no whitened means, and are left out.
        """
        own, params = self._fitted(params)
        rest = median_of_rest(own.rest, params) if own.rest is not None else {}
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
        self, params: "FittedParams", levels: Array, rest: Mapping[str, object], args: Any, kwargs: Any
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


def _of_shape(leaf: object) -> Any:
    """A value, zeros for one of which a set-up inside the user's own ``jit`` has kept the shape alone."""
    return jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf


def _is_shapes(tree: object) -> bool:
    return any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(tree))


def _plates_of(trace: Trace) -> tuple[dict[str, Any], dict[str, int]]:
    """Frames of the plates around latent sites and of minibatches, and the full sizes of all plates.

    A minibatch without latent sites is opened too, for its rows: the model replays those of the guide (`keyed_rows`).
    """
    sizes = {name: site["args"][0] for name, site in trace.items() if site["type"] == "plate"}
    stacks = [(is_latent(site), site["cond_indep_stack"]) for site in trace.values() if site["type"] == "sample"]
    frames = {f.name: f for is_ours, stack in stacks for f in stack if is_ours or f.size != sizes.get(f.name, f.size)}
    return frames, sizes
