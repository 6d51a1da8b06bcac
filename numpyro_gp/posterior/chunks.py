"""Predictions of many rows under many posterior draws, a chunk of rows at a time and within a bounded memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array
from numpyro_gp.posterior.staging import Staged, stage

__all__ = ["Chunks", "predict_chunks"]

# Factorisations of draws that are held at a time, and predictions that are kept instead of computed again.
HELD_BYTES = 2**28
KEPT_BYTES = 2**28


class Chunks(Sequence):
    """One pytree for each chunk of rows, draws on the first axis and rows on the second.

    The last chunk is padded with copies of its last row; ``sizes`` are the numbers of rows that count.
    Chunks that would not fit into ``KEPT_BYTES`` together are computed again whenever they are asked for.
    """

    def __init__(self, make: Callable[[int], Any], kept: list[Any] | None, sizes: list[int]) -> None:
        self._make, self._kept, self.sizes = make, kept, sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: Any) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self._make(number % len(self)) if self._kept is None else self._kept[number]


def predict_chunks(
    function: Callable[[Any, tuple[dict[str, Array], Array]], Any],
    draws: Any,
    rows: Mapping[str, Array],
    chunk_size: int,
) -> Chunks:
    """Evaluate ``function(draw, (rows, offset))`` for all draws and all chunks of rows.

    What does not depend on the rows runs once for each draw (`stage`), except where neither the
    factorisations of all draws nor their predictions fit into memory.

    Parameters
    ----------
    function : callable
        Of one draw, the rows of a chunk, and the number of the chunk's first row.
    draws : pytree
        Draws on the first axis.
    rows : dict of arrays with equal first axes
    chunk_size : int
    """
    total = next(iter(rows.values())).shape[0]
    size = min(chunk_size, total)
    starts = list(range(0, total, size))
    parts = [(_rows(rows, start, size, total), jnp.asarray(start)) for start in starts]
    sizes = [min(size, total - start) for start in starts]
    one = jax.tree.map(lambda leaf: leaf[0], draws)
    staged = stage(function, one, parts[0])
    count = jax.tree.leaves(draws)[0].shape[0]
    held, result = _bytes(staged, one, parts[0])
    together = min(count, max(1, HELD_BYTES // max(held, 1)))
    groups = [_between(draws, at, at + together) for at in range(0, count, together)]
    runner = _Runner(staged, groups)
    keep = len(parts) == 1 or count * result * len(parts) <= KEPT_BYTES
    return Chunks(lambda number: runner.chunk(parts[number]), runner.all(parts) if keep else None, sizes)


class _Runner:
    """The compiled parts, over groups of draws whose factorisations are held together."""

    def __init__(self, staged: Staged, groups: list[Any]) -> None:
        constants, prepare, finish = staged.constants, staged.prepare, staged.finish
        self.groups = groups
        self._fixed = constants, jax.jit(staged.once)(constants)

        @jax.jit
        def prepare_all(fixed: Any, draws: Any) -> Any:
            # The draws stay beside what was made of them: a loop over nothing would have no length.
            return draws, jax.lax.map(lambda draw: prepare(fixed[0], fixed[1], draw), draws)

        @jax.jit
        def finish_all(fixed: Any, prepared: Any, part: Any) -> Any:
            return jax.lax.map(lambda pair: finish(fixed[0], fixed[1], pair[1], part), prepared)

        self._prepare: Any = prepare_all
        self._finish: Any = finish_all
        self._only = prepare_all(self._fixed, groups[0]) if len(groups) == 1 else None

    def _prepared(self, group: Any) -> Any:
        return self._prepare(self._fixed, group) if self._only is None else self._only

    def all(self, parts: list[Any]) -> list[Any]:
        """Every chunk: each group of draws is prepared once."""
        found: list[list[Any]] = [[] for _ in parts]
        for group in self.groups:
            prepared = self._prepared(group)
            for own, part in zip(found, parts, strict=True):
                own.append(self._finish(self._fixed, prepared, part))
        return [_joined(own) for own in found]

    def chunk(self, part: Any) -> Any:
        """One chunk."""
        return _joined([self._finish(self._fixed, self._prepared(group), part) for group in self.groups])


def _between(draws: Any, start: int, stop: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[start:stop], draws)


def _joined(groups: list[Any]) -> Any:
    return groups[0] if len(groups) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *groups)


def _rows(rows: Mapping[str, Array], start: int, size: int, total: int) -> dict[str, Array]:
    """The rows from ``start``, with copies of the last one up to the size of a chunk: one program serves all."""
    part = {name: value[start : start + size] for name, value in rows.items()}
    missing = size - min(size, total - start)
    if not missing:
        return part
    return {name: jnp.concatenate([value, jnp.repeat(value[-1:], missing, axis=0)]) for name, value in part.items()}


def _bytes(staged: Staged, draw: Any, part: Any) -> tuple[int, int]:
    """Bytes that one draw needs for its factorisations, and for the prediction of one chunk."""
    shared = jax.eval_shape(staged.once, staged.constants)
    own = jax.eval_shape(staged.prepare, staged.constants, shared, draw)
    return _size(own), _size(jax.eval_shape(staged.finish, staged.constants, shared, own, part))


def _size(tree: Any) -> int:
    # A random key counts as nothing: its type has no size in bytes, and it is small.
    return sum(leaf.size * getattr(leaf.dtype, "itemsize", 0) for leaf in jax.tree.leaves(tree))
