"""The state in which a fit starts: ``init`` of its engine as one program, what may be wrong with it, and a search.

The first point of a fit is the best of a grid of lengthscales and noises, by the objective of the fit itself. From one
start, such as the medians of priors, a function that changes within a thirteenth of its lengthscale is noise: there is
an optimum that says so, and gradients lead to it. From a start near the lengthscale of the data they lead to the other
one. Where a function is integrated out, as in `gp_regression`, one look at the objective tells such starts apart. Where
its values or a belief about them have parameters of their own it does not: at their start, the prior, every function
is noise, and nothing is searched.

A point of the grid is a change of the guide's locations. It is the least one, to first order, that multiplies every
lengthscale of the kernels by one factor and every noise by another, and their variances by none: whatever the sites
are called, scaled or shared. Losses are those of the first step, in the program of all steps: nothing compiles for
them, and all points have the same key and the same batch.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import SVI, init_to_feasible, init_to_mean, init_to_median, init_to_sample, init_to_uniform
from numpyro.infer.autoguide import AutoGuide, AutoGuideList

from numpyro_gp.arrays import Array, is_key
from numpyro_gp.checks import fail, is_known
from numpyro_gp.guides import AutoGP
from numpyro_gp.guides.fit_registry import FitRecord, begin, fits_of, hand_on, inducing_at_start, is_same
from numpyro_gp.guides.other_sites import to_median
from numpyro_gp.primitives.inducing import noted_inducing
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.programs.compiled import prepared, run
from numpyro_gp.programs.private import unused
from numpyro_gp.programs.set_up import abstract_trace, in_one_program
from numpyro_gp.rows.batch_plates import HeldRows
from numpyro_gp.rows.call import Arguments, argument_names, shapes_in_words
from numpyro_gp.rows.feeds import Feed
from numpyro_gp.rows.model_trace import FirstRows
from numpyro_gp.sites import role
from numpyro_gp.training.faults import all_finite, traits_of

REMEDY = (
    "Try a larger jitter, a smaller step size, float64 (jax.config.update('jax_enable_x64', True)), "
    "or priors that keep the parameters away from zero and infinity."
)


def initial_state(
    key: Array, engine: Any, num_steps: int, init_params: dict[str, object] | None, feed: Feed
) -> tuple[object, FitRecord]:
    """``engine.init``, with Python numbers in the state made into arrays of a definite type, and the fit that begins.

    A used guide would start where its first key and data put it: a copy of it starts in its place, which the fit knows,
    and the guide stays as the first call left it.
    """
    names = argument_names(engine.init)
    options = {} if init_params is None else {"init_params": init_params}
    if options and "init_params" not in names:
        cure = "Set starting values in the guide (init_loc_fn) instead."
        fail("init_params", "left out for this engine", type(engine).__name__, cure, TypeError)
    horizon = (num_steps,) if "num_steps" in names else ()  # annealed SVGD plans its schedule
    own, can_be_traced = engine, traits_of(engine).can_be_traced
    if can_be_traced and isinstance(engine.guide, AutoGuide) and engine.guide.prototype_trace is not None:
        own = copy.copy(engine)
        own.guide = unused(engine.guide)

    def start() -> Any:
        with feed.opened(feed.arrays()) as (args, kwargs), HeldRows():
            state = own.init(key, *horizon, *args, **options, **kwargs)
        return definite(state)

    try:
        with noted_inducing() as noted:
            state = in_one_program(start, own) if can_be_traced else start()
    except (IndexError, TypeError):
        if callable(getattr(engine, "model", None)):
            # Minibatches without rows: NumPyro's plate would look for the first of them.
            plates = FirstRows(engine.model)
            # Whatever the failure is, the start has raised it already.
            with suppress(Exception), feed.opened(feed.arrays()) as (args, kwargs):
                abstract_trace(plates, args, {**kwargs, **feed.call.static})
            for name, size in plates.held.items():
                where, cure = f"subsample_size of plate {name!r}", "Correct what the fit gives its model: batch=."
                if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
                    got = f"{size!r:.40} ({type(size).__name__})"
                    fail(where, "a whole number of Python, or None for all rows", got, cure, TypeError)
                if size < 1:
                    fail(where, "at least 1, or None for all rows", size, cure)
        raise
    except (ValueError, RuntimeError) as error:
        # NumPyro's own words for a model that is NaN where it starts: no site and no cure in them.
        if "got invalid" in str(error) or "Cannot find valid initial parameters" in str(error):
            error.add_note(f"The model is not finite at its initial values, before step 0. {REMEDY}")
        raise
    if own is not engine:  # all but the guide is as its own start would have left it
        check_latent(own.guide, engine.guide)
        vars(engine).update({**vars(own), "guide": engine.guide})
        hand_on(own.guide, engine.guide)
    if init_params and isinstance(engine, SVI):  # what the names of another engine mean is for it to say
        known = [*engine.get_params(state), *(getattr(state, "mutable_state", None) or {})]
        if unknown := [name for name in init_params if name not in known]:  # NumPyro would leave them out silently
            cure = "Latent sites have no parameter of their own: name those that the guide makes for them."
            fail("init_params", f"values of parameters of the model and guide: {known}", f"{unknown}", cure)
    owner, started = (engine.guide, own.guide) if isinstance(engine, SVI) else (engine, own)
    inducing = inducing_at_start(started) or noted
    fits = [] if started is not owner and owner is not engine else fits_of(owner)
    # Guides of ours, and particles, have left word of this fit themselves.
    is_noted = bool(fits) and not fits[-1].arrays and is_same(fits[-1].inducing, inducing)
    guide = None if owner is engine or own is engine else started
    begun = fits[-1] if is_noted else begin(owner, guide, inducing)
    given = feed.call.at(feed.arrays()[: len(feed.call.arrays)])
    begun.given = shapes_in_words(given._replace(kwargs={**given.kwargs, **feed.call.static}))
    return state, begun


def definite(state: object) -> object:
    """A state with arrays of a definite type for its Python numbers: another type would be another program."""
    return jax.tree.map(
        lambda leaf: leaf if is_key(leaf) else lax.convert_element_type(leaf, jnp.result_type(leaf)), state
    )


def check_latent(started: Any, guide: Any) -> None:
    """Refuse data of another size for a guide of NumPyro's that joins latent values: it keeps their first number."""
    for one, other in zip(started, guide, strict=True) if isinstance(guide, AutoGuideList) else ():
        check_latent(one, other)
    if getattr(guide, "rest", None) is not None:
        check_latent(started.rest, guide.rest)
    now, before = getattr(started, "latent_dim", None), getattr(guide, "latent_dim", None)
    if before is not None and now != before:
        required = f"of the {before} latent values that {type(guide).__name__} was first fitted to"
        fail("the data", required, f"data with {now}", "Make a new guide for each fit.")


def parameters_at_start(engine: Any, state: object) -> tuple[dict[str, Any], bool]:
    """The parameters of a state, by the programs that find them at the end too, and whether they are all finite."""
    params = engine.get_params(state)
    numbers = [leaf for leaf in jax.tree.leaves(params) if not is_key(leaf)]
    if all(map(is_known, numbers)):
        return params, all(np.isfinite(np.asarray(leaf)).all() for leaf in numbers)
    return params, bool(run(all_finite, params))  # parts of them are another process's


# --------------------------------------------------------------------------------------
# The best point of a grid.


# Factors of lengthscales and of standard deviations of noise; the start itself is the first point.
LENGTHSCALES = (1.0, 3.0, 1 / 3, 1 / 9, 1 / 27, 1 / 81)
NOISES = (1.0, 3.0, 1 / 3, 1 / 9)
# A fit is short, and has no search unless it is asked for, where the grid would be more than this share of its steps.
SHARE = 1 / 20
SHORT = round(len(LENGTHSCALES) * len(NOISES) / SHARE)
# Starts that name no value: those of NumPyro's strategies, and our own medians.
STRATEGIES = (init_to_uniform, init_to_median, init_to_mean, init_to_sample, init_to_feasible, to_median)
# What a kernel, or a process given its data, calls these; and by which power of the factors they grow.
FIELDS = {"lengthscale": (1.0, 0.0), "noise": (0.0, 2.0), "variance": (0.0, 0.0)}


def best_start(engine: Any, feed: Feed, state: Any, advance: Callable[..., tuple[Any, ...]]) -> object:
    """The state of a fit at the best point of the grid, ``state`` itself where no other is better.

    ``advance`` takes the steps of the fit. Of an engine, a guide or a model that this is not for, it is ``state``.
    """
    names = movable(engine, state) if isinstance(engine, SVI) and feed.placement is None else []
    found = directions(engine, feed, state, names) if names else None
    if found is None:
        return state

    def moved(state: Any, change: Array) -> Any:
        free = engine.optim.get_params(state.optim_state)
        own, unravel = ravel_pytree({name: free[name] for name in names})
        new = {**free, **unravel(own + change.astype(own.dtype))}
        return definite(state._replace(optim_state=engine.optim.init(new)))

    changes = np.log([(scale, noise) for scale in LENGTHSCALES for noise in NOISES]) @ found
    changes = np.asarray(list(dict.fromkeys(map(tuple, changes))), found.dtype)  # where one direction is none
    arrays, move, best, least = feed.arrays(), prepared(moved, state, changes[0]), state, np.inf
    for change in changes:
        other = move(state, change) if change.any() else state
        _, _, losses, healthy = advance(other, 1, arrays)
        loss = float(np.asarray(losses)[0])
        if healthy and loss < least:
            best, least = other, loss
    return best


def movable(engine: SVI, state: Any) -> list[str]:
    """Names of the parameters that a search moves; none where the model has values of a process, or latent inputs.

    These start at noise.
    """
    sites = getattr(engine.guide, "prototype_trace", None) or {}
    if any(role(site) is not None for site in sites.values()):
        return []
    free = engine.optim.get_params(state.optim_state)
    return [name for name in dict.fromkeys(locations(engine.guide)) if name in free]


def locations(guide: object) -> Iterator[str]:
    """Names of the parameters of a guide that say where its hyper-parameters are, and that nobody gave a value."""
    guide = guide.rest if isinstance(guide, AutoGP) else guide
    for part in guide if isinstance(guide, AutoGuideList) else ():
        yield from locations(part)
    start = getattr(guide, "init_loc_fn", None)
    if isinstance(guide, AutoGuide) and getattr(start, "func", start) in STRATEGIES:
        yield f"{guide.prefix}_loc"
        yield from (f"{site}_{guide.prefix}_loc" for site in guide.prototype_trace or ())


def directions(engine: Any, feed: Feed, state: Any, names: list[str]) -> np.ndarray | None:
    """Changes ``(2, P)`` of the parameters of these names for the logarithms of both factors; None without any.

    ``J`` being the derivative of the logarithms of all lengthscales, noises and variances, and ``t`` the powers by
    which they are to grow, the change is the shortest ``x`` for which ``J x`` is nearest to ``t``.
    """
    powers: list[np.ndarray] = []

    def derivative(state: Any, arrays: list[Array]) -> list[Array]:
        free = engine.optim.get_params(state.optim_state)
        flat, unravel = ravel_pytree({name: free[name] for name in names})

        def logarithms(flat: Array) -> list[Array]:
            with feed.opened(arrays) as given:
                call = Arguments(given.args, {**given.kwargs, **feed.call.static})
                found = _processes_at(engine, engine.constrain_fn({**free, **unravel(flat)}), call)
            leaves = jax.tree_util.tree_leaves_with_path(dict(found))
            named = [(getattr(path[-1], "name", None), leaf) for path, leaf in leaves]
            fields = [(name, jnp.asarray(leaf)) for name, leaf in named if name in FIELDS]
            own = [(name, x) for name, x in fields if jnp.issubdtype(x.dtype, jnp.floating)]
            powers[:] = [np.broadcast_to(FIELDS[name], (leaf.size, 2)) for name, leaf in own]
            return [jnp.log(leaf.ravel()) for _, leaf in own]

        return jax.jacfwd(logarithms)(flat)

    # The rest of the model, its matrices among it, is traced and no part of the program.
    rows_at = prepared(derivative, state, feed.arrays())
    if not powers:
        return None
    rows = rows_at(state, feed.arrays())
    jacobian, wanted = np.concatenate([np.asarray(row, float) for row in rows]), np.concatenate(powers)
    follow = np.isfinite(jacobian).all(1) & jacobian.any(1)
    if not wanted[follow, 0].any():
        return None
    return np.linalg.lstsq(jacobian[follow], wanted[follow], rcond=1e-6)[0].T


def _processes_at(engine: Any, params: Mapping[str, object], call: Arguments) -> dict[str, object]:
    """The processes of the model at a draw of the guide, by name; none where one is not integrated out."""
    (args, kwargs), key = call, jax.random.key(0)
    with handlers.block(), recorded_processes() as found:
        with handlers.seed(rng_seed=key):
            trace = handlers.trace(handlers.substitute(engine.guide, data=params)).get_trace(*args, **kwargs)
        model = handlers.replay(handlers.substitute(handlers.seed(engine.model, key), data=params), trace)
        model(*args, **kwargs)
    return found if all(process.noise is not None for process in found.values()) else {}
