"""Arguments of a model as their shapes, in words that a file can hold: a guide is set up on them without the data."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import is_array, is_key
from numpyro_gp.neighbours.value import Mark, Neighbours
from numpyro_gp.rows.call import Arguments

# What stands in a file as it is.
PLAIN = (bool, int, float, str, type(None))
MOST = 100  # arrays, numbers and strings
SEQUENCES = {"tuple": tuple, "list": list}


def shapes_in_words(given: Arguments) -> dict[str, Any] | None:
    """Shapes and types of arrays, and all else as it is; None where an argument is an object of another kind.

    Nor have lists of many numbers words: they are data, which a file of shapes is not to hold.
    """
    if len(jax.tree.leaves(tuple(given))) > MOST:
        return None
    found = {"args": _words(tuple(given.args)), "kwargs": _words(dict(given.kwargs))}
    return None if None in found.values() else found


def arguments_of(words: Mapping[str, Any]) -> Arguments:
    """The inverse of `shapes_in_words`, with a ``jax.ShapeDtypeStruct`` for each array."""
    return Arguments(_value(words["args"]), _value(words["kwargs"]))


def _words(value: Any) -> dict[str, Any] | None:
    """A value in words; None of a function, a kernel, and of what holds one."""
    if isinstance(value, jax.ShapeDtypeStruct) or (is_array(value) and not is_key(value)):
        return {"shape": list(value.shape), "dtype": str(value.dtype)}
    if type(value) in PLAIN:
        return {"value": value}
    if type(value) is dict and all(isinstance(name, str) for name in value):
        named = {name: _words(item) for name, item in value.items()}
        return None if None in named.values() else {"dict": named}
    if isinstance(value, Neighbours):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        mark = None if value.mark is None else list(value.mark)
        return {"neighbours": {name: _words(item) for name, item in {**held, "mark": mark}.items()}}
    if type(value) in SEQUENCES.values():
        items = [_words(item) for item in value]
        return None if None in items else {type(value).__name__: items}
    return None


def _value(words: Mapping[str, Any]) -> Any:
    if "shape" in words:
        return jax.ShapeDtypeStruct(tuple(words["shape"]), jnp.dtype(words["dtype"]))
    if "value" in words:
        return words["value"]
    if "dict" in words:
        return {name: _value(item) for name, item in words["dict"].items()}
    if "neighbours" in words:
        held = {name: _value(item) for name, item in words["neighbours"].items()}
        return Neighbours(**{**held, "mark": held["mark"] and Mark(*held["mark"])})
    ((kind, items),) = words.items()
    return SEQUENCES[kind](map(_value, items))
