"""Which arrays of a call are cut into chunks of rows, and on which axis."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.checks import fail
from numpyro_gp.rows.call import Call
from numpyro_gp.rows.look import Look


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
    for number in (n for n, size in found.read.items() if size == total and call.arrays[n].shape[0] > total):
        required = f"of {total} rows, as the plate that reads it, where {chunk_size} are predicted at a time"
        cure = "Pass one row for each datum, or raise chunk_size."
        fail(call.owners[number], required, f"{call.arrays[number].shape[0]} rows", cure)
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


def padded(row: Any, start: int, size: int, axis: int = 0) -> Any:
    """``size`` rows from ``start``, with copies of the last one where there are fewer."""
    known, left = not isinstance(row, jax.core.Tracer), (slice(None),) * axis
    part = (np.asarray(row) if known else row)[(*left, slice(start, start + size))]
    missing, package = size - part.shape[axis], np if known else jnp
    last = part[(*left, slice(-1, None))]
    return package.concatenate([part, package.repeat(last, missing, axis=axis)], axis=axis) if missing else part
