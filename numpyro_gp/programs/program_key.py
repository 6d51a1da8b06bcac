"""The key by which a program is kept: all that it does.

That is its operations with their parameters, the shapes and types of all its values, and the numbers written in it,
those inside of loops and branches too. A closure, a global number, a method or the precision that changed gives another
program.
"""

from collections.abc import Hashable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from numpyro_gp.programs.trace import WHOLE

# Arrays inside of a program count by their numbers up to this size in bytes, larger ones by identity.
COMPARED = 2**16
# Types of most parameters of operations.
PLAIN = frozenset({int, bool, str, type(None)})


def key_of(program: Jaxpr) -> Hashable:
    """What a program computes: equal keys and equal inputs give equal results.

    Raises a TypeError where a parameter of an operation has no hash.
    """
    return _signature(program, (), {})


def _signature(program: Jaxpr, constants: Iterable[object], seen: dict[int, object]) -> tuple[object, ...]:
    """``seen`` has what was said of inner programs, which may stand in many places."""
    numbers: dict[Any, int] = {}
    for var in program.constvars + program.invars:
        numbers[var] = len(numbers)
    lines = []
    for equation in program.eqns:
        inputs = tuple([_number(atom) if isinstance(atom, Literal) else numbers[atom] for atom in equation.invars])
        for var in equation.outvars:
            numbers[var] = len(numbers)
        results = tuple([var.aval for var in equation.outvars])
        parameters = tuple([(name, _parameter(value, seen)) for name, value in sorted(equation.params.items())])
        lines.append((equation.primitive, inputs, results, parameters))
    inputs = tuple([var.aval for var in program.constvars + program.invars])
    outputs = tuple([_number(atom) if isinstance(atom, Literal) else numbers[atom] for atom in program.outvars])
    return inputs, tuple(map(_content, constants)), tuple(lines), outputs


def _number(atom: Literal) -> object:
    """A number that stands in a program."""
    return atom.aval, np.asarray(atom.val).tobytes()


def _parameter(value: object, seen: dict[int, object]) -> object:
    kind = type(value)
    if kind in PLAIN:
        return kind, value
    if isinstance(value, ClosedJaxpr):
        if id(value) not in seen:
            seen[id(value)] = _signature(value.jaxpr, value.consts, seen)
        return seen[id(value)]
    if isinstance(value, Jaxpr):
        return _signature(value, (), seen)
    if isinstance(value, (tuple, list)):
        is_plain = kind is tuple and WHOLE.issuperset(map(type, value))
        return (kind, value) if is_plain else tuple([_parameter(item, seen) for item in value])
    return _content(value) if isinstance(value, (np.ndarray, jax.Array)) else (kind, value)


def _content(value: object) -> object:
    """A constant by its numbers, a large one of JAX, which cannot change, by its identity."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return str(value.dtype), _content(jax.random.key_data(value))
    if isinstance(value, jax.Array) and (value.nbytes > COMPARED or not value.is_fully_addressable):
        return Same(value)
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


class Same:
    """A value that equals itself alone; it is held, so that nothing else takes its address."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
