"""What a model does with the arrays it is given: values that it checks, and rows that it reads by those of a plate.

A program is traced for the shapes of its arguments, and a check of values that stands in the model is passed once. And
JAX takes the last row for every row that an array does not have. Both are found in one trace of the model, in which
all plates hold their first rows: nothing is computed.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal
from numpyro import handlers
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, is_array, split_arrays
from numpyro_gp.checks import fail, is_known, waiting_checks
from numpyro_gp.guides.given_rows import GivenRows
from numpyro_gp.guides.internals import active_handlers
from numpyro_gp.guides.setup import NEEDS_VALUES
from numpyro_gp.primitives.own_rows import COUNTING, NEVER, learnt, takes_all_rows


class ArgumentCheck(NamedTuple):
    """A check that a model makes of some of its arrays as they are, all rows in their order."""

    check: Callable[..., None]
    numbers: tuple[int, ...]


class Reading(NamedTuple):
    """What a model does with its arrays.

    Attributes
    ----------
    checks : list of ArgumentCheck
        Checks of their values.
    rows : dict
        Number of an array that is read by the rows of a plate, to how many rows the plate has.
    """

    checks: list[ArgumentCheck]
    rows: dict[int, int]


class RowsOfPlate(str):
    """The fact ``COUNTING`` of the indices of a plate, and how many rows an array must have that is read by them."""

    size: int


class _FirstRows(Messenger):
    """Plates hold their first rows, 0, 1, 2, ...: these, and the sizes of the plates."""

    def __init__(self) -> None:
        super().__init__()
        self.indices: list[Any] = []
        self.sizes: list[int] = []
        # Where a batch stands for all data, its rows are all that a minibatch of the plate reads.
        self.is_batch = any(isinstance(handler, GivenRows) for handler in active_handlers())

    def process_message(self, message: dict[str, Any]) -> None:
        if message["type"] == "plate":
            size, held = message["args"]
            held = size if held is None else held
            if message["value"] is None:  # a minibatch: all others hold theirs already
                message["value"] = jnp.arange(held)
            self.indices.append(message["value"])
            self.sizes.append(held if self.is_batch else size)


def reading(model: Callable[..., Any], at: Callable[[Sequence[Any]], Any], arrays: Sequence[Array]) -> Reading:
    """What ``model`` does with ``arrays``; ``at`` makes its bound arguments of them. Nothing where it needs values."""
    found: list[Callable[..., None]] = []
    plates = _FirstRows()

    def run(arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        bound = at(arrays)
        with waiting_checks() as waiting, handlers.block(), handlers.seed(rng_seed=0), plates:
            model(*bound.args, **bound.kwargs)
        found.extend(check for check, _ in waiting)
        indices, plates.indices = plates.indices, []  # no tracer is left behind
        return [values for _, values in waiting], indices

    try:
        closed, shapes = jax.make_jaxpr(run, return_shape=True)(list(arrays))
    except NEEDS_VALUES:
        return Reading([], {})
    rows: dict[int, int] = {}
    indices = {}
    for var, size in zip(reversed(closed.jaxpr.outvars), reversed(plates.sizes), strict=False):  # they come last
        indices[var] = RowsOfPlate(COUNTING)
        indices[var].size = size
    facts = _facts(closed.jaxpr, list(range(len(arrays))), rows, indices)
    numbers = jax.tree.unflatten(jax.tree.structure(shapes), facts)[0]
    checks = [
        ArgumentCheck(check, tuple(own))
        for check, own in zip(found, numbers, strict=True)
        if all(isinstance(number, int) for number in own)
    ]
    return Reading(checks, rows)


def _facts(program: Jaxpr, known: list[Any], rows: dict[int, int], indices: Mapping[Any, RowsOfPlate]) -> list[Any]:
    """What is known of each result: the number of the array that it is, or a fact of `own_rows`.

    ``indices`` are those of plates; ``rows`` takes the number of each array that is read by them, with the largest
    size of such a plate.
    """
    facts: dict[Any, Any] = dict(zip(program.invars, known, strict=True))

    def fact_of(atom: Any) -> Any:
        return None if isinstance(atom, Literal) else facts.get(atom)

    for equation in program.eqns:
        before, name = [fact_of(atom) for atom in equation.invars], equation.primitive.name
        if name in ("jit", "pjit"):
            after = _facts(equation.params["jaxpr"].jaxpr, before, rows, {})
        elif name == "select_n" and before[0] == NEVER:
            after = [before[1]]
        elif name == "gather" and before[1] == COUNTING and isinstance(before[0], int):
            how = equation.params["mode"]  # a user may ask for zeros, or NaN, where there is no row
            by_rows = tuple(equation.params["dimension_numbers"].start_index_map) == (0,)
            if by_rows and how != jax.lax.GatherScatterMode.FILL_OR_DROP and isinstance(before[1], RowsOfPlate):
                rows[before[0]] = max(before[1].size, rows.get(before[0], 0))
            after = [before[0] if takes_all_rows(equation.params, equation.invars) else None]
        else:
            after = [learnt(equation, before)] * len(equation.outvars)
        facts.update(zip(equation.outvars, after, strict=True))
        facts.update((var, indices[var]) for var in equation.outvars if var in indices)
    return [fact_of(atom) for atom in program.outvars]


def check_values(found: Reading, arrays: Sequence[Any]) -> None:
    """The checks that the model makes of its arrays, of other values than it was traced with."""
    for check, numbers in found.checks:
        own = [arrays[number] for number in numbers]
        if all(map(is_known, own)):
            check(*map(np.asarray, own))


def check_plate_rows(model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse an array that a model reads by the rows of a plate and that has fewer."""
    arrays, merge = split_arrays((args, dict(kwargs)))
    found = reading(model, lambda arrays: Arguments(*merge(arrays)), arrays)
    short = [number for number, count in found.rows.items() if jnp.shape(arrays[number])[0] < count]
    if not short:
        return
    where = [path for path, leaf in jax.tree_util.tree_leaves_with_path((args, dict(kwargs))) if is_array(leaf)]
    outer, name, *_ = where[short[0]]
    if outer.idx == 0:
        declared = inspect.signature(model).parameters.values()
        names = [one.name for one in declared if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        name = names[name.idx] if name.idx < len(names) else f"argument {name.idx}"
    held, count = jnp.shape(arrays[short[0]])[0], found.rows[short[0]]
    cure = "Pass one row for each datum: JAX would repeat the last one."
    fail(getattr(name, "key", name), f"of {count} rows or more, as the plate that reads it", f"{held} rows", cure)


class Arguments(NamedTuple):
    """Arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
