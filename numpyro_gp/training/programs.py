"""Compiled programs that are kept: by the object they belong to, weakly, and by everything that they were made of.

A program made from a Python function has the values that the function read built in. `fingerprint` says what those
are: two fingerprints are equal only where tracing again would read the same values, so that a kept program is never
stale. What it sees, for a function: its code, default values, closure, and the globals that it names, and so
on inside functions and methods of the user's own. Arrays of JAX, which cannot change, and objects of other kinds count
by identity, NumPy arrays and containers by content, objects with attributes by their attributes. Functions
of installed libraries are taken as they are.
"""

import functools
import hashlib
import types
import weakref
from collections.abc import Callable, Hashable, Mapping
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
    return tuple(_describe(value, frozenset()) for value in values)


def _describe(value: Any, above: frozenset[int]) -> Hashable:
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, (jax.Array, type, types.ModuleType, types.BuiltinFunctionType)) or id(value) in above:
        return Identity(value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), hashlib.sha1(np.ascontiguousarray(value).tobytes()).hexdigest()
    within = above | {id(value)}
    if isinstance(value, Mapping):
        return type(value), tuple((_describe(k, within), _describe(v, within)) for k, v in value.items())
    if isinstance(value, (tuple, list, set, frozenset)):
        return type(value), tuple(_describe(item, within) for item in value)
    if isinstance(value, functools.partial):
        return "partial", _describe((value.func, value.args, value.keywords), within)
    if isinstance(value, types.MethodType):
        return "method", _describe((value.__func__, value.__self__), within)
    if isinstance(value, types.FunctionType):
        return _describe_function(value, within)
    if isinstance(getattr(value, "__wrapped__", None), types.FunctionType):  # what jax.jit returns
        return Identity(value), _describe(value.__wrapped__, within)
    # A guide of a library fills its private attributes in its first run, from what else is described here.
    is_library = type(value).__module__.partition(".")[0] in LIBRARIES and hasattr(value, "prototype_trace")
    attributes = vars(value) if hasattr(value, "__dict__") else {}
    kept = {k: v for k, v in attributes.items() if not (is_library and (k[0] == "_" or k == "prototype_trace"))}
    return Identity(value), _describe(kept, within)


def _describe_function(function: types.FunctionType, above: frozenset[int]) -> Hashable:
    if (function.__module__ or "").partition(".")[0] in LIBRARIES:
        return Identity(function.__code__), _describe(closed_over(function), above)
    named = [function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__]
    contents = (closed_over(function), function.__defaults__, function.__kwdefaults__, named)
    return Identity(function.__code__), _describe(contents, above)


def _names(code: types.CodeType) -> list[str]:
    """Names that the code, or a function defined in it, may look up among the globals."""
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _names(part)]
    return sorted({*code.co_names, *inner})


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
