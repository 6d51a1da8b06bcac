"""Where the draws of a posterior come from: a guide with its parameters, or draws that are stored."""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.typing import DTypeLike
from numpyro import handlers
from numpyro.contrib.einstein import SteinVI
from numpyro.infer.autoguide import AutoDelta, AutoGuide, AutoGuideList, AutoLaplaceApproximation, AutoSemiDAIS

from numpyro_gp.arrays import Array, ArrayLike, is_key, on_device, value_type
from numpyro_gp.checks import check_finite, fail, is_known
from numpyro_gp.guides.auto import AutoGP, FittedParams
from numpyro_gp.guides.natural import NATURAL_MARK
from numpyro_gp.guides.other_sites import READ_THE_DENSITY
from numpyro_gp.posterior.storage import refuse_narrowed
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.programs.private import unused
from numpyro_gp.programs.set_up import NEEDS_VALUES, abstract_trace, swapped
from numpyro_gp.rows.call import Arguments, call_of
from numpyro_gp.sites import Trace, is_latent, role

# --------------------------------------------------------------------------------------
# Whether parameters are those of a guide: all of them, finite, of its shapes and its precision.


def check_params(guide: Callable[..., object], params: Mapping[str, object], call: Arguments | None) -> None:
    """Refuse parameters that are not those of the guide: it would stand where it started, at the prior.

    The parameters of an autoguide are known from the run that set it up; those of a hand-written guide need
    the arguments of a call, and have the shapes that these give them.
    """
    # This one autoguide needs the arguments of the model at every call.
    knows_itself = isinstance(guide, AutoGuide) and not isinstance(guide, AutoSemiDAIS)
    if knows_itself:
        wanted = shapes_of_params(guide)
    elif call is None:
        return
    else:
        sites = abstract_trace(lambda: guide(*call.args, **call.kwargs), (), {})
        check_state(sites, params)
        wanted = dict.fromkeys(name for name, site in sites.items() if site["type"] == "param")
    missing = [name for name in wanted if name not in params]
    shapes = {name: jax.tree.map(jnp.shape, params[name]) for name in wanted if name in params}
    wrong = [f"{name!r} of shape {shapes[name]}, not {wanted[name]}" for name in shapes if shapes[name] != wanted[name]]
    wrong = wrong if knows_itself else []
    others = sorted(set(params) - set(wanted))
    if missing or wrong:
        got = f"none named {missing}" if missing else ", ".join(wrong)
        required = f"the parameters of the guide: {sorted(wanted)}"
        cure = "Pass svi.get_params(state), or result.params, of the fit of this model and this guide."
        cure += "" if missing else " A guide keeps the shapes of its first run by SVI.run: make one for each fit."
        fail("params", required, f"{got}; others are {others}" if others else got, cure)
    traced = guide.prototype_trace or {} if isinstance(guide, AutoGP) else {}
    strange = []  # names that only beliefs have: of a factor, of points of a mean, or a moment's
    for name in others:
        site, _, own = name.rpartition("/")
        is_process = site in traced and role(traced[site]) == "gp"
        if is_process and ("tril" in own or own.startswith("Z_") or name.startswith(f"{site}{NATURAL_MARK}")):
            strange.append(name)
    if strange:
        cure = "Build the guide with the recipes of the fit: they are those of another belief."
        fail("params", f"the parameters of the guide: {sorted(wanted)}", f"others as well: {strange}", cure)


def check_state(sites: Trace, params: Mapping[str, object]) -> None:
    """Refuse parameters without the mutable state of a model or guide, which would stand where it starts."""
    if missing := [name for name, site in sites.items() if site["type"] == "mutable" and name not in params]:
        cure = "Pass result.params of ngp.fit; after svi.run, {**result.params, **result.state.mutable_state}."
        fail("params", f"with the mutable state {missing}", f"{sorted(params)}", cure)


def check_precision(source: object) -> None:
    """Refuse arrays of a fit in float64 while JAX computes in float32."""
    arrays = [leaf for leaf in jax.tree.leaves(source) if isinstance(leaf, jax.Array) and not is_key(leaf)]
    if wide := sorted({str(leaf.dtype) for leaf in arrays if jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype}):
        refuse_narrowed("the posterior", "", f"one of {', '.join(wide)}")


def check_whitened_precision(value: object, name: str, dtype: DTypeLike) -> None:
    """Refuse whitened values of single precision where the model is of double precision now.

    They are of a factor with another jitter, and with it say other things of the function.
    """
    now = jnp.dtype(dtype)
    kinds = {jnp.dtype(leaf.dtype) for leaf in jax.tree.leaves(value) if hasattr(leaf, "dtype") and not is_key(leaf)}
    if narrow := [str(kind) for kind in kinds if jnp.issubdtype(kind, jnp.floating) and kind.itemsize < now.itemsize]:
        required = f"in the precision of the fit, {narrow[0]}"
        cure = 'Predict as it was fitted: jax.config.update("jax_enable_x64", False), or fit again.'
        fail(f"the model's site {name!r}", required, f"{now}", cure, TypeError)


@alone
def shapes_of_params(guide: AutoGuide) -> dict[str, Any]:
    """Shapes of the parameters of an autoguide about global sites, by name."""
    # NumPyro checks the parameters of distributions that start a guide: a program for each operation, and for no shape.
    with numpyro.validation_enabled(False):
        sites = abstract_trace(lambda: _run_autoguide(guide), (), {})
    return {n: jax.tree.map(jnp.shape, s["value"]) for n, s in sites.items() if s["type"] == "param"}


def _run_autoguide(guide: AutoGuide) -> None:
    """The statements of an autoguide about global sites; the guide itself is left as it is."""
    if isinstance(guide, AutoGuideList):
        for part in guide:
            _run_autoguide(part)
        return
    if isinstance(guide, AutoGP):
        guide.declare_global()
        guide = guide.rest
    if isinstance(guide, AutoGuide):
        own = copy.copy(guide)
        own.create_plates = None  # those of the run that set it up
        own()


# How often a particle of average weight is repeated: a weight is then right to a twentieth of that of one particle.
REPEATS = 10


@value_type(static=("guide",))
class GuideDraws:
    """Draws made at will from a guide at fitted parameters; the parameters are the arrays of this value."""

    guide: Callable[..., object]
    params: Mapping[str, Any]
    num_draws: ClassVar[None] = None
    samples: ClassVar[None] = None

    @property
    def is_random(self) -> bool:
        """Whether draws of the global sites differ."""
        if isinstance(self.guide, AutoGP):
            return self.guide.is_random
        return not isinstance(self.guide, AutoDelta)

    @alone
    def values(
        self, key: Array, index: Array | int, call: Arguments, plates: frozenset[str] | None = None
    ) -> dict[str, Any]:
        """One draw of the sites outside of the plates of data, those of the fit by default; beliefs at GP sites."""
        guide = self.guide
        if isinstance(guide, AutoGP):
            return guide.values_outside(plates, key, self.params, *call)
        if isinstance(guide, AutoGuideList):
            # A key for each part: under one key, as NumPyro has it, they would go together.
            pairs = zip(guide, jax.random.split(key, len(guide)), strict=True)
            drawn = [GuideDraws(part, self.params).values(own, index, call, plates) for part, own in pairs]
            return {name: value for one in drawn for name, value in one.items()}
        if isinstance(guide, AutoGuide):
            return dict(guide.sample_posterior(key, self.params, *call.args, **call.kwargs))
        return self.training_values(key, index, call)

    @alone
    def training_values(self, key: Array, index: Array | int, call: Arguments) -> dict[str, Any]:
        """One draw of all latent sites, those of the training data in ``call`` included."""
        guide, params = self.guide, self.params
        if isinstance(guide, AutoGuideList):
            pairs = zip(guide, jax.random.split(key, len(guide)), strict=True)
            drawn = [GuideDraws(part, params).training_values(own, index, call) for part, own in pairs]
            return {name: value for one in drawn for name, value in one.items()}
        if isinstance(guide, AutoLaplaceApproximation):  # its program is the point that it was fitted with
            found = guide.sample_posterior(key, params, *call.args, **call.kwargs)
            return {name: value for name, value in found.items() if guide.prototype_trace[name]["type"] == "sample"}
        # A parameter of this guide that is missing would stand where it starts.
        given = {"substitute_fn": FittedParams(params).of_site} if isinstance(guide, AutoGP) else {"data": params}
        with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(**given):
            trace = handlers.trace(guide).get_trace(*call.args, **call.kwargs)
        return {name: s["value"] for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}


@value_type()
class StoredDraws:
    """Draws of a chain or particles, on the first axis of each leaf; ``params`` are those of the model itself."""

    samples: Mapping[str, Array]
    params: Mapping[str, Any]
    is_random: ClassVar[bool] = True
    guide: ClassVar[None] = None

    @property
    def num_draws(self) -> int:
        """Number S of stored draws."""
        return len(jax.tree.leaves(self.samples)[0])

    def values(self, key: Array, index: Array | int, call: object, plates: object = None) -> dict[str, Any]:  # noqa: ARG002
        """The draw of a number."""
        return jax.tree.map(lambda leaf: leaf[index], dict(self.samples))

    training_values = values


Source = GuideDraws | StoredDraws


@alone
def of_guide(guide: Callable[..., object], params: Any, *args: object, **kwargs: object) -> GuideDraws:
    """Those of a guide that was fitted; one that was not run in this process is set up on arguments, if given."""
    if isinstance(guide, AutoGuide) and guide.prototype_trace is None and (args or kwargs):
        call_of(guide.model, args, kwargs)  # says in words what is missing
        with handlers.block(), handlers.seed(rng_seed=0):
            guide(*args, **kwargs)
    if isinstance(guide, AutoGuide) and guide.prototype_trace is None:
        cure = (
            "Run svi.init, or give Posterior.load the arguments of the fit: its shapes are not in the file, or the "
            "model reads more of them than their shapes."
        )
        fail("guide", "the guide that was fitted", "one that has not been run", cure)
    for part in guide if isinstance(guide, AutoGuideList) else ():
        if isinstance(part, AutoLaplaceApproximation):
            required, cure = "a list of guides that their parameters alone describe", "Use AutoMultivariateNormal."
            got = f"one with {type(part).__name__}, which reads the density of its part of the model: without the data"
            fail("guide", required, got, cure)
    check_params(guide, params, None)
    cure = "Look at the losses: ngp.fit stops at the first NaN, and svi.run goes on."
    warn_of_nan("params", params, cure, stacklevel=5)

    def as_jax(leaf: Any) -> Any:
        """NumPy's arrays, as files have them, are no constants of a program everywhere; none loses digits here."""
        is_kept = isinstance(leaf, np.ndarray) and leaf.dtype == jax.dtypes.canonicalize_dtype(leaf.dtype)
        return on_device(leaf) if is_kept else leaf

    return GuideDraws(guide, {name: jax.tree.map(as_jax, value) for name, value in params.items()})


@alone
def set_up_by_shapes(guide: object, given: Arguments) -> Any:
    """A guide that has seen no data, as arguments of these shapes set it up; any other guide is what it was.

    Nothing is computed: parameters come from elsewhere. Where values matter, and not shapes alone, it is left as it is.
    """
    parts = guide if isinstance(guide, AutoGuideList) else (guide,)
    reads_density = any(isinstance(part, READ_THE_DENSITY) for part in parts)
    if not isinstance(guide, AutoGuide) or guide.prototype_trace is not None or reads_density:
        return guide
    fresh = unused(guide)
    leaves, structure = jax.tree.flatten(tuple(given))
    shapes = {number: leaf for number, leaf in enumerate(leaves) if isinstance(leaf, jax.ShapeDtypeStruct)}

    def run(arrays: dict[int, Array]) -> None:
        args, kwargs = jax.tree.unflatten(structure, [arrays.get(n, leaf) for n, leaf in enumerate(leaves)])
        with handlers.block(), handlers.seed(rng_seed=0):
            fresh(*args, **kwargs)

    try:
        jax.eval_shape(run, shapes)
    except NEEDS_VALUES:
        return guide
    every = [fresh]
    for part in every:  # and parts of parts
        if isinstance(part, AutoGuideList):
            every += part
        elif isinstance(part, AutoGP):
            every.append(part.rest)
    sites = [site for part in every for site in (getattr(part, "prototype_trace", None) or {}).values()]
    own = [site for site in sites if is_latent(site) and role(site) is None]
    bounds = [leaf for site in own for leaf in jax.tree.leaves(site["fn"].support)]
    if any(isinstance(leaf, (jax.core.Tracer, jax.ShapeDtypeStruct)) for leaf in bounds):
        return guide  # its coordinates have the bounds of the data
    swapped(fresh, lambda tracer: jax.random.key(0) if is_key(tracer) else jnp.zeros(tracer.shape, tracer.dtype))
    return fresh


def warn_of_nan(what: str, values: Mapping[str, object], cure: str, stacklevel: int = 3) -> None:
    """Say which entries hold NaN: predictions would show it late, and need not read that entry."""
    found = []
    for name, tree in values.items():
        known = [x for x in jax.tree.leaves(tree) if hasattr(x, "dtype") and is_known(x)]
        if any(bool(np.isnan(x).any()) for x in known if jnp.issubdtype(x.dtype, jnp.floating)):
            found.append(name)
    if found:
        warnings.warn(f"{what} hold NaN at {found}, and so will all that reads them. {cure}", stacklevel=stacklevel)


def of_particles(
    svgd: Any, params_or_state: object, args: tuple[object, ...], kwargs: dict[str, object], weights: object
) -> tuple[StoredDraws, dict[str, np.ndarray]]:
    """The particles of an engine, with the parameters of the model that they share, and what is known of them."""
    if hasattr(svgd, "particles"):  # constrained particles by site
        particles = svgd.particles(params_or_state)
        shared = svgd.shared(params_or_state) if hasattr(svgd, "shared") else {}
    else:  # NumPyro's own engine
        if isinstance(svgd, SteinVI) and not isinstance(svgd.guide, AutoDelta):
            got = f"a {type(svgd).__name__} whose components are guides, {type(svgd.guide).__name__}"
            cure = "Predict by numpyro.contrib.einstein.MixtureGuidePredictive."
            fail("svgd", "an engine whose particles are points", got, cure, TypeError)
        if svgd.guide_sites is None:
            fail("svgd", "an engine that was run", "one that has seen no model arguments", "Call svgd.run first.")
        params, end = params_of(svgd, params_or_state), f"_{svgd.guide.prefix}_loc"
        particles = {name.removesuffix(end): value for name, value in params.items() if name in svgd.guide_sites}
        shared = {name: value for name, value in params.items() if name not in svgd.guide_sites}
    for site, values in particles.items():
        check_finite(f"the particles' {site!r}", values)
    found = getattr(svgd, "judgement", None)
    if args or kwargs:
        if not hasattr(svgd, "log_density"):
            cure = "Leave them out, or run ngp.stein.SVGD, which knows its target."
            fail("args", f"left out for a {type(svgd).__name__}", "arguments of the model", cure, TypeError)
        found = svgd.judge(params_or_state, *args, **kwargs)
    elif found is not None:
        found = found if found.is_of(params_of(svgd, params_or_state)) else None
    if found is not None:
        found.check()
        if weights is None and (message := found.warning()):
            warnings.warn(message, stacklevel=4)
    if weights is not None:  # stranded particles then count for as little as they are worth
        # Particles as often as their weights say, of ten times as many in all: rounded so that numbers add up.
        w, size = np.asarray(weights, float), len(jax.tree.leaves(dict(particles))[0])
        if w.shape != (size,) or not (w >= 0).all() or not np.isclose(w.sum(), 1.0, atol=1e-3):
            required, got = f"{size} numbers from 0 on that add up to 1", f"shape {w.shape} and sum {w.sum():.4g}"
            fail("weights", required, got, "Pass ngp.stein.weights(key, svgd, params, *args).weights.")
        wanted = w / w.sum() * REPEATS * size
        counts = np.floor(wanted).astype(int)
        counts[np.argsort(counts - wanted, kind="stable")[: REPEATS * size - counts.sum()]] += 1
        index = np.repeat(np.arange(size), counts)
        return stored({name: values[index] for name, values in particles.items()}, shared), {}
    if found is None:
        return stored(particles, shared), {}
    return stored(particles, shared), {
        "stranded": found.is_stranded,
        "spread": np.full(found.log_density.shape, found.spread),
    }


def params_of(engine: Any, given: object) -> Any:
    """Parameters of an engine, of themselves or of its state."""
    return given if isinstance(given, Mapping) or not hasattr(engine, "get_params") else engine.get_params(given)


def stored(samples: Mapping[str, ArrayLike], params: Mapping[str, object]) -> StoredDraws:
    """Draws by site, with one common number of them."""
    if not samples:
        fail("mcmc", "a finished run with draws", "no draws", "Call mcmc.run first.")
    # A list could be draws, or chains of them: it is not guessed.
    wrong = {name: type(leaf).__name__ for name, leaf in samples.items() if not getattr(leaf, "shape", ())}
    if wrong:
        cure = "Make one array of each site: np.asarray(values)."
        fail("mcmc", "made of arrays with the draws on the first axis", f"{wrong}", cure, TypeError)
    sizes = {name: jnp.shape(leaf)[0] for name, leaf in samples.items()}
    if 0 in sizes.values():
        fail("mcmc", "a finished run with draws", f"draws by site {sizes}", "Run mcmc with num_samples=1 or more.")
    if len(set(sizes.values())) != 1:
        cure = "Stack the chains: get_samples(group_by_chain=False)."
        fail("mcmc", "draws with one common first axis", f"{sizes}", cure)
    return StoredDraws(jax.tree.map(jnp.asarray, dict(samples)), dict(params))
