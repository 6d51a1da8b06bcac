"""The plates around a process: where the axes of their members stand in its value, its inputs and what it returns."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail


class Plates(NamedTuple):
    """The plates around a site: names, axes (counted from the right) and the batch shape that they give it.

    Rows of data have an axis of their own, the last of what the process returns. It takes the place of the last axis
    of the site where no plate has that, and comes on its right otherwise: in ``plate("group", G, dim=-2)`` and in
    ``plate("group", G)`` alike ``f(X)`` is ``(G, N)``.
    """

    names: tuple[str, ...] = ()
    dims: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()

    @classmethod
    def of(cls, frames: Sequence[Any]) -> "Plates":
        """Those of NumPyro's frames around a site."""
        ordered = sorted(frames, key=lambda frame: frame.dim)
        batch = [1] * max((-frame.dim for frame in ordered), default=0)
        for frame in ordered:
            batch[frame.dim] = frame.size
        return cls(tuple(frame.name for frame in ordered), tuple(frame.dim for frame in ordered), tuple(batch))

    @property
    def lead(self) -> tuple[int, ...]:
        """Axes on the left of the rows in what the process returns."""
        return self.batch if -1 in self.dims else self.batch[:-1]

    @property
    def axes(self) -> tuple[int, ...]:
        """Where the plates stand in ``lead``, from the right."""
        return self.dims if -1 in self.dims else tuple(dim + 1 for dim in self.dims)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Members of each plate."""
        return tuple(self.batch[dim] for dim in self.dims)

    def layout(self, argument: str, shape: tuple[int, ...]) -> "Layout":
        """How the axes ``(..., N)`` of inputs, without their columns, stand to those of the plates."""
        left = shape[:-1]
        shared = [axis for axis in self.axes if -axis > len(left) or left[axis] == 1]
        if any(left[axis] != self.lead[axis] for axis in self.axes if axis not in shared):
            wanted = ", ".join(map(str, self.lead))
            required = f"of shape (N, D), rows that all members share, or ({wanted}, N, D), rows of each"
            cure = f"Put the axes of {self} on their left."
            fail(argument, required, f"shape ({', '.join(map(str, shape))}, D)", cure)
        return Layout(self, left, len(shared) < len(self.axes))

    def __str__(self) -> str:
        named = ", ".join(f"{name!r} of {size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f"plate{'s' * (len(self.names) > 1)} {named}" if named else "no plate"


class Layout(NamedTuple):
    """Inputs and plates together; ``is_own``: whether members have inputs of their own."""

    plates: Plates
    left: tuple[int, ...]
    is_own: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Axes on the left of the rows in what the process returns."""
        return np.broadcast_shapes(self.left, self.plates.lead)

    @property
    def _places(self) -> tuple[list[int], list[int]]:
        """Axes of ``shape`` that are of plates, and the others."""
        rank = len(self.shape)
        of_plates = [rank + axis for axis in self.plates.axes]
        return of_plates, [axis for axis in range(rank) if axis not in of_plates]

    @property
    def rest(self) -> tuple[int, ...]:
        """Sizes of the axes on the left of the rows that no plate has."""
        return tuple(self.shape[axis] for axis in self._places[1])

    def rows(self, inputs: Array) -> Array:
        """Inputs ``(..., N, D)`` as ``(R, N, D)``, or ``(*batch, R, N, D)`` where members have their own."""
        return self.members(inputs, 2) if self.is_own else inputs.reshape(-1, *inputs.shape[-2:])

    def members(self, values: Array, tail: int) -> Array:
        """An array ``(..., *tail)``, ``tail`` being a number of axes, as ``(*batch, R, *tail)``."""
        of_plates, others = self._places
        aligned = values.reshape((1,) * (len(self.shape) + tail - values.ndim) + values.shape)
        target = [self.shape[axis] if axis in of_plates else size for axis, size in enumerate(aligned.shape)]
        last = range(len(self.shape), aligned.ndim)
        moved = jnp.transpose(jnp.broadcast_to(aligned, target), (*of_plates, *others, *last))
        return moved.reshape(*self.plates.batch, -1, *moved.shape[len(self.shape) :])

    def whole(self, values: Array) -> Array:
        """An array ``(*batch, R, *tail)`` as ``(*shape, *tail)``: the way back."""
        of_plates, others = self._places
        tail = values.shape[len(self.plates.batch) + 1 :]
        apart = values.reshape(*self.plates.sizes, *self.rest, *tail)
        order = np.argsort([*of_plates, *others])
        return jnp.transpose(apart, (*order, *range(len(order), apart.ndim))).reshape(*self.shape, *tail)

    @property
    def sets(self) -> int:
        """Number R of sets of rows."""
        return math.prod(self.rest)
