"""How a model is called: which of its arguments are data, and which of those have one row for each datum."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, Merge, is_array, is_key, split_arrays
from numpyro_gp.checks import check_digits, fail
from numpyro_gp.neighbours.value import Mark, Neighbours
from numpyro_gp.programs.files import SEQUENCES

# That of a function without a signature.
ANYTHING = inspect.signature(lambda *args, **kwargs: None)  # noqa: ARG005
# What a model reads of `ngp.neighbours`, and arrays have not.
OF_NEIGHBOURS = ("inputs", "index", "order", "lengthscale", "find", "rescaled", "around")


class Arguments(NamedTuple):
    """Arguments of a call, by position and by keyword."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


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
    rest : Merge
        The structure of the arguments, and what in them is no array.
    static : dict
        Keywords that an engine adds by itself.
    """

    arguments: dict[str, Any]
    arrays: list[Array]
    owners: tuple[str, ...]
    rest: Merge
    static: Mapping[str, Any]

    def at(self, arrays: Sequence[object]) -> Arguments:
        """The arguments with other arrays in these places."""
        return Arguments(*self.rest(arrays))

    def run(self, function: Callable[..., object], arrays: Sequence[object]) -> Any:
        """A function of the model's arguments, called with these and with what an engine adds."""
        args, kwargs = self.at(arrays)
        return function(*args, **{**kwargs, **self.static})

    def numbers(self, rows: Sequence[str] | None) -> frozenset[int]:
        """Numbers of the arrays with one row for each datum: those of the arguments that are given, or of the first."""
        names = (next(iter(self.arguments)),) if rows is None else tuple(rows)
        arrays = [name for name in self.arguments if name in self.owners]
        if rows is None and names[0] not in self.owners:
            value, required = self.arguments[names[0]], "an array of numbers, whose rows are predicted"
            kind = getattr(value, "dtype", type(value).__name__)
            cure = f"Name those with a row for each datum, as rows=[{arrays[0]!r}]." if arrays else "Pass an array."
            if isinstance(value, (int, float, list, tuple)) or hasattr(value, "to_numpy"):
                cure = f"Pass an array with a row for each datum: jnp.asarray({names[0]})."
            fail(names[0], required, f"{kind}", cure, TypeError)
        if unknown := [name for name in names if name not in self.owners]:
            fail("rows", f"names of array arguments: {arrays}", f"{unknown}", "Name them as the model does.")
        found = frozenset(number for number, owner in enumerate(self.owners) if owner in names)
        shapes = [self.arrays[number].shape for number in found]
        # In plates of groups the rows of an array may stand behind an axis of members.
        if (0,) in [shape[:1] for shape in shapes] or not set.intersection(*map(set, shapes)):
            self.refuse_rows(found)
        return found

    def refuse_rows(self, numbers: Iterable[int]) -> NoReturn:
        """Say that these arrays have not the same rows."""
        sizes = {self.owners[number]: self.arrays[number].shape[:1] for number in numbers}
        fail("rows", "arguments with the same, non-zero number of rows", f"{sizes}", "Check the first axis of each.")


def call_of(
    function: object, args: tuple[object, ...], kwargs: Mapping[str, object], static: Mapping[str, object] | None = None
) -> Call:
    """A call of a function, arguments by name, those of a ``**keywords`` too; refuse one that it would refuse."""
    static = static or {}
    signature = _signature_of(function)
    try:
        bound = signature.bind(*args, **{**kwargs, **static})
    except TypeError as error:
        cure = "Give it what the model takes, in the same order and under the same names."
        fail("args and kwargs", "arguments of the model", str(error).removeprefix("got "), cure, TypeError)
    arguments = {name: value for name, value in _by_name(bound).items() if name not in static}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
            # Whole numbers of eight bytes that four do not hold, where JAX has four, would wrap.
            limits = np.iinfo(jax.dtypes.canonicalize_dtype(value.dtype))
            if value.min() < limits.min or value.max() > limits.max:
                required = f"of whole numbers from {limits.min} to {limits.max}"
                cure = "Subtract their least and pass them as floats, or use float64 "
                cure += "(jax.config.update('jax_enable_x64', True))."
                fail(name, required, f"{value.min()} to {value.max()}", cure)
    arrays, rest = split_arrays((tuple(args), dict(kwargs)))
    given = list(zip(_names_of_places(signature.parameters.values(), len(args)), args, strict=True))
    given += sorted(kwargs.items())  # as JAX orders the entries of a dictionary
    owners = [name for name, value in given for leaf in jax.tree.leaves(value) if is_array(leaf)]
    return Call(arguments, arrays, tuple(owners), rest, static)


def check_digits_of(call: Call) -> None:
    """Warn where arguments of a fit lose digits as they become arrays of JAX."""
    for name, value in call.arguments.items():
        check_digits(name, value)


def check_taken(function: object, args: tuple[object, ...], method: str, given: Mapping[str, object]) -> None:
    """Refuse keywords of a method that the model has as well, and would not get; by position both have theirs."""
    bound: set[str] = set()
    while isinstance(function, functools.partial):
        bound, function = bound | set(function.keywords), function.func
    names = argument_names(function)
    if not given.keys() & set(names) - bound:
        return
    placed = _names_of_places(_signature_of(function).parameters.values(), len(args))
    if clash := [name for name in given if name in names and name not in {*placed, *bound}]:
        cure = f"Pass that of the model by position, or bind it: functools.partial(model, {clash[0]}=...)."
        required = f"free of an argument named like one of {method} that is given"
        fail("the model", required, f"an argument {clash[0]!r}", cure, TypeError)


def _signature_of(function: Any) -> inspect.Signature:
    return inspect.signature(function) if argument_names(function) else ANYTHING


def _by_name(bound: inspect.BoundArguments) -> dict[str, object]:
    """Arguments by name, those of a ``**keywords`` too."""
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        is_rest = bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        found |= value if is_rest else {name: value}
    return found


def name_what_is_no_array(error: Exception, call: Call) -> None:
    """Add to an error of the model which arguments are lists or tables, of which JAX takes no rows."""
    note_neighbours(error)
    for name, value in call.arguments.items():
        if isinstance(value, (list, tuple)) or hasattr(value, "to_numpy"):
            kind = type(value).__name__
            cure = f"If the model takes rows of it, pass an array: np.asarray({name})."
            error.add_note(f"The argument {name!r} came as {kind}, and the model receives it as it is. {cure}")


def note_neighbours(error: Exception) -> None:
    """Add to an error of the model that an array came where it takes rows with their neighbours."""
    found = re.search(r"no attribute '?(\w+)'?$", f"{error}") if isinstance(error, AttributeError) else None
    if found is not None and found[1] in OF_NEIGHBOURS:
        note = f"The model reads {found[1]!r} of near, rows with their neighbours, which an array has not."
        note += " Pass near = ngp.neighbours(X, 16) where X came."
        if note not in getattr(error, "__notes__", ()):  # looks at a model stand inside of each other
            error.add_note(note)


def _names_of_places(declared: Iterable[inspect.Parameter], count: int) -> list[str]:
    """Names of the first arguments by position; those of ``*args`` share one."""
    kinds = inspect.Parameter
    names = [one.name for one in declared if one.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    rest = next((one.name for one in declared if one.kind is kinds.VAR_POSITIONAL), "")
    return [*names, *[rest] * count][:count]


def argument_names(function: Any) -> tuple[str, ...]:
    """Names of the arguments of a callable, none where it has no signature."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def named_arguments(function: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Arguments by the names of a callable, None for those that are not given; nothing where they do not fit it."""
    try:
        bound = _signature_of(function).bind_partial(*args, **kwargs)
    except TypeError:
        return {}
    return dict.fromkeys(argument_names(function)) | _by_name(bound)


def is_data(value: object) -> bool:
    """Whether an argument is an array."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def check_not_empty(call: Call) -> None:
    """Refuse data without rows."""
    for owner, array in zip(call.owners, call.arrays, strict=True):
        if array.ndim and array.shape[0] == 0 and jnp.issubdtype(array.dtype, jnp.floating):
            fail(f"{owner} of the model", "non-empty data", f"shape {array.shape}", "Pass at least one row.")


# --------------------------------------------------------------------------------------
# Arguments of a model as their shapes, in words that a file can hold: a guide is set up on them without the data.


# What stands in a file as it is.
PLAIN = (bool, int, float, str, type(None))
MOST_WORDS = 100  # arrays, numbers and strings


def shapes_in_words(given: Arguments) -> dict[str, Any] | None:
    """Shapes and types of arrays, and all else as it is; None where an argument is an object of another kind.

    Nor have lists of many numbers words: they are data, which a file of shapes is not to hold.
    """
    if len(jax.tree.leaves(tuple(given))) > MOST_WORDS:
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
