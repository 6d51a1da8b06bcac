"""The state in which a fit starts: ``init`` of its engine as one program, and what may be wrong with it."""

import copy
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpyro.infer import SVI
from numpyro.infer.autoguide import AutoGuide, AutoGuideList

from numpyro_gp.arrays import Array, is_key
from numpyro_gp.checks import fail, is_known
from numpyro_gp.guides.fit_registry import FitRecord, begin, fits_of, hand_on, inducing_at_start, is_same
from numpyro_gp.primitives.inducing import noted_inducing
from numpyro_gp.programs.compiled import run
from numpyro_gp.programs.private import unused
from numpyro_gp.programs.set_up import abstract_trace, in_one_program
from numpyro_gp.rows.batch_plates import HeldRows
from numpyro_gp.rows.call import argument_names, shapes_in_words
from numpyro_gp.rows.feeds import Feed
from numpyro_gp.rows.model_trace import FirstRows
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
        check_batch_sizes(engine, feed)
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
    check_names(engine, state, init_params)
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


def check_names(engine: object, state: object, init_params: Mapping[str, object] | None) -> None:
    """Refuse starting values of nothing: NumPyro's ``SVI`` would leave them out silently."""
    if not init_params or not isinstance(engine, SVI):  # what the names of another engine mean is for it to say
        return
    names = [*engine.get_params(state), *(getattr(state, "mutable_state", None) or {})]
    if unknown := [name for name in init_params if name not in names]:
        cure = "Latent sites have no parameter of their own: name those that the guide makes for them."
        fail("init_params", f"values of parameters of the model and guide: {names}", f"{unknown}", cure)


def check_batch_sizes(engine: Any, feed: Feed) -> None:
    """Refuse minibatches without rows, once a start has failed: NumPyro's plate would look for the first of them."""
    if not callable(getattr(engine, "model", None)):
        return
    plates = FirstRows(engine.model)
    # Whatever the failure is, the start has raised it already.
    with suppress(Exception), feed.opened(feed.arrays()) as (args, kwargs):
        abstract_trace(plates, args, {**kwargs, **feed.call.static})
    for name, size in plates.held.items():
        if isinstance(size, (int, np.integer)) and size < 1:
            cure = "Correct what the fit gives its model, such as batch=."
            fail(f"subsample_size of plate {name!r}", "at least 1, or None for all rows", size, cure)


def parameters_at_start(engine: Any, state: object) -> tuple[dict[str, Any], bool]:
    """The parameters of a state, by the programs that find them at the end too, and whether they are all finite."""
    params = engine.get_params(state)
    numbers = [leaf for leaf in jax.tree.leaves(params) if not is_key(leaf)]
    if all(map(is_known, numbers)):
        return params, all(np.isfinite(np.asarray(leaf)).all() for leaf in numbers)
    return params, bool(run(all_finite, params))  # parts of them are another process's
