"""Compiled programs that are kept: by the object they belong to, weakly, and by everything that they were made of.

A program made from a Python function has the values that the function read built in. `fingerprint` says what those
are: two fingerprints are equal only where tracing again would read the same values. What it sees, for a
function: its code, default values, closure, and the globals that it names, also as attributes of a module, and so on
inside functions, methods and classes of the user's own. Arrays of JAX, which cannot change, and objects of other kinds
count by identity, NumPy arrays and containers (such as ``os.environ``) by content, objects by their attributes and
their class. Installed libraries are taken as they are. Files, clocks and what a library returns are not seen.
"""

import functools
import hashlib
import sys
import types
import weakref
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
# Programs kept for one object: more than a loop over a few problems needs, and no growth without end.
PROGRAMS_KEPT = 16


class Identity:
    """An object that equals itself alone. It is held, so that no other object takes its address."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def fingerprint(*values: object) -> Hashable:
    """A hashable description of values, equal for two calls only if tracing would read the same from both."""
    seen = _Seen()
    return tuple(_describe(value, seen) for value in values)


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
    if isinstance(value, types.MethodType):  # made anew each time that it is asked for
        return "method", _describe((value.__func__, value.__self__), seen)
    if isinstance(value, types.ModuleType):  # read by name, and so not once for all
        return Identity(value), _describe_module(value, seen, names)
    if (place := seen.place(value)) is not None:
        return "described", place
    if isinstance(value, Mapping):
        return type(value), tuple((_describe(k, seen), _describe(v, seen)) for k, v in value.items())
    if isinstance(value, (tuple, list, set, frozenset)):
        return type(value), tuple(_describe(item, seen) for item in value)
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
    return Identity(value), _describe(kept, seen), _describe(type(value), seen)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    """Attributes of an object, also those that its classes have places for."""
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _describe_function(function: types.FunctionType, seen: _Seen) -> Hashable:
    if (function.__module__ or "").partition(".")[0] in LIBRARIES:
        return Identity(function.__code__), _describe(closed_over(function), seen)
    names = _names(function.__code__)
    named = [_describe(function.__globals__[name], seen, names) for name in names if name in function.__globals__]
    held = [_describe(value, seen, names) for value in closed_over(function)]
    defaults = _describe((function.__defaults__, function.__kwdefaults__), seen)
    return Identity(function.__code__), tuple(held), tuple(named), defaults


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
            named = {k: v for k, v in vars(one).items() if k[:2] != "__" or isinstance(v, types.FunctionType)}
            named.pop("_abc_impl", None)
            parts.append(_describe(named, seen))
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
