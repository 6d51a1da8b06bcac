"""Compiled programs that are kept: by the object they belong to, weakly, and by everything that they were made of.

A program made from a Python function has the values that the function read built in. `fingerprint` says what those
are: two fingerprints are equal only where tracing again would read the same values. What it sees, for a
function: its code, default values, closure, and the globals that it names, also as attributes of a module, and so on
inside functions, methods and classes of the user's own. Arrays of JAX, which cannot change, and objects of other kinds
count by identity, NumPy arrays and containers (such as ``os.environ``) by content, objects by their attributes and
their class. Installed libraries are taken as they are. Not seen are names that are made when the code runs
(``getattr(module, name)``), files, clocks, context variables, and what a library returns. What cannot be described
equals nothing, not even itself: it is compiled each time.
"""

import functools
import hashlib
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from numpyro_gp.guides.internals import active_handlers
from numpyro_gp.guides.setup import PLAIN
from numpyro_gp.likelihoods.closures import closed_over

# Libraries whose functions hold no values of the user's.
LIBRARIES = frozenset({"builtins", "jax", "jaxlib", "numpy", "numpyro", "numpyro_gp", "optax", "scipy", "functools"})
# Attributes of classes that Python makes and no model reads.
UNREAD = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "_abc_impl"})
UNREAD |= {"__abstractmethods__", "__dataclass_fields__", "__dataclass_params__", "__firstlineno__", "__slots__"}
UNREAD |= {"__static_attributes__", "__parameters__", "__orig_bases__", "__annotate__", "__annotate_func__"}
# Programs kept for one object: more than a loop over a few problems needs, and no growth without end.
PROGRAMS_KEPT = 16


class Identity:
    """An object that equals itself alone; once it is gone, it equals nothing. Held only where it must be."""

    def __init__(self, value: object) -> None:
        self.address = id(value)
        try:  # an object that holds its engine is not kept alive by the engine's programs
            self.value: Callable[[], object] = weakref.ref(value)
        except TypeError:
            self.value = lambda: value

    def __eq__(self, other: object) -> bool:
        mine = self.value()
        return isinstance(other, Identity) and mine is not None and mine is other.value()

    def __hash__(self) -> int:
        return self.address


def fingerprint(*values: object) -> Hashable:
    """A hashable description of values, equal for two calls only if tracing would read the same from both."""
    seen = _Seen()
    try:
        return tuple(_describe(value, seen) for value in values)
    except Exception:  # the user's own attributes may raise anything, and nest too deeply
        return Identity(object())


class _Seen:
    """What has been described so far: it is held, so that no other object takes its address."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, object]] = {}
        self.modules: set[tuple[types.ModuleType, tuple[str, ...]]] = set()  # with the names that were looked up

    def place(self, value: object) -> int | None:
        """The place of what was described before; None, once, for what is new."""
        if id(value) in self._places:
            return self._places[id(value)][0]
        self._places[id(value)] = len(self._places), value
        return None


def _describe(value: Any, seen: _Seen, names: tuple[str, ...] = ()) -> Hashable:
    """``names`` are those of the code that the value was found in: of a module, they are what the code may read."""
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, (jax.Array, types.BuiltinFunctionType)):
        return Identity(value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), hashlib.sha1(np.ascontiguousarray(value).tobytes()).hexdigest()
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, types.MethodType):  # made anew each time that it is asked for
        return "method", _describe((value.__func__, value.__self__), seen)
    if isinstance(value, types.ModuleType):  # read by name, and so not once for all
        return Identity(value), _describe_module(value, seen, names)
    if (place := seen.place(value)) is not None:
        return "described", place
    if isinstance(value, Mapping):
        entries = tuple((_describe(k, seen, names), _describe(v, seen, names)) for k, v in value.items())
        return type(value), entries, _own_class(value, seen)
    if isinstance(value, (tuple, list, set, frozenset, deque)):
        return type(value), tuple(_describe(item, seen, names) for item in value), _own_class(value, seen)
    if isinstance(value, functools.partial):
        return "partial", _describe((value.func, value.args, value.keywords), seen)
    if isinstance(value, types.FunctionType):
        return _describe_function(value, seen)
    if isinstance(value, type):
        return _describe_class(value, seen)
    if isinstance(value, (staticmethod, classmethod)):
        return type(value), _describe(value.__func__, seen)
    if isinstance(value, property):
        return "property", _describe((value.fget, value.fset), seen)
    if isinstance(getattr(value, "__wrapped__", None), types.FunctionType):  # what jax.jit returns
        return Identity(value), _describe(value.__wrapped__, seen)
    # A guide of a library fills its private attributes in its first run, from what else is described here.
    is_library = type(value).__module__.partition(".")[0] in LIBRARIES and hasattr(value, "prototype_trace")
    kept = {k: v for k, v in _attributes(value) if not (is_library and (k[0] == "_" or k == "prototype_trace"))}
    return Identity(value), _describe(kept, seen, names), _describe(type(value), seen)


def _own_class(container: object, seen: _Seen) -> Hashable:
    """Attributes and class of a container that is of no standard kind."""
    if type(container).__module__ in ("builtins", "collections", "types"):
        return ()
    return _describe(dict(_attributes(container)), seen), _describe(type(container), seen)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    """Attributes of an object, also those that its classes have places for."""
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            is_private = slot[:2] == "__" and slot[-2:] != "__"
            name = f"_{cls.__name__.lstrip('_')}{slot}" if is_private else slot
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _describe_function(function: types.FunctionType, seen: _Seen) -> Hashable:
    # Its own module may be another by name: functools.wraps takes that of what it wraps.
    if str(function.__globals__.get("__name__", "")).partition(".")[0] in LIBRARIES:
        return Identity(function.__code__), _describe(closed_over(function), seen)
    names = _names(function.__code__)
    # Modules that the code imports itself are among its names, and not among its globals.
    found = [function.__globals__.get(name, sys.modules.get(name)) for name in names]
    named = [_describe(value, seen, names) for value in found]
    held = [_describe(value, seen, names) for value in closed_over(function)]
    rest = _describe((function.__defaults__, function.__kwdefaults__, vars(function)), seen, names)
    return Identity(function.__code__), tuple(held), tuple(named), rest


def _describe_module(module: types.ModuleType, seen: _Seen, names: tuple[str, ...]) -> Hashable:
    """What code may read of a module; of an installed one, settings alone, which are no code."""
    if module.__name__.partition(".")[0] in LIBRARIES or (module, names) in seen.modules:
        return ()
    seen.modules.add((module, names))
    own = vars(module)
    found = [own[name] for name in names if name in own]
    if _is_installed(module.__name__):
        found = [value for value in found if isinstance(value, (*PLAIN, Mapping, list, np.ndarray))]
    return tuple(_describe(value, seen, names) for value in found)


def _describe_class(cls: type, seen: _Seen) -> Hashable:
    """Attributes and methods of a class of the user's own and of those that it is made from."""
    parts = []
    for one in cls.__mro__:
        if not _is_installed(one.__module__):
            parts.append(_describe({k: v for k, v in vars(one).items() if k not in UNREAD}, seen))
    return Identity(cls), tuple(parts)


@functools.cache
def _is_installed(module: str) -> bool:
    """Whether a module is Python's, or of an installed package."""
    top = module.partition(".")[0]
    if top in LIBRARIES or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _names(code: types.CodeType) -> tuple[str, ...]:
    """Names that the code, or a function defined in it, may look up among the globals."""
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _names(part)]
    return tuple(sorted({*code.co_names, *inner}))


_kept: weakref.WeakKeyDictionary[Any, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


def keep_program(owner: object, key: Hashable, build: Callable[[Any], Any]) -> Any:
    """The program ``build(owner)`` of an object under ``key``, built where there is none; the ones used last are kept.

    ``build`` is given a proxy: a program that held its owner would keep it, and so itself, for ever.
    """
    try:
        programs = _kept.setdefault(owner, {})
    except TypeError:  # an object that cannot be referred to weakly: nothing is kept
        return build(owner)
    key = key, fingerprint(*active_handlers())
    program = programs.pop(key) if key in programs else build(weakref.proxy(owner))
    programs[key] = program
    while len(programs) > PROGRAMS_KEPT:
        del programs[next(iter(programs))]
    return program
