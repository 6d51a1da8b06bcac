"""What runs once, at the start of a fit, as one compiled program in place of hundreds of little ones.

NumPyro sets up a guide by running model and guide eagerly: each operation is compiled alone. Here the same Python
code runs while JAX traces it, the trace is compiled as a whole (`primitives.programs`: once for all that compute the
same), and whatever the code left behind in guides and handlers is changed from tracers into the values that they
stand for. Arguments stay known while the code runs, and checks of other values follow at the end.
"""

import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide

from numpyro_gp.arrays import Array, current_trace
from numpyro_gp.checks import is_known, waiting_checks
from numpyro_gp.guides.internals import active_handlers
from numpyro_gp.guides.validation import Validated
from numpyro_gp.primitives.programs import kept, replaced, run_once

# Code that asks for a value in Python cannot be traced. It runs eagerly, as it did before.
NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.UnexpectedTracerError,
)
PLAIN = (int, float, complex, str, bytes, bool, type(None), np.dtype, np.generic)
ATOMS = (*PLAIN, type, types.ModuleType, np.ndarray, jax.Array)
EAGER = current_trace()  # where nothing is traced, as when this file is imported
_set_up: ContextVar[object] = ContextVar("_set_up", default=None)


class UnfitStart(Exception):
    """Raised by a check: values at the start will not do, and NumPyro's own search is wanted, which is eager."""


def is_traced() -> bool:
    """Whether operations are traced now, and not carried out."""
    return bool(current_trace() != EAGER)


def is_set_up_here() -> bool:
    """Whether `in_one_program` will make values of the tracers that are made now."""
    return _set_up.get() == current_trace()


class SetUp(NamedTuple):
    """What a function returned, and a way to compute it from other inputs by the same program (None: it ran eagerly).

    ``again(inputs)`` leaves guides and handlers as they are.
    """

    result: Any
    again: Callable[[Sequence[Array]], Any] | None


def in_one_program(function: Callable[[], Any], *owners: object) -> Any:
    """``function()`` as one program; ``owners``, and the handlers around it, are left as if it had run eagerly.

    Where it needs a value in Python, or where a check raises `UnfitStart`, it does run eagerly; and as it is where it
    is being traced.
    """
    return set_up(function, (), *owners).result


def set_up(function: Callable[[], Any], inputs: Sequence[Array], *owners: object) -> SetUp:
    """`in_one_program`, and the same again for other ``inputs``: arrays that the function closes over."""
    if is_traced():
        return SetUp(function(), None)
    watched = (*owners, *active_handlers())
    with _undone(watched, on_failure_only=True):
        try:
            with _undone(watched, on_failure_only=True):
                return _compiled(function, inputs, watched)
        except (*NEEDS_VALUES, UnfitStart):
            return SetUp(function(), None)


def abstract_trace(function: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Sites of a model or guide with their shapes: nothing is computed."""
    found: dict[str, Any] = {}

    def run() -> None:
        with handlers.block(), handlers.seed(rng_seed=0):
            found.update(handlers.trace(function).get_trace(*args, **kwargs))

    jax.eval_shape(run)
    return found


def try_out(function: Callable[[], Any], *owners: object) -> None:
    """Trace a function, for what it refuses in its arguments alone; ``owners`` are left as they were.

    NumPyro's checks of values, for which it would compile, are left to the program that follows (`Validated`).
    """
    watched = (*owners, *active_handlers())

    def traced() -> None:
        with _undone(watched), numpyro.validation_enabled(False):
            function()

    jax.make_jaxpr(traced)()


def _compiled(function: Callable[[], Any], inputs: Sequence[Array], watched: tuple[object, ...]) -> SetUp:
    left: list[Any] = []

    def traced() -> list[Any]:
        token = _set_up.set(current_trace())
        try:
            with waiting_checks() as waiting, Validated():
                result = function()
        finally:
            _set_up.reset(token)
        found: dict[int, Any] = {}
        left.extend((result, waiting))
        swapped((left, watched), lambda tracer: found.setdefault(id(tracer), tracer))
        left.append(found)
        return list(found.values())

    closed = jax.make_jaxpr(traced)()
    program = replaced(closed.jaxpr, constvars=[], invars=closed.jaxpr.constvars)
    run = kept(program, "set-up", lambda: run_once(program))
    result, waiting, found = left
    again = _again(run, closed.consts, inputs, (result, waiting), list(found))
    values = dict(zip(found, run(*closed.consts), strict=True))
    swapped((left, watched), lambda tracer: values.get(id(tracer), tracer))
    result, waiting = left[:2]
    _check(waiting)
    return SetUp(result, again)


def _again(
    run: Callable[..., Any], constants: Sequence[Any], inputs: Sequence[Array], left: Any, found: list[int]
) -> Callable[[Sequence[Array]], Any]:
    """The program with the inputs of another call in the places of these, and its results as the tree they were."""
    place = {id(array): number for number, array in enumerate(inputs)}
    places = [place.get(id(constant)) for constant in constants]
    held = [constant if number is None else None for number, constant in zip(places, constants, strict=True)]
    leaves, structure = jax.tree.flatten(left)
    number_of = {tracer: number for number, tracer in enumerate(found)}
    sources = [number_of.get(id(leaf)) for leaf in leaves]
    fixed = [leaf if source is None else None for leaf, source in zip(leaves, sources, strict=True)]

    def again(inputs: Sequence[Array]) -> Any:
        values = run(*(value if at is None else inputs[at] for at, value in zip(places, held, strict=True)))
        filled = [leaf if source is None else values[source] for leaf, source in zip(fixed, sources, strict=True)]
        result, waiting = jax.tree.unflatten(structure, filled)
        _check(waiting)
        return result

    return again


def _check(waiting: list[Any]) -> None:
    for check, values in waiting:
        if all(map(is_known, values)):  # not so of the rows of another process
            check(*map(np.asarray, values))


@contextmanager
def _undone(objects: tuple[object, ...], on_failure_only: bool = False) -> Iterator[None]:
    """Give guides and handlers the attributes back that they had before the block: a second try starts there."""
    parts = [part for thing in objects for part in _guides_and_handlers(thing)]
    saved = [(vars(part), dict(vars(part))) for part in parts]
    saved += [(value, dict(value)) for _, held in saved for value in held.values() if isinstance(value, dict)]
    failed = True
    try:
        yield
        failed = False
    finally:
        for held, before in saved if failed or not on_failure_only else ():
            held.clear()
            held.update(before)


def _guides_and_handlers(thing: object) -> Iterator[Any]:
    if isinstance(guide := getattr(thing, "guide", None), AutoGuide):  # an engine's
        yield from _guides_and_handlers(guide)
    if hasattr(thing, "__dict__"):
        yield thing
    for part in getattr(thing, "_guides", ()):  # an AutoGuideList's
        yield from _guides_and_handlers(part)


def swapped(value: Any, swap: Callable[[Any], Any], seen: dict[int, tuple[Any, Any]] | None = None) -> Any:
    """A value with ``swap(tracer)`` for each tracer that it holds: objects are changed in place, tuples made anew."""
    seen = {} if seen is None else seen
    if isinstance(value, jax.core.Tracer):
        return swap(value)
    if isinstance(value, ATOMS):
        return value
    if id(value) not in seen:
        seen[id(value)] = value, value  # held, so that no other object takes its address
        seen[id(value)] = value, _swapped_inside(value, lambda item: swapped(item, swap, seen))
    return seen[id(value)][1]


def _swapped_inside(value: Any, again: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        _update(value, value.items(), again)
    elif isinstance(value, list):
        _update(value, enumerate(value), again)
    elif isinstance(value, tuple):
        items = [again(item) for item in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    elif isinstance(value, functools.partial):
        parts = value.func, value.args, value.keywords
        new = tuple(again(part) for part in parts)
        value.__setstate__((*new, vars(value)))
    elif isinstance(value, types.MethodType):
        again(value.__self__)
    elif isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            _swap_cell(cell, again)
    elif type(value).__module__.partition(".")[0] in ("jax", "jaxlib", "optax"):  # no tree, or a state of an optimiser
        return value if jax.tree_util.all_leaves([value]) else jax.tree.map(again, value)
    elif isinstance(getattr(value, "__dict__", None), dict):
        _update(vars(value), vars(value).items(), again)
    return value


def _update(container: Any, items: Any, again: Callable[[Any], Any]) -> None:
    for key, item in list(items):
        new = again(item)
        if new is not item:
            container[key] = new


def _swap_cell(cell: types.CellType, again: Callable[[Any], Any]) -> None:
    try:
        held = cell.cell_contents
    except ValueError:  # a name that is assigned later
        return
    new = again(held)
    if new is not held:
        cell.cell_contents = new
