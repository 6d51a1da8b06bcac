"""A model run at a draw of its posterior: one runner, one rule on which sites take values, and what it then holds."""

import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, ArrayLike, Model, T, set_to
from numpyro_gp.beliefs import MeanField, PseudoRows
from numpyro_gp.checks import check_count, check_key, fail, is_known
from numpyro_gp.guides.other_sites import data_plates
from numpyro_gp.posterior.sources import Source, check_params, check_precision, check_state, check_whitened_precision
from numpyro_gp.primitives.inducing import Inducing, compared_with
from numpyro_gp.primitives.neighbours.local_process import LocalProcess, SeenProcesses
from numpyro_gp.primitives.neighbours.row_sites import RowPrior
from numpyro_gp.primitives.opening import PREDICTING, recorded_processes
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.programs.compiled import run
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.programs.private import Message, active_handlers
from numpyro_gp.rows.call import Arguments, Call, call_of
from numpyro_gp.rows.model_trace import ArgumentCheck, Look, check_argument_values, check_row_counts, look
from numpyro_gp.sites import Observation, Site, Trace, fits, in_plate, in_scan, is_latent, role, unwrap

# --------------------------------------------------------------------------------------
# What a posterior is before it answers: a model, and draws of its global sites.


DEFAULT_DRAWS = 100
# Parameters of NumPyro's guides by the ends of their names, and numbers in the largest that is copied to be checked.
NUMPYROS, FEW = ("auto_loc", "auto_scale"), 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """The fields of `Posterior`, and what follows from them alone: the type of all functions of a posterior."""

    model: Model
    kind: str
    source: Source
    num_chains: int = 1
    extra_fields: Mapping[str, ArrayLike] = dataclasses.field(default_factory=dict)
    inducing: Inducing = dataclasses.field(default_factory=dict)
    given: Mapping[str, object] | None = None

    @property
    def samples(self) -> Mapping[str, Array] | None:
        """Stored draws by site, on the first axis; None where a guide makes them."""
        return self.source.samples

    @property
    def guide(self) -> Callable[..., object] | None:
        """Guide of a variational fit."""
        return self.source.guide

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of the guide and of the model itself."""
        return self.source.params

    @property
    def num_draws(self) -> int | None:
        """Number of stored draws; None where draws can be made at will."""
        return self.source.num_draws

    @property
    def fitted_model(self) -> Model:
        """The model with its own ``numpyro.param`` values (learnt inducing inputs, networks) as they were fitted."""
        return handlers.substitute(self.model, data=dict(self.params)) if self.params else self.model

    def at(self, source: Source) -> Self:
        """Return this posterior over other arrays, those of a compiled function's arguments."""
        return dataclasses.replace(self, source=source)

    def values(self, key: Array, index: Array, *args: object, **kwargs: object) -> dict[str, Any]:
        """Values of the global sites for one draw; hand-written guides need the arguments of the model."""
        call = call_of(self.guide or self.model, args, kwargs) if args or kwargs else None
        return self.source.values(key, index, Arguments((), {}) if call is None else call.at(call.arrays))

    def spread(self, num_samples: int | None, is_random: bool) -> np.ndarray:
        """Indices of the draws of a prediction, spread evenly over those stored."""
        if num_samples is None:
            count = self.num_draws or (DEFAULT_DRAWS if is_random else 1)
        else:
            count = min(check_count("num_samples", num_samples), self.num_draws or num_samples)
        return np.round(np.linspace(0, (self.num_draws or count) - 1, count)).astype(np.int32)


# The key and the number of a draw of a posterior, or of several, on the first axis of both.
Draw = tuple[Array, Array]
# What a model may ask: a process, one given its data by neighbours, or those that other data are seen through.
ModelProcess = GaussianProcess | LocalProcess | SeenProcesses


class SiteValues:
    """Which sites of a model take values of its posterior, and with what shape.

    All latent sites at the data of the fit. At new data (``plates`` given) those that belong to single data stay
    with their prior: noise of function draws, latent inputs, and what stands in a plate of data, or of groups that
    were not in the fit; a process there is its prior, in closed form.
    """

    def __init__(self, values: Mapping[str, Any], plates: frozenset[str] | None = None) -> None:
        self.values, self.plates = values, plates

    def __call__(self, site: Site) -> object:
        if not is_unknown(site):
            return None
        if is_local(site, self.plates):
            if role(site) != "gp":
                return None
            shape, dtype = site["fn"].shape(), unwrap(site["fn"]).dtype
            return MeanField(jnp.zeros(shape, dtype), jnp.ones(shape, dtype))  # the prior
        value = self.values.get(site["name"])
        if isinstance(value, PseudoRows):  # of all rows, whatever the plate holds
            return value.in_plate(site["fn"].batch_shape)
        if value is not None and not fits(value, site):
            required = f"the data of the fit: site {site['name']!r} has posterior draws of shape {jnp.shape(value)}"
            cure = "Use predict for new data, with the inducing inputs of the fit."
            if self.plates is not None:
                required = f"those to which posterior draws of site {site['name']!r} fit, of shape {jnp.shape(value)}"
                cure = "Pass the inducing inputs of the fit. Stack chains: get_samples(group_by_chain=False)."
            fail("args", required, f"data for which it has shape {tuple(site['fn'].shape())}", cure)
        if role(site) == "gp":
            check_whitened_precision(value, site["name"], unwrap(site["fn"]).dtype)
        return value


def is_unknown(site: Site) -> bool:
    """Whether a site is latent, and no data to predict."""
    return is_latent(site) and not isinstance(unwrap(site["fn"]), Observation)


def is_local(site: Site, plates: frozenset[str] | None) -> bool:
    """Whether a site belongs to single new data; ``plates`` are those of the data, None at the data of the fit."""
    if plates is None or isinstance(unwrap(site["fn"]), RowPrior):  # the rows of the fit
        return False
    return role(site) in ("noise", "latent") or any(in_plate(site, name) for name in plates)


class OfChunk(Messenger):
    """Gives what is drawn for single rows a key of the chunk, and leaves all else the key of its draw.

    A function that the model draws is one function, however many chunks the rows come in. It stands around `seed`,
    whose keys it changes. ``plates`` are those of single rows, ``in_scan`` tells whether some of what is drawn for
    them is in a scan, and ``first`` is the number of the first row.
    """

    def __init__(self, plates: frozenset[str], in_scan: bool, first: ArrayLike) -> None:
        super().__init__()
        self.plates, self.in_scan, self.first = plates, in_scan, first

    def process_message(self, message: Message) -> None:
        key = message["kwargs"].get("rng_key") if "kwargs" in message else None
        if key is None:
            return
        if message["type"] == "control_flow":
            is_of_rows = self.in_scan
        elif message["type"] == "sample":
            stack = message["cond_indep_stack"]
            is_of_rows = any(frame.name in self.plates for frame in stack)
            is_of_rows = is_of_rows or (not stack and role(message) in ("noise", "latent"))
        else:
            plates = (one for one in active_handlers() if isinstance(one, numpyro.plate))
            is_of_rows = any(one.name in self.plates for one in plates)
        if is_of_rows:
            message["kwargs"]["rng_key"] = jax.random.fold_in(key, self.first)


@alone
def run_model(model: Model, values: SiteValues, key: Array, call: Arguments, chunk: OfChunk | None = None) -> Trace:
    """Trace of a model at values of its latent sites; other sites are drawn with ``key``."""
    with handlers.block(), chunk or nullcontext(), handlers.seed(rng_seed=key):
        given = handlers.substitute(model, substitute_fn=values)
        return dict(handlers.trace(given).get_trace(*call.args, **call.kwargs))


def trace_at(
    posterior: Fitted, draw: Draw, call: Arguments, plates: frozenset[str] | None, chunk: OfChunk | None = None
) -> Trace:
    """Trace of a posterior's model at new data and at one of its draws ``(key, index)``.

    One key a draw fixes the global values and all that the model draws for no single row.
    """
    key_draw, key_model = jax.random.split(draw[0])
    values = posterior.source.values(key_draw, draw[1], call, plates)
    with set_to(PREDICTING, True):
        return run_model(posterior.fitted_model, SiteValues(values, plates), key_model, call, chunk)


def draws_of(key: Array, index: np.ndarray) -> Draw:
    """Draws with these numbers, each with a key of its own."""
    return jax.random.split(check_key("key", key), index.size), jnp.asarray(index)


def key_of(key: Array, name: str) -> Array:
    """A key for what has this name."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()) >> 1)  # a number that 32 bits with a sign hold


def at_each_draw(
    function: Callable[..., T], posterior: Fitted, draws: Draw, *rest: object, by: Callable[..., T] = run
) -> T:
    """``function(posterior, draw, *rest)`` at each of some draws, which results have on their first axis."""

    def every(source: Source, draws: Draw, *rest: object) -> T:
        return jax.lax.map(lambda draw: function(posterior.at(source), draw, *rest), draws)

    return by(every, posterior.source, draws, *rest)


class AskedProcess(NamedTuple):
    """A process of a model, in a call of it: that of a name, or the only one; of those with their data if so asked.

    Those are of `gp_regression`, and by neighbours of `gp`, by the name of their data.
    """

    posterior: Fitted
    call: Call
    plates: frozenset[str] | None
    name: str | None
    conditioned: bool = False

    def at(self, posterior: Fitted, draw: Draw, arrays: Sequence[Array]) -> ModelProcess:
        """The process at one draw, of a posterior and a call over these arrays."""
        with recorded_processes() as recorded:
            trace = trace_at(posterior, draw, self.call.at(arrays), self.plates)
        wanted = found = dict[str, ModelProcess](recorded)
        if self.conditioned:
            wanted = {name: own for name, own in recorded.items() if own.noise is not None}  # made by `gp_regression`
            fns = {name: unwrap(site["fn"]) for name, site in trace.items() if site["type"] == "sample"}
            seen = {name: fn.seen_of for name, fn in fns.items() if isinstance(fn, Observation)}
            wanted |= {name: one for name, one in seen.items() if isinstance(one, SeenProcesses)}
            found = found | wanted
        wanted = wanted or found  # none of a gp_regression: refused for what it is
        if self.name is None and len(wanted) == 1:
            return next(iter(wanted.values()))
        if self.name is None or self.name not in found:
            cure = f"Name it: gp={next(iter(wanted), 'f')!r}."
            fail("gp", f"the name of one process of the model: {sorted(wanted)}", repr(self.name), cure)
        return found[self.name]

    def at_each(self, function: Callable[..., T], draws: Draw, *rest: object) -> T:
        """``function(process, draw, *rest)`` at each of some draws, which results have on their first axis."""

        def one(posterior: Fitted, draw: Draw, arrays: list[Array], *rest: object) -> T:
            return function(self.at(posterior, draw, arrays), draw, *rest)

        return at_each_draw(one, self.posterior, draws, self.call.arrays, *rest)


class View(NamedTuple):
    """A look at a posterior's model: the plates of data and of new groups, and whether draws of the posterior differ.

    At the data of the fit there are no such plates: None.
    """

    found: Look
    plates: frozenset[str] | None
    is_random: bool


def look_again(
    posterior: Fitted,
    call: Call,
    plates_of: Callable[[Trace], frozenset[str] | None] = data_plates,
    new: Sequence[str] = (),
) -> View:
    """Look at a posterior's model; refuse a posterior that is not of it, and other inducing inputs than in the fit.

    Those of processes of the members of ``new`` plates may be others, and so may those that a model makes of its
    parameters, which were others where the fit began, and those of single data.
    """
    check_precision(posterior.source)
    with compared_with(posterior.inducing):
        found = look(posterior.fitted_model, call)
    known = sorted(name for name, site in found.sites.items() if site["type"] == "plate")
    if unknown := sorted(set(new) - set(known)):
        fail("new", f"names of plates of the model: {known}", f"{unknown}", "Name the plate whose members are new.")
    params = [leaf for leaf in jax.tree.leaves(dict(posterior.source.params)) if is_known(leaf)]

    def is_compared(check: ArgumentCheck) -> bool:
        site = found.sites.get(getattr(check.check, "site", ""), {"cond_indep_stack": ()})
        if any(in_plate(site, plate) for plate in new) or check.program is None:
            return not any(in_plate(site, plate) for plate in new)
        captured = [value for value in check.captured if is_known(value)]
        pairs = ((one, own) for one in captured for own in params)
        is_learnt = any(np.shape(one) == np.shape(own) and np.array_equal(one, own) for one, own in pairs)
        return not is_learnt and not any(in_plate(site, plate) for plate in data_plates(found.sites))

    found = found._replace(checks=[check for check in found.checks if is_compared(check)])
    plates = plates_of(found.sites)
    return View(found, plates, check_source(posterior, call, found.sites, plates))


def plates_at(posterior: Fitted, call: Call, plates_of: Callable[[Trace], frozenset[str] | None] = data_plates) -> View:
    """A look at a posterior's model in a call whose rows and values are checked."""
    view = look_again(posterior, call, plates_of)
    check_row_counts(view.found, call)
    check_argument_values(view.found, call.arrays)
    return view


def data_site(trace: Trace, site: str | None) -> str:
    """The site to predict."""
    latent = [n for n, s in trace.items() if is_latent(s) and isinstance(unwrap(s["fn"]), Observation)]
    if site is None and len(latent) == 1:
        site = latent[0]
    if site not in latent:
        cure = (
            "Call predict without the data: y=None. For gp_regression, and processes by neighbours, call "
            "posterior.predict_at(key, X_new, *arguments_of_the_fit), or pass at=X_new to ngp.compare."
        )
        cure = f"Name one of them: site={latent[0]!r}." if latent else cure
        fail("site", f"one unobserved ngp.observe site of the model: {latent}", repr(site), cure)
    return site


def check_source(posterior: Fitted, call: Call, trace: Trace, plates: frozenset[str] | None) -> bool:
    """Refuse a posterior without values of a parameter or site, which would then stand at its start or prior.

    Discrete sites may be missing (they were summed out), and so may the noise of functions, which guides draw from its
    prior, and sites of new data.

    Returns
    -------
    bool
        Whether draws differ: those of the posterior, or of a site that it leaves to the model. The prior of a process
        is no draw: it is in closed form.
    """
    bound, source, guide = call.at(call.arrays), posterior.source, posterior.guide
    # With NumPy's arrays in NumPyro's distributions, which it then checks without a program for each operation.
    params = dict(source.params)
    for name, value in params.items():
        if name.endswith(NUMPYROS) and isinstance(value, jax.Array) and is_known(value) and value.size <= FEW:
            params[name] = np.asarray(value)
    few = dataclasses.replace(source, params=params)
    values: dict[str, Any] = {}

    def find(seed: int) -> None:
        key = jax.random.key(seed)
        values.update(few.training_values(key, 0, bound) if plates is None else few.values(key, 0, bound, plates))

    try:
        if guide is not None:
            check_params(guide, source.params, bound)
        jax.eval_shape(find, 0)
    except (TypeError, ValueError) as error:  # a guide written by hand may have parameters for each row
        if guide is None or plates is None or isinstance(guide, AutoGuide):
            raise
        got = f"one that fails there ({f'{error}'.splitlines()[0]:.200})"
        cure = "What it says of single rows is not used: bind it to the data of the fit, Posterior.from_svi(model, "
        cure += "lambda *args, **kwargs: guide(X, y), params)."
        fail("the guide", "one that runs at new data", got, cure)
    if guide is not None:
        check_state(trace, source.params)
        own = [name for name, site in trace.items() if site["type"] == "param" and name not in source.params]
        if own:
            cure = "Pass svi.get_params(state), or result.params, of the fit of this model and this guide."
            fail("params", f"with the model's own parameters {own}", f"{sorted(source.params)}", cure)
    latent = [
        name
        for name, site in trace.items()
        if is_unknown(site)
        and not is_local(site, plates)
        and not site["fn"].support.is_discrete
        and not (role(site) == "function" and guide is not None)
    ]
    if missing := [name for name in latent if name not in values]:
        others = sorted(set(values) - set(trace))
        got = f"none of {missing}" + (f", but draws of {others}, which are no sites of it" if others else "")
        cure = "Spell the sites as the model does. If a site was observed in the fit, pass its data."
        fail("the posterior", f"with draws of every latent site of the model: {latent}", got, cure)
    steps = {n: (np.shape(trace[n]["value"])[0], values[n].shape[0]) for n in latent if in_scan(trace[n])}
    for name, (own, stored) in steps.items():
        if own < stored:
            required = f"those to which posterior draws of site {name!r} fit, of {stored} steps or more of the scan"
            fail("args", required, f"{own} steps", "Pass the steps of the fit; those behind them are drawn anew.")
    free = [n for n, (own, stored) in steps.items() if own > stored]
    free += [n for n, site in trace.items() if is_unknown(site) and (n not in values or is_local(site, plates))]
    return bool(source.is_random) or any(role(trace[name]) != "gp" for name in free)
