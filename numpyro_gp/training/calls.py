"""How a model is called: which of its arguments are data, and which of those have one row for each datum."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, Merge, is_array, split_arrays
from numpyro_gp.checks import fail
from numpyro_gp.guides.setup import abstract_trace
from numpyro_gp.sites import Trace


class Call(NamedTuple):
    """A call of a model, parted into the arrays among its arguments and what stays fixed.

    Attributes
    ----------
    arguments : dict
        Arguments by name, as they came.
    arrays : list of Array
        The arrays in them, those inside dictionaries and tuples included.
    owners : tuple of str
        Name of the argument that each array belongs to.
    at : callable
        The bound arguments with other arrays in these places.
    rest : Merge
        The structure of the arguments, and what in them is no array.
    """

    arguments: dict[str, Any]
    arrays: list[Array]
    owners: tuple[str, ...]
    at: Callable[[Sequence[Any]], inspect.BoundArguments]
    rest: Merge

    def sites(self, model: Callable[..., Any]) -> Trace:
        """Sites of the model under its prior, with their shapes: nothing is computed."""
        bound = self.at(self.arrays)
        return abstract_trace(model, bound.args, bound.kwargs)


def is_data(value: object) -> bool:
    """Whether an argument is an array."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def argument_names(function: Any) -> tuple[str, ...]:
    """Names of the arguments of a callable, none where it has no signature."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def bind(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """The arguments of a call by name, those of a ``**keywords`` too; refuse a call that the model would refuse."""
    try:
        bound = inspect.signature(model).bind(*args, **kwargs)
    except TypeError as error:
        cure = "Give it what the model takes, in the same order and under the same names."
        fail("args and kwargs", "arguments of the model", str(error).removeprefix("got "), cure, TypeError)
    declared, keywords = bound.signature.parameters, inspect.Parameter.VAR_KEYWORD
    others = [name for name in bound.arguments if declared[name].kind is keywords]
    given = {name: value for name, value in bound.arguments.items() if name not in others}
    for name in others:
        given |= bound.arguments[name]
    arrays, merge = split_arrays(list(given.values()))
    owners = [name for name, value in given.items() for leaf in jax.tree.leaves(value) if is_array(leaf)]

    def at(arrays: Sequence[Any]) -> inspect.BoundArguments:
        values = dict(zip(given, merge(list(arrays)), strict=True))
        values |= {name: {key: values.pop(key) for key in bound.arguments[name]} for name in others}
        return inspect.BoundArguments(bound.signature, values)

    return Call(given, arrays, tuple(owners), at, merge)


def row_arrays(call: Call, rows: Sequence[str] | None) -> frozenset[int]:
    """Numbers of the arrays with one row for each datum: those of the arguments that are given, or of the first."""
    names = (next(iter(call.arguments)),) if rows is None else tuple(rows)
    unknown = [name for name in names if name not in call.owners]
    if unknown:
        required = f"names of array arguments among {list(call.arguments)}"
        fail("rows", required, f"{unknown}", "Name them as the model does.")
    found = frozenset(number for number, owner in enumerate(call.owners) if owner in names)
    sizes = {call.owners[number]: call.arrays[number].shape[:1] for number in found}
    if len({call.arrays[number].shape[:1] for number in found}) != 1 or not {(), (0,)}.isdisjoint(sizes.values()):
        fail("rows", "arguments with the same, non-zero number of rows", f"{sizes}", "Check the first axis of each.")
    return found


def split_arguments(args: tuple, kwargs: dict) -> tuple[list[Array], Callable[[list[Array]], tuple[tuple, dict]]]:
    """The arrays among the arguments, and the function that puts them back among the fixed rest; refuse empty data."""
    for where, leaf in jax.tree_util.tree_leaves_with_path((args, kwargs)):
        if is_array(leaf) and leaf.ndim and leaf.shape[0] == 0 and jnp.issubdtype(leaf.dtype, jnp.floating):
            name = f"argument {where[1].idx}" if where[0].idx == 0 else where[1].key
            fail(f"{name} of the model", "non-empty data", f"shape {leaf.shape}", "Pass at least one row.")
    return split_arrays((args, kwargs))
