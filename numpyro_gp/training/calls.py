"""How a model is called: which of its arguments are data, and which of those have one row for each datum."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, is_array, split_arrays
from numpyro_gp.checks import fail

__all__ = ["bind", "check_rows", "is_data", "row_names", "split_arguments"]


def is_data(value: Any) -> bool:
    """Whether an argument is an array."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def bind(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    """The arguments of a call by name; refuse a call that the model would refuse."""
    try:
        bound = inspect.signature(model).bind(*args, **kwargs)
    except TypeError as error:
        fail(
            "args and kwargs",
            "arguments of the model",
            str(error),
            "Give it what the model takes, in the same order and under the same names.",
            TypeError,
        )
    return bound


def row_names(bound: inspect.BoundArguments, rows: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the arguments with one row for each datum: those given, or the first."""
    names = (next(iter(bound.arguments)),) if rows is None else tuple(rows)
    unknown = [name for name in names if name not in bound.arguments or not is_data(bound.arguments[name])]
    if unknown:
        fail(
            "rows",
            f"names of array arguments among {list(bound.arguments)}",
            f"{unknown}",
            "Name them as the model does.",
        )
    return names


def check_rows(bound: inspect.BoundArguments, names: tuple[str, ...]) -> None:
    """Refuse row arguments whose first axes differ or are empty."""
    sizes = {name: bound.arguments[name].shape[0] for name in names}
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        fail("rows", "arguments with the same, non-zero number of rows", f"{sizes}", "Check the first axis of each.")


def split_arguments(args: tuple, kwargs: dict) -> tuple[list[Array], Callable[[list[Array]], tuple[tuple, dict]]]:
    """The arrays among the arguments, and the function that puts them back among the fixed rest; refuse empty data."""
    for where, leaf in jax.tree_util.tree_leaves_with_path((args, kwargs)):
        if is_array(leaf) and leaf.ndim and leaf.shape[0] == 0 and jnp.issubdtype(leaf.dtype, jnp.floating):
            name = f"argument {where[1].idx}" if where[0].idx == 0 else where[1].key
            fail(f"{name} of the model", "non-empty data", f"shape {leaf.shape}", "Pass at least one row.")
    return split_arrays((args, kwargs))
