"""The state in which a fit starts: ``init`` of its engine as one program, kept for the next fit of the same engine."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.guides.setup import set_up, try_out
from numpyro_gp.primitives.programs import run
from numpyro_gp.training.batches import Data
from numpyro_gp.training.calls import argument_names
from numpyro_gp.training.checkpoints import is_key
from numpyro_gp.training.engines import family
from numpyro_gp.training.faults import all_finite
from numpyro_gp.training.programs import fingerprint, keep_program

REMEDY = (
    "Try a larger jitter, a smaller step size, float64 (jax.config.update('jax_enable_x64', True)), "
    "or priors that keep the parameters away from zero and infinity."
)
# What the program of an engine has built in.
PARTS = ("model", "guide", "loss", "optim", "kernel_fn", "static_kwargs")


def parts_of(engine: object) -> dict[str, Any]:
    """What a program of an engine has built in, by name."""
    named = {name: getattr(engine, name) for name in PARTS if hasattr(engine, name)}
    # Without a dictionary of attributes (a named tuple, slots) nothing says what is built in: no program is used again.
    return named or getattr(engine, "__dict__", {"engine": object()})


def initial_state(
    key: Array, engine: Any, num_steps: int, init_params: dict[str, Any] | None, arrays: list[Array], data: Data
) -> Any:
    """``engine.init``, with Python numbers in the state made into arrays of a definite type.

    A second call for the same engine, with data of the same shapes, compiles nothing. The guide stays as the first
    call left it; the state is what it would be for a new one.
    """
    names = argument_names(engine.init)
    options = {} if init_params is None else {"init_params": init_params}
    if options and "init_params" not in names:
        cure = "Set starting values in the guide (init_loc_fn) instead."
        fail("init_params", "left out for this engine", type(engine).__name__, cure, TypeError)
    horizon = (num_steps,) if "num_steps" in names else ()  # annealed SVGD plans its schedule

    def start() -> Any:
        with data.opened(arrays) as (args, kwargs):
            state = engine.init(key, *horizon, *args, **options, **kwargs)
        return jax.tree.map(
            lambda leaf: leaf if is_key(leaf) else lax.convert_element_type(leaf, jnp.result_type(leaf)), state
        )

    try:
        if not family(engine).can_be_traced:
            return start()
        return kept_start(start, engine, [key, *arrays], (data, horizon, options))
    except (ValueError, RuntimeError) as error:
        # NumPyro's own words for a model that is NaN where it starts: no site and no cure in them.
        if "got invalid" in str(error) or "Cannot find valid initial parameters" in str(error):
            error.add_note(f"The model is not finite at its initial values, before step 0. {REMEDY}")
        raise


def kept_start(start: Callable[[], Any], engine: Any, inputs: list[Array], made_of: tuple[Data, Any, Any]) -> Any:
    """``start()`` by the program of the last call for this engine, or by one that the next call will find."""
    data, horizon, options = made_of
    shapes = tuple((array.shape, array.dtype, getattr(array, "weak_type", False)) for array in inputs)

    def store() -> dict[str, Any]:
        key = fingerprint(parts_of(engine), horizon, options), data.made_of, shapes
        return keep_program(engine, key, lambda _: {})

    found = store()
    if "again" not in found:
        state, again = set_up(start, inputs, engine)
        if again is not None:  # under what the engine is from now on: its guide knows its model
            store().update(again=again, data=inputs[1:])
        return state
    if any(one is not other for one, other in zip(inputs[1:], found["data"], strict=True)):
        try_out(start, engine)
        found["data"] = inputs[1:]
    return found["again"](inputs)


def look_at_start(engine: Any, state: Any) -> tuple[dict[str, Any], bool]:
    """The parameters of a state, and whether they are all finite."""

    def look(state: Any) -> tuple[dict[str, Any], Array]:
        params = engine.get_params(state)
        return params, all_finite(params)

    params, is_finite = run(look, state)
    return params, bool(is_finite)
