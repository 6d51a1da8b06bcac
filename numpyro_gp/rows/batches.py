"""Batches of a stream: what they have in common, and the arguments that a model gets of one."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from numpyro_gp.arrays import Array, is_array
from numpyro_gp.checks import fail
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.rows.call import Arguments, Call
from numpyro_gp.rows.devices import as_part_of_process
from numpyro_gp.rows.model_trace import Look

# --------------------------------------------------------------------------------------
# Which arrays of a call are cut into chunks of rows, and on which axis.


def rows_to_cut(
    found: Look, call: Call, rows: Sequence[str] | None, batch: tuple[int, ...], chunk_size: int
) -> tuple[int, int, dict[int, int]]:
    """Axis and number of the rows in data of shape ``batch``, and their axis in each array that is cut with them.

    Data of no more rows than a chunk are not cut. Else an array is cut if its argument is named in ``rows`` (the first
    by default) or the rows of a plate read it; whether any other that is as long has rows is never guessed.
    """
    named = call.numbers(rows)
    axis, total, places = row_axes(call.arrays, named, batch)
    if len(batch) < 2 and not named <= places.keys():
        call.refuse_rows(named)
    if not places or total <= chunk_size:
        return axis, total, {number: place for number, place in places.items() if number in named}
    read = {number for number, size in found.read.items() if size == total and places.get(number) == 0}
    if unclear := sorted({call.owners[n] for n in places if n not in named | read}) if rows is None else []:
        required = f"given where {total} rows are predicted {chunk_size} at a time and other arrays are as long"
        certain = sorted({call.owners[number] for number in named | read})
        cure = f"Name all that have one row for each datum: rows={[*certain, *unclear]}, or rows={certain} if "
        cure += f"{', '.join(unclear)} have none. Or raise chunk_size."
        fail("rows", required, f"{unclear}, which no plate reads by its rows", cure)
    if any(jnp.shape(array)[:1] == (total,) for array in found.captured):
        got = f"one that closes over an array of {total} rows, which its plate reads"
        cure = "Pass the array as an argument of the model, or raise chunk_size."
        fail("model", "given all arrays with rows as arguments, to be predicted in chunks", got, cure)
    return axis, total, {number: places[number] for number in named | read}


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
        found = {n: _rows_axis(x.shape, batch[: axis + 1]) for n, x in enumerate(arrays)}
        places = {n: place for n, place in found.items() if place is not None}
        if named <= places.keys():
            return axis, total, places
    return len(batch) - 1, batch[-1], {}


def _rows_axis(shape: tuple[int, ...], batch: tuple[int, ...]) -> int | None:
    """Axis of an array at the last axis of ``batch``, with as many of the others on its left as it can have."""
    for place in reversed(range(min(len(shape), len(batch)))):
        beside = zip(shape[:place], batch[len(batch) - 1 - place : -1], strict=True)
        if shape[place] == batch[-1] and all(size in (1, members) for size, members in beside):
            return place
    return None


def padded(row: Any, start: int, size: int, axis: int = 0) -> Any:
    """``size`` rows from ``start``, with copies of the last one where there are fewer."""
    known, left = not isinstance(row, jax.core.Tracer), (slice(None),) * axis
    part = (np.asarray(row) if known else row)[(*left, slice(start, start + size))]
    missing, package = size - part.shape[axis], np if known else jnp
    last = part[(*left, slice(-1, None))]
    return package.concatenate([part, package.repeat(last, missing, axis=axis)], axis=axis) if missing else part


class BatchLayout(NamedTuple):
    """What batches have in common: structure, types and columns of their arrays by place; and the rows of this one."""

    structure: PyTreeDef
    columns: dict[str, tuple[Any, tuple[int, ...]]]
    rows: int

    @property
    def longest(self) -> int:
        """No fewer than the rows, also where these stand behind an axis of members: ``(G, N, D)``."""
        return max([self.rows, *(columns[0] for _, columns in self.columns.values() if len(columns) > 1)])


class Taken:
    """Rows of the batches that came, and the mean number by which each of them counts.

    It is that of a list, which is a pass. A source that is no list is known up to its last short batch, which ends one.
    """

    def __init__(self, source: object, rows: Sequence[int] = ()) -> None:
        leaves = [jax.tree.leaves(batch_tree(one))[:1] for one in (source if isinstance(source, (list, tuple)) else ())]
        # What is no batch is refused at its step.
        listed = [array.shape[0] for own in leaves for array in own if is_array(array) and array.ndim]
        self._of_list = Fraction(sum(listed), len(listed)) if listed else None
        self.rows: list[int] = []
        self._total = 0
        for count in rows:
            self.add(int(count))

    def add(self, rows: int) -> None:
        """Count one batch more."""
        self.rows.append(rows)
        self._total += rows
        if self._of_list is not None:
            self.mean = self._of_list
        elif len(self.rows) == 1 or rows < self.rows[0]:
            self.mean = Fraction(self._total, len(self.rows))

    def counts(self, others: int) -> np.ndarray:
        """Rows of the last batch, and a number of batches and their rows; ``others`` are rows of other processes."""
        mean = (self.mean + others).limit_denominator((2**31 - 1) // (self.rows[0] + others))
        return np.asarray([self.rows[-1] + others, mean.denominator, mean.numerator], np.int32)


def batch_tree(rows: object) -> Any:
    """A batch of one argument, where the rows of that stand for it."""
    return (rows,) if is_array(rows) or isinstance(rows, Functional) else rows


def layout_of(name: str, batch: object, first: BatchLayout | None) -> BatchLayout:
    """The layout of a batch; refuse what is none, and one that the program of the first cannot take."""
    leaves = jax.tree_util.tree_leaves_with_path(batch)
    if not isinstance(batch, (tuple, list, dict)) or not leaves or not all(is_array(leaf) for _, leaf in leaves):
        required = "a tuple of arrays, the model's first arguments, or a dictionary of arrays"
        kinds = sorted({type(leaf).__name__ for _, leaf in leaves if not is_array(leaf)})
        got = f"a {type(batch).__name__} of {', '.join(kinds) or 'nothing'}"
        fail(name, required, got, "Make NumPy arrays of numbers of what it holds.", TypeError)
    arrays = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    rows = {place: array.shape[:1] for place, array in arrays.items()}
    if len(set(rows.values())) > 1 or () in rows.values():
        fail(name, "arrays with the same number of rows", f"rows {rows}", "Cut all arrays of a batch at the same rows.")
    if (0,) in rows.values():
        fail(name, "non-empty", "0 rows", "Leave empty batches out.")
    columns = {place: (jnp.result_type(array), array.shape[1:]) for place, array in arrays.items()}
    layout = BatchLayout(jax.tree.structure(batch), columns, leaves[0][1].shape[0])
    if first is None:
        return layout
    cure = "All batches share one compiled program: give them the structure, types and columns of the first."
    if layout.structure != first.structure:
        fail(name, f"of the structure of the first batch, {first.structure}", layout.structure, cure, TypeError)
    for place, wanted in first.columns.items():
        if columns[place] != wanted:
            required = "of {} with rows of shape {}, as in the first batch".format(*wanted)
            fail(f"{name}{place}", required, "{} with rows of shape {}".format(*columns[place]), cure, TypeError)
    if layout.rows > first.rows:
        cure = "Begin with a full batch; only later ones may be shorter."
        fail(name, f"of at most {first.rows} rows, as the first batch", f"{layout.rows} rows", cure)
    return layout


def put_on_device(array: object, rows: int, where: Any) -> Array:
    """An array on the devices with ``rows`` rows of this process: copies of the last one where it has fewer."""
    # An array of this process alone is its part, as a NumPy array is.
    is_whole = where is None or getattr(array, "is_fully_addressable", True) == where.is_fully_addressable
    if isinstance(array, jax.Array) and is_whole and array.shape[0] == rows:
        return jnp.asarray(jax.device_put(array, where))
    # A copy in any case: a source may write its next batch where this one stands, while a step reads it.
    return as_part_of_process(np.array(padded(array, 0, rows)), where)


def with_batch(name: str, batch: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> Arguments:
    """Arguments of the model: a tuple stands before the others, a dictionary among the keywords."""
    if not isinstance(batch, dict):
        return Arguments((*batch, *args), kwargs)
    if twice := sorted(set(batch) & set(kwargs)):
        fail(name, "free of arguments that are given beside it", f"{twice}", "Leave them out of one of the two.")
    return Arguments(args, {**kwargs, **batch})


# --------------------------------------------------------------------------------------
# Which rows are looked at where there are too many to look at all.


def some_rows(count: int, most: int) -> np.ndarray:
    """Return the numbers of at most ``most`` of ``count`` rows, in order: always the same ones, chosen at random.

    Every k-th row of a table that is sorted by time may be of the same unit.
    """
    if count <= max(1, most):
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[: max(1, most)])
