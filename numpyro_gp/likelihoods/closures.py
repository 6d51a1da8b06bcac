"""Functions as pytrees: the arrays that a user's function closes over become leaves.

A likelihood written as ``lambda f: dist.StudentT(3.0, f, scale)`` holds ``scale`` in its closure. Inside ``vmap``
or ``scan`` that is a tracer, which must not outlive the transformation hidden in a function; as a leaf it
is stacked and passed on like every other array.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import jax

from numpyro_gp.arrays import is_array

EMPTY = object()


def _wrap(value: object) -> object:
    """Functions inside closures are closures too."""
    return Closure(value) if isinstance(value, (types.FunctionType, functools.partial)) else value


def _unwrap(value: object) -> Any:
    return value.rebuilt() if isinstance(value, Closure) else value


class Closure:
    """A function whose closed-over arrays are pytree leaves; called, it is the function.

    Which of its contents are arrays is settled when it is made: JAX rebuilds it over whatever a
    transformation holds in their place.
    """

    # Equal structures do not mean equal functions: globals that the code reads are in neither (`programs.compiled`).
    is_users_own = True

    def __init__(self, function: Callable[..., object]) -> None:
        # What it closes over: cells, default values, arguments of partials.
        contents: list[object] = []
        if isinstance(function, functools.partial):
            contents = [_wrap(function.func), function.args, function.keywords]
        elif isinstance(function, types.MethodType):
            contents = [function.__self__]
        elif isinstance(function, types.FunctionType):
            cells = []
            for cell in function.__closure__ or ():
                try:
                    cells.append(_wrap(cell.cell_contents))
                except ValueError:  # a name that is assigned later, as in a recursive function
                    cells.append(EMPTY)
            contents = [cells, function.__defaults__, function.__kwdefaults__]
        leaves, structure = jax.tree.flatten(contents)
        self.arrays = [leaf for leaf in leaves if is_array(leaf)]
        rest = tuple(None if is_array(leaf) else _Same(leaf) for leaf in leaves)
        self.static = _Same(function), structure, rest

    def rebuilt(self) -> Callable[..., object]:
        """The function over the present contents."""
        same, structure, rest = self.static
        function, left = same.value, iter(self.arrays)
        contents = jax.tree.unflatten(structure, [next(left) if item is None else item.value for item in rest])
        if isinstance(function, functools.partial):
            return functools.partial(_unwrap(contents[0]), *contents[1], **contents[2])
        if isinstance(function, types.MethodType):
            return types.MethodType(function.__func__, contents[0])
        if not isinstance(function, types.FunctionType):
            return function
        cells, defaults, keyword_defaults = contents
        closed = tuple(types.CellType() if c is EMPTY else types.CellType(_unwrap(c)) for c in cells)
        made = types.FunctionType(function.__code__, function.__globals__, function.__name__, defaults, closed or None)
        made.__kwdefaults__ = keyword_defaults
        return made

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.rebuilt()(*args, **kwargs)


def _unflatten(static: Any, arrays: Any) -> Closure:
    closure = object.__new__(Closure)
    closure.arrays, closure.static = list(arrays), static
    return closure


class _Same:
    """An object in the structure of a tree, equal to itself only (its own ``==`` may be an array's)."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        ours, theirs = self.value, other.value
        if isinstance(ours, types.FunctionType) and isinstance(theirs, types.FunctionType):
            return ours.__code__ is theirs.__code__
        is_plain = isinstance(ours, (int, float, str, bool)) and type(ours) is type(theirs)
        return ours is theirs or (is_plain and ours == theirs)

    def __hash__(self) -> int:
        value = self.value.__code__ if isinstance(self.value, types.FunctionType) else self.value
        return hash(value) if isinstance(value, (int, float, str, bool, types.CodeType)) else id(value)


jax.tree_util.register_pytree_node(Closure, lambda closure: (closure.arrays, closure.static), _unflatten)
