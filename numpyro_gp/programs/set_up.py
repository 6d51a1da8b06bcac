"""What runs once, at the start of a fit, as one compiled program in place of hundreds of little ones.

NumPyro sets up a guide by running model and guide eagerly: each operation is compiled alone. Here the same Python
code runs while JAX traces it, the trace is compiled as a whole (`programs.keep`: once for all that compute the same),
and whatever the code left behind in guides and handlers is changed from tracers into the values that they stand for.
Arguments stay known while the code runs, and checks of other values follow at the end.
"""

import functools
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoGuide
from numpyro.primitives import Messenger

from numpyro_gp.arrays import T, current_trace, set_to
from numpyro_gp.checks import waiting_checks, when_known
from numpyro_gp.programs.compiled import kept, quickly
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.programs.private import Args, Message, active_handlers, is_validated
from numpyro_gp.programs.trace import is_traced, traced

# Code that asks for a value in Python cannot be traced. It runs eagerly, as it did before.
NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.UnexpectedTracerError,
)
NUMBER_TYPES = (int, float, complex, bool, np.dtype, np.generic, np.ndarray, jax.Array)
# What is looked at of a statement of a model.
SITE_FIELDS = ("name", "type", "infer", "cond_indep_stack", "is_observed", "fn", "value", "args")
ATOMS = (*NUMBER_TYPES, str, bytes, type(None), type, types.ModuleType)
_set_up: ContextVar[object] = ContextVar("_set_up", default=None)


class UnfitStart(Exception):
    """Raised by a check: values at the start will not do, and NumPyro's own search is wanted, which is eager."""


class Feasible(Messenger):
    """A point of its support for each site that has no prior to draw from: one of `ImproperUniform`.

    It is drawn as NumPyro's samplers start, where a handler inside of this one seeds the model.
    """

    def process_message(self, message: Message) -> None:
        if message["type"] != "sample" or message["value"] is not None:
            return
        fn = message["fn"]
        while hasattr(fn, "base_dist"):
            fn = fn.base_dist
        if isinstance(fn, dist.ImproperUniform):
            transform = dist.biject_to(message["fn"].support)
            shape, key = transform.inverse_shape(message["fn"].shape()), message["kwargs"].get("rng_key")
            free = jnp.zeros(shape) if key is None else jax.random.uniform(key, shape, minval=-2.0, maxval=2.0)
            message["value"] = transform(free)


def is_set_up_here() -> bool:
    """Whether `in_one_program` will make values of the tracers that are made now."""
    return _set_up.get() == current_trace()


@alone
def in_one_program(function: Callable[[], T], *owners: object) -> T:
    """``function()`` as one program; ``owners``, and the handlers around it, are left as if it had run eagerly.

    Where it needs a value in Python, or where a check raises `UnfitStart`, it does run eagerly; and as it is where it
    is being traced. After a failure owners and handlers hold what they held before.
    """
    if is_traced():
        return function()
    watched = (*owners, *active_handlers())
    with suppress(*NEEDS_VALUES, UnfitStart), _undone_on_failure(watched):
        left: list[Any] = []
        found: dict[int, Any] = {}

        def run() -> list[Any]:
            with set_to(_set_up, current_trace()), waiting_checks() as waiting, Validated():
                left.extend((function(), waiting))
            swapped((left, watched), lambda tracer: found.setdefault(id(tracer), tracer))
            return list(found.values())

        start = traced(run)
        compute = kept(start.program, "set-up", lambda: quickly(start.program))
        values = dict(zip(found, compute(*start.constants), strict=True))
        swapped((left, watched), lambda tracer: values.get(id(tracer), tracer))
        result: T = left[0]
        for check, own in left[1]:
            when_known(check, *own)  # the rows of another process are not
        return result
    with _undone_on_failure(watched):  # outside of the block: an error shows nothing of the first try
        return function()


@alone
def abstract_trace(function: Callable[..., object], args: Args, kwargs: Mapping[str, object]) -> dict[str, Any]:
    """Sites of a model or guide with their shapes: nothing is computed."""
    found: dict[str, Any] = {}

    def run() -> None:
        with handlers.block(), handlers.seed(rng_seed=0), Feasible():
            found.update(as_shapes(handlers.trace(function).get_trace(*args, **kwargs)))

    jax.eval_shape(run)
    return found


def as_shapes(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Statements of a function that is traced, with shapes in place of what is traced: none of it is left behind."""
    return {
        name: {field: jax.tree.map(without_tracer, site[field]) for field in SITE_FIELDS if field in site}
        for name, site in trace.items()
    }


def without_tracer(leaf: object) -> Any:
    """A value, or its shape if it is being traced."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, jax.core.Tracer) else leaf


# ------------------------------------------------------------------------------ NumPyro's own checks of a model


class Validated(Messenger):
    """Checks parameters of distributions, and data against their support, at the end of the program.

    NumPyro makes these checks where values are known, and says nothing where they are traced. A distribution that
    ``checks_its_data`` itself is asked for its parameters alone.
    """

    def postprocess_message(self, msg: Message) -> None:
        if msg["type"] != "sample":
            return
        fn = part = msg["fn"]
        while part is not None:
            for name, value in part.get_args().items() if is_validated(part) else ():
                constraint = part.arg_constraints[name]
                if not constraints.is_dependent(constraint):
                    when_known(
                        functools.partial(_check_parameter, type(part).__name__, name), jnp.all(constraint(value))
                    )
            part = getattr(part, "base_dist", None)
        is_data = msg["is_observed"] and msg["value"] is not None and not getattr(fn, "checks_its_data", False)
        if is_data and is_validated(fn) and fn.support is not None:
            when_known(_warn_outside, jnp.all(fn.support(msg["value"])))


def _check_parameter(distribution: str, name: str, is_valid: np.ndarray) -> None:
    if not is_valid:
        raise ValueError(f"{distribution} distribution got invalid {name} parameter.")


def _warn_outside(is_inside: np.ndarray) -> None:
    if not is_inside:
        message = "Out-of-support values provided to log prob method. The value argument should be within the support."
        warnings.warn(message, stacklevel=2)


# ------------------------------------------------------------------------------ what the code left behind


@contextmanager
def _undone_on_failure(objects: tuple[object, ...]) -> Iterator[None]:
    """Give guides and handlers the attributes back that they had before a block, if it fails: another may follow."""
    parts = [part for thing in objects for part in _guides_and_handlers(thing)]
    saved = [(vars(part), dict(vars(part))) for part in parts]
    saved += [(value, dict(value)) for _, held in saved for value in held.values() if isinstance(value, dict)]
    failed = True
    try:
        yield
        failed = False
    finally:
        for held, before in saved if failed else ():
            held.clear()
            held.update(before)


def _guides_and_handlers(thing: object) -> Iterator[object]:
    if isinstance(guide := getattr(thing, "guide", None), AutoGuide):  # an engine's
        yield from _guides_and_handlers(guide)
    if hasattr(thing, "__dict__"):
        yield thing
    for part in getattr(thing, "_guides", ()):  # an AutoGuideList's
        yield from _guides_and_handlers(part)


def swapped(value: object, swap: Callable[[Any], object], seen: dict[int, tuple[object, object]] | None = None) -> Any:
    """A value with ``swap(tracer)`` for each tracer that it holds: objects are changed in place, tuples made anew."""
    seen = {} if seen is None else seen
    if isinstance(value, jax.core.Tracer):
        return swap(value)
    if isinstance(value, ATOMS):
        return value
    if id(value) in seen:
        return seen[id(value)][1]
    seen[id(value)] = value, value  # held, so that no other object takes its address
    again = functools.partial(swapped, swap=swap, seen=seen)
    container: Any = None
    items: Iterable[tuple[Any, object]] = ()
    if isinstance(value, dict):
        container, items = value, value.items()
    elif isinstance(value, list):
        container, items = value, enumerate(value)
    elif isinstance(value, tuple):
        new = [again(item) for item in value]
        if any(one is not old for one, old in zip(new, value, strict=True)):
            made = type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
            seen[id(value)] = value, made
    elif isinstance(value, functools.partial):
        parts = tuple(again(part) for part in (value.func, value.args, value.keywords))
        cast("Any", value).__setstate__((*parts, vars(value)))
    elif isinstance(value, types.MethodType):
        again(value.__self__)
    elif isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # a name that is assigned later
                continue
            if (one := again(held)) is not held:
                cell.cell_contents = one
    elif type(value).__module__.partition(".")[0] in ("jax", "jaxlib", "optax"):  # no tree, or a state of an optimiser
        if not jax.tree_util.all_leaves([value]):
            seen[id(value)] = value, jax.tree.map(again, value)
    elif isinstance(getattr(value, "__dict__", None), dict):
        container, items = vars(value), vars(value).items()
    for key, item in list(items):
        if (one := again(item)) is not item:
            container[key] = one
    return seen[id(value)][1]
