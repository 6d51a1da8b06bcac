"""The state in which a fit starts: ``init`` of its engine as one program, kept for the next fit of the same engine."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpyro.infer import SVI
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.guides.setup import abstract_trace, set_up, try_out
from numpyro_gp.primitives.programs import run
from numpyro_gp.training.batches import Data, with_static
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
    if options and not isinstance(init_params, Mapping):
        cure = 'Pass {"name": value}.'
        fail("init_params", "a dictionary of values by name", f"a {type(init_params).__name__}", cure, TypeError)
    horizon = (num_steps,) if "num_steps" in names else ()  # annealed SVGD plans its schedule

    def start() -> Any:
        with data.opened(arrays) as (args, kwargs):
            state = engine.init(key, *horizon, *args, **options, **kwargs)
        return jax.tree.map(
            lambda leaf: leaf if is_key(leaf) else lax.convert_element_type(leaf, jnp.result_type(leaf)), state
        )

    try:
        if not family(engine).can_be_traced:
            state = start()
        else:
            state = kept_start(start, engine, [key, *arrays], (data, horizon, options))
    except (IndexError, TypeError):
        check_plates(engine, arrays, data)
        raise
    except (ValueError, RuntimeError) as error:
        # NumPyro's own words for a model that is NaN where it starts: no site and no cure in them.
        if "got invalid" in str(error) or "Cannot find valid initial parameters" in str(error):
            error.add_note(f"The model is not finite at its initial values, before step 0. {REMEDY}")
        raise
    check_names(engine, state, init_params)
    return state


def check_names(engine: Any, state: Any, init_params: Mapping[str, Any] | None) -> None:
    """Refuse starting values of nothing: NumPyro's ``SVI`` would leave them out without a word."""
    if not init_params or not isinstance(engine, SVI):  # what the names of another engine mean is for it to say
        return
    names = [*engine.get_params(state), *(getattr(state, "mutable_state", None) or {})]
    if unknown := [name for name in init_params if name not in names]:
        cure = "Latent sites have no parameter of their own: name those that the guide makes for them."
        fail("init_params", f"values of parameters of the model and guide: {names}", f"{unknown}", cure)


class Subsampled(Messenger):
    """Notes the size of each minibatch before its rows are drawn."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.sizes: dict[str, Any] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            self.sizes[msg["name"]] = msg["args"][1]


def check_plates(engine: Any, arrays: list[Array], data: Data) -> None:
    """Refuse minibatches without rows, once a start has failed: NumPyro's plate would look for the first of them."""
    if not callable(getattr(engine, "model", None)):
        return
    plates = Subsampled(engine.model)
    with suppress(Exception), data.opened(arrays) as (args, kwargs):  # whatever it is, the start has raised it already
        abstract_trace(plates, args, with_static(engine, kwargs))
    for name, size in plates.sizes.items():
        if isinstance(size, (int, np.integer)) and size < 1:
            cure = "Correct what the fit gives its model, such as batch=."
            fail(f"subsample_size of plate {name!r}", "at least 1, or None for all rows", size, cure)


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
