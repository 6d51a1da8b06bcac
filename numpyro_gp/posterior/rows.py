"""Which arguments of a model have one row for each datum, and on which axis: found by running it on a part of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from jax.extend.core import Jaxpr, Literal, Var

from numpyro_gp.checks import fail
from numpyro_gp.posterior.staging import ELEMENTWISE

# More arrays than these that may or may not have rows are not tried in all ways.
LIMIT = 4
SLICES = frozenset({"dynamic_slice", "slice"})


def row_axes(arrays: Sequence[Any], named: frozenset[int], batch: tuple[int, ...]) -> tuple[int, int, dict[int, int]]:
    """Axis and number of the rows in data of shape ``batch``, and their axis in each array that may have them.

    Members of plates have axes in the data on the left of the rows. Arrays have all these axes, as inputs of each
    member, the last of them, or the rows first, as inputs that all share. The last axis of the data that fits the
    named arrays is that of the rows; where none does, no array has rows.
    """
    if len(batch) < 2:
        total = arrays[min(named)].shape[0]
        return 0, total, {n: 0 for n, x in enumerate(arrays) if x.shape[:1] == (total,)}
    for axis, total in reversed(list(enumerate(batch))):
        found = {n: _place(x.shape, batch[: axis + 1]) for n, x in enumerate(arrays)}
        places = {n: place for n, place in found.items() if place is not None}
        if named <= places.keys():
            return axis, total, places
    return len(batch) - 1, batch[-1], {}


def _place(shape: tuple[int, ...], batch: tuple[int, ...]) -> int | None:
    """Axis of an array at the last axis of ``batch``, with as many of the others on its left as it can have."""
    for place in reversed(range(min(len(shape), len(batch)))):
        beside = zip(shape[:place], batch[len(batch) - 1 - place : -1], strict=True)
        if shape[place] == batch[-1] and all(size in (1, members) for size, members in beside):
            return place
    return None


def find_rows(
    trace: Callable[[frozenset[int]], tuple[Jaxpr, list[Any]]],
    arrays: Sequence[Any],
    owners: Sequence[str],
    places: Mapping[int, int],
    rows: frozenset[int],
    size: int,
) -> frozenset[int]:
    """Numbers of the arrays whose rows are those of the data, among all that are as long as the data.

    An array has rows where the model only runs if it is cut with the others (``f(X) * exposure``), or where the
    indices of a plate read it (``exposure[idx]``). It has none where the model does not run on a part of it
    (inducing inputs of a fitted process), or where nothing selects its rows by number alone. Anything
    else is refused.

    Parameters
    ----------
    trace : callable
        Of the numbers of the arrays that are cut to ``size`` rows: the model's program, whose last inputs are
        ``arrays`` and whose first are arrays that the model closes over, and these.
    arrays, owners : sequences
        Arrays among the arguments, and the name of the argument that each belongs to.
    places : mapping
        Axis of the rows in each array that may have them: see `row_axes`.
    rows : frozenset of int
        Arrays that are known to have rows.
    size : int
        Rows of the part that the model is tried on.
    """
    total = arrays[min(rows)].shape[places[min(rows)]]
    open_ones = [n for n in places if n not in rows]
    if len(open_ones) > LIMIT:
        _refuse(owners, open_ones, f"{len(open_ones)} more arrays of {total} rows")
    programs = {}
    for count in range(len(open_ones) + 1):
        for more in combinations(open_ones, count):
            try:
                programs[rows.union(more)] = trace(rows.union(more))
            except (TypeError, ValueError):  # the model does not run on these shapes
                continue
    if not programs:
        trace(rows)  # says why
    found = set(rows)
    for number in open_ones:
        runs = [cut for cut in programs if number not in cut]
        if len(runs) == len(programs) or not runs:
            found |= set() if runs else {number}
            continue
        program = programs[runs[0]][0]
        uses = _uses(program, program.invars[len(program.invars) - len(arrays) + number], places[number], total, size)
        if uses == {"rows"}:
            found.add(number)
        elif "rows" in uses:
            _refuse(owners, [number], "one that is read row by row and as a whole")
    if frozenset(found) not in programs:
        _refuse(owners, open_ones, "arrays that do not fit together")
    program, constants = programs[frozenset(found)]
    for var, value in zip(program.invars, constants):
        axes = [axis for axis in {0, *places.values()} if var.aval.shape[axis : axis + 1] == (total,)]
        if any("rows" in _uses(program, var, axis, total, size) for axis in axes):
            got = f"an array of shape {value.shape} that the model closes over and its plate indexes"
            fail("model", "given all arrays with rows as arguments, to be predicted in chunks", got, "Pass it.")
    return frozenset(found)


def _refuse(owners: Sequence[str], numbers: Iterable[int], got: str) -> None:
    names = sorted({owners[number] for number in numbers})
    cure = "Name those with one row for each datum, e.g. rows=['X', 'exposure'], or raise chunk_size."
    fail("rows", f"given, because it is not clear whether {names} are read row by row", got, cure)


def _uses(program: Jaxpr, start: Var, axis: int, total: int, size: int) -> set[str]:
    """How a program reads an array of ``total`` rows: ``size`` of them by their number ("rows"), or otherwise."""
    held, given, uses = {start}, set(program.invars), set()
    for equation in program.eqns:
        inputs = [atom for atom in equation.invars if not isinstance(atom, Literal)]
        name, length = equation.primitive.name, equation.outvars[0].aval.shape[axis : axis + 1]
        if held.intersection(inputs):
            if name in ELEMENTWISE | SLICES and length == (total,):
                held.update(equation.outvars)
            elif name in SLICES | {"gather"} and length == (size,) and given.isdisjoint(inputs[1:]):
                uses.add("rows")
            else:
                uses.add("whole")
        if given.intersection(inputs):
            given.update(equation.outvars)
    return uses
