"""Predictions of many rows under many posterior draws, a chunk of rows at a time and within a bounded memory."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr
from jax.tree_util import PyTreeDef

from numpyro_gp.arrays import Array, on_device
from numpyro_gp.checks import fail, is_known
from numpyro_gp.posterior.tracing import Draw
from numpyro_gp.programs.compiled import kept
from numpyro_gp.programs.trace import as_function, split, traced
from numpyro_gp.rows.batches import padded
from numpyro_gp.rows.devices import placement_of
from numpyro_gp.rows.row_readers import counts_rows, mixing_of

# What the results of a program are; what a function is given that neither draws nor rows change.
Arrays = Sequence[Array]
Fixed = TypeVar("Fixed")
# Factorisations of draws that are held at a time, and predictions that are kept instead of computed again.
HELD_BYTES = 2**28
KEPT_BYTES = 2**28


class Chunks(Sequence):
    """One pytree for each chunk of rows, draws on the first axis and rows on the second, or behind those of plates.

    The last chunk is padded with copies of its last row; ``sizes`` are the numbers of rows that count.
    Chunks that would not fit into ``KEPT_BYTES`` together are computed again whenever they are asked for.
    """

    def __init__(self, make: Callable[[int], object] | None, held: list[object] | None, sizes: list[int]) -> None:
        self._make, self._held, self.sizes = make, held, sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: Any) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self._make(number % len(self)) if self._held is None else self._held[number]

    def __reduce__(self) -> tuple[object, ...]:
        return Chunks, (None, list(self), self.sizes)


class Programs(NamedTuple):
    """Two compiled programs, and the bytes that each returns for one draw; and both as one, for rows that are few."""

    prepare: Callable[..., object]
    finish: Callable[..., list[Array]]
    whole: Callable[..., list[Array]]
    held: int
    result: int


@dataclasses.dataclass
class Reused:
    """What the parts of a stream share: its programs, and the factorisations of its draws where all fit into memory.

    ``is_stream``: the parts are parts of more rows, and not each of them all that is predicted. ``of_chunks``: the
    programs of a function, the arrays that it captured, the structure of its result, and what it does with rows that is
    no more of each alone, if it does.
    """

    is_stream: bool = False
    of_chunks: tuple[Programs, list[Array], PyTreeDef, str | None] | None = None
    prepared: object = None


def predict_chunks(
    function: Callable[[Fixed, Draw, tuple[dict[int, Array], Array]], object],
    fixed: Fixed,
    draws: tuple[Array, np.ndarray],
    rows: Mapping[int, Array],
    total: int,
    chunk_size: int,
    axes: Mapping[int, int],
    first: int | None = None,
    known: Reused | None = None,
) -> Chunks:
    """Evaluate ``function(fixed, (key, index), (rows, offset))`` for all draws and all chunks of rows.

    What does not depend on the rows runs once for each draw, and what depends on ``fixed`` alone runs once (`split`),
    except where neither the factorisations of all draws nor their predictions fit into memory. Two programs are
    compiled, or one for a single chunk, and serve every later call that computes the same.

    Parameters
    ----------
    function : callable
        Of fixed arrays, one draw, and the rows of a chunk with the number of its first row.
    fixed : pytree of arrays
        Parameters or stored draws, and arguments of the model that have no rows.
    draws : PRNG key and array (S,)
        Key of all draws, and the index of each.
    rows : dict of arrays
        With ``total`` rows on the axes that ``axes`` names.
    total : int
        Number of rows.
    chunk_size : int
    axes : dict
        Axis of the rows in each array.
    first : int, optional
        For rows that are themselves a part of more: how many come before. All chunks then have the same size.
    known : Reused, optional
        Of the parts of a stream: empty at the first, which leaves there what serves the others.
    """
    size, before = (min(chunk_size, total), 0) if first is None else (chunk_size, first)
    placement = placement_of(None, list(rows.values()))
    if placement is not None:  # of several devices all have a share
        size = -(-size // placement.pieces) * placement.pieces
    parts = []
    for start in range(0, total, size):
        own = {name: padded(row, start, size, axes[name]) for name, row in rows.items()}
        if placement is not None:
            own |= jax.device_put({name: x for name, x in own.items() if axes[name] == 0}, placement.rows)
        parts.append((own, np.int32(before + start)))
    (key, index), is_alone = draws, known is None and len(parts) == 1
    known = known or Reused()
    if known.of_chunks is None:
        in_parts = axes if first is not None or len(parts) > 1 or size > total else {}
        known.of_chunks = _of_chunks(function, fixed, (key, on_device(np.asarray(index[0]))), parts[0], in_parts)
    programs, constants, structure, mixing = known.of_chunks
    if mixing is not None and (known.is_stream or len(parts) > 1 or size > total):
        if first is not None:
            required, got = "one that treats each of them by itself", f"one that {mixing}"
            cure = "Compute what is of all rows before, and pass it as an argument; or predict them in one call."
            fail("the model of rows that come in parts", required, got, cure)
        warn_of_one_piece(total, chunk_size, f"it {mixing}")
        return predict_chunks(function, fixed, draws, rows, total, total, axes)
    early = (*constants, *jax.tree.leaves(fixed))
    if is_alone:
        found = programs.whole(early, key, index, jax.tree.leaves(parts[0]))
        return Chunks(None, [jax.tree.unflatten(structure, found)], [total])
    together = min(index.size, max(1, HELD_BYTES // max(programs.held, 1)))
    groups = [np.arange(index.size)[at : at + together] for at in range(0, index.size, together)]
    prepare = lambda group: programs.prepare(early, key, group, index[group], count=index.size)  # noqa: E731
    if known.prepared is None and len(groups) == 1:
        known.prepared = prepare(groups[0])
    only = known.prepared

    def chunks(numbers: Sequence[int]) -> list[object]:
        found: list[list[list[Array]]] = [[] for _ in numbers]
        for group in groups:
            prepared = prepare(group) if only is None else only
            for number, own in zip(numbers, found, strict=True):
                own.append(programs.finish(early, prepared, jax.tree.leaves(parts[number])))
        joined = [own[0] if len(own) == 1 else list(map(jnp.concatenate, zip(*own, strict=True))) for own in found]
        return [jax.tree.unflatten(structure, leaves) for leaves in joined]

    is_small = len(parts) == 1 or index.size * programs.result * len(parts) <= KEPT_BYTES
    sizes = [min(size, total - start) for start in range(0, total, size)]
    return Chunks(lambda number: chunks([number])[0], chunks(range(len(parts))) if is_small else None, sizes)


def warn_of_one_piece(total: int, chunk_size: int, reason: str) -> None:
    """Say that rows are predicted all together, where chunks of them would be predicted wrongly."""
    message = f"chunk_size={chunk_size} is not followed: the {total} rows are predicted in one piece, because the "
    cure = "Compute what is of all rows before, and pass it as an argument, to save memory."
    warnings.warn(f"{message}model does not treat each by itself: {reason}. {cure}", stacklevel=4)


def _of_chunks(
    function: Callable[..., object],
    fixed: object,
    draw: Draw,
    part: tuple[Mapping[int, Any], np.int32],
    axes: Mapping[int, int],
) -> tuple[Programs, list[Array], PyTreeDef, str | None]:
    found = traced(function, fixed, draw, part)
    # Rows of a chunk are the last inputs, by their names as JAX orders them, but for the number of the first.
    places = [axes[name] for name in sorted(part[0])] if axes else []
    inputs = found.program.invars[-1 - len(places) : -1]
    mixing: str | None = None
    if axes:  # rows come in parts: beside the program of one row more, which shows what is not of each row alone
        longer = {
            name: jax.ShapeDtypeStruct([n + (at == axes[name]) for at, n in enumerate(row.shape)], row.dtype)
            for name, row in part[0].items()
        }
        try:
            other = traced(function, fixed, draw, (longer, part[1]))
        except (TypeError, ValueError):  # inducing inputs that are some of these rows
            mixing = "fails with one row more"
        else:
            made = dict[object, int]()
            for one, two in zip(found.program.eqns, other.program.eqns, strict=False):
                if one.primitive is two.primitive and one.primitive.name in ("iota", "broadcast_in_dim"):
                    sizes = zip(one.params["shape"], two.params["shape"], strict=False)
                    grown = [at for at, (size, more) in enumerate(sizes) if size != more]
                    made.update(zip(one.outvars, grown))
            constants = zip(found.constants, other.constants, strict=False)
            if (combined := mixing_of(found.program, {**made, **dict(zip(inputs, places, strict=True))})) is not None:
                mixing = f"combines them, by {combined!r}"
            elif any(_differ(*pair) for pair in constants) or counts_rows(found.program, other.program):
                mixing = "computes with their number"
    count = len(found.constants) + len(jax.tree.leaves(fixed))
    programs = kept(found.program, count, lambda: _compile(found.program, count))
    return programs, found.constants, found.structure, mixing


def _differ(one: Array, other: Array) -> bool:
    """Whether constants have other numbers for more rows, and not more of the same."""
    if one is other or jnp.ndim(one) != jnp.ndim(other) or not (is_known(one) and is_known(other)):
        return False
    if one.shape == other.shape:
        return not np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    first = np.asarray(one)[tuple(slice(1) if n != m else slice(None) for n, m in zip(one.shape, other.shape))]
    return not (np.all(first == one) and np.all(first == other))


def _compile(program: Jaxpr, early: int) -> Programs:
    """Three parts of a program: what needs ``early`` inputs, what needs one draw as well, and what needs rows."""
    once, rest = split(program, early)
    shared = len(once.outvars)
    own, last = split(rest, early + shared + 2)
    compute, each, end = as_function(once), as_function(own), as_function(last)

    @partial(jax.jit, static_argnames="count")
    def prepare(
        fixed: Arrays, key: Array, group: Array, index: Array, *, count: int
    ) -> tuple[Arrays, tuple[Array, Array], Arrays]:
        draws, common = (jax.random.split(key, count)[group], index), compute(*fixed)
        return common, draws, jax.lax.map(lambda draw: each(*fixed, *common, *draw), draws)

    @jax.jit
    def finish(fixed: Arrays, prepared: tuple[Arrays, tuple[Array, Array], Arrays], part: Arrays) -> list[Array]:
        common, draws, held = prepared
        return jax.lax.map(lambda one: end(*fixed, *common, *one[0], *one[1], *part), (draws, held))

    @jax.jit
    def whole(fixed: Arrays, key: Array, index: Array, part: Arrays) -> list[Array]:
        common = compute(*fixed)
        one = lambda draw: end(*fixed, *common, *draw, *each(*fixed, *common, *draw), *part)  # noqa: E731
        return jax.lax.map(one, (jax.random.split(key, index.size), index))

    # A random key counts as nothing: its type has no size in bytes, and it is small.
    held, result = (
        sum(atom.aval.size * getattr(atom.aval.dtype, "itemsize", 0) for atom in part.outvars) for part in (own, last)
    )
    return Programs(prepare, finish, whole, held, result)
