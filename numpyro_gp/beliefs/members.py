"""How what is written for one process is mapped over several side by side, in plates or as outputs of one site."""

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, Function, T, Values, over_axes, value_type
from numpyro_gp.beliefs.basis import BatchBasis


def member_axes(process: object) -> object:
    """For ``vmap``: where the members of a batch are in each array of a belief or a point.

    On the first axis, but for the fields named ``Z_...`` and ``columns``, which all members share.
    """

    def axis(path: tuple[object, ...], _: Array) -> int | None:
        names = [str(key).lstrip(".") for key in path]
        return None if any(name.startswith("Z_") or name == "columns" for name in names) else 0

    return jax.tree_util.tree_map_with_path(axis, process)


def each_member(function: Callable[..., T], process: object, basis: BatchBasis, *own: Any) -> T:
    """``function(process, basis, *own)`` of each member, results with the axes of the batch on their left.

    Arrays of the process and of ``own`` have these axes on their left.
    """
    axes = (member_axes(process), 0 if basis.own else None, *[0] * len(own))
    if basis.level is None:
        return over_axes(function, basis.axes, axes)(process, basis.members, *own)

    def at_level(member: object, members: Any, level: Array, *rest: object) -> T:
        return function(member, members.at_level(level), *rest)

    return over_axes(at_level, basis.axes, (*axes[:2], 0, *axes[2:]))(process, basis.members, basis.level, *own)


def over_members(method: Function) -> Function:
    """A method of one process and its basis; at a batch of them, mapped over the members of both.

    A KL divergence is summed over outputs, and has one entry for each member of plates.
    """

    @functools.wraps(method)
    def mapped(self: object, basis: object = None, *arguments: object) -> Any:
        if not isinstance(basis, BatchBasis):
            return method(self, basis, *arguments)
        results = each_member(lambda member, member_basis: mapped(member, member_basis, *arguments), self, basis)
        return jnp.sum(results) if method.__name__ == "kl" and basis.batch is None else results

    return cast("Function", mapped)


def alike(kinds: Iterable[Hashable]) -> tuple[tuple[int, ...], ...]:
    """Numbers of the entries that are equal to each other, in the order in which they come first."""
    places: dict[Hashable, list[int]] = {}
    for number, kind in enumerate(kinds):
        places.setdefault(kind, []).append(number)
    return tuple(map(tuple, places.values()))


def picked(values: Values, places: np.ndarray) -> Values:
    """``values (K, ...)[places]``, of NumPy or JAX: there a slice where the places follow each other."""
    if isinstance(values, np.ndarray):
        return values[places]
    flat = places.ravel()
    if not np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
        return values.at[places].get(mode="promise_in_bounds")
    return values[flat[0] : flat[0] + flat.size].reshape(places.shape + values.shape[1:])


class Stacks(NamedTuple):
    """How what belongs to all components, in NumPy or JAX, is cut into stacks, each of components of one size.

    Attributes
    ----------
    sizes : tuple of int
        ``M_c`` of each component, in their order.
    members : tuple of tuple of int
        Numbers of the components in each stack.
    """

    sizes: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, blocks: Sequence[Array]) -> "Stacks":
        """Those of matrices ``(..., M_c, M_c)`` of the components, by their sizes."""
        if isinstance(blocks, Stacked):
            return blocks.stacks
        return cls.of_sizes(block.shape[-1] for block in blocks)

    @classmethod
    def of_sizes(cls, sizes: Iterable[int]) -> "Stacks":
        """Those of components of these sizes."""
        counts = tuple(sizes)
        return cls(counts, alike(counts))

    @property
    def first(self) -> np.ndarray:
        """Where the values of each component start among all, ``(C,)``."""
        return np.cumsum((0, *self.sizes[:-1]))

    @property
    def places(self) -> list[np.ndarray]:
        """Where the values of the components of each stack stand among all, ``(C_s, M_s)``."""
        return _orders(self)[0]

    def stacked(self, blocks: Sequence[Array]) -> list[Array]:
        """One array for each component as one for each stack."""
        if isinstance(blocks, Stacked):
            return list(blocks.arrays)
        return [jnp.stack([blocks[number] for number in stack]) for stack in self.members]

    def unstacked(self, stacks: Sequence[Array]) -> list[Array]:
        """The other way round."""
        pairs = zip(self.members, stacks, strict=True)
        parts = {number: stack[at] for numbers, stack in pairs for at, number in enumerate(numbers)}
        return [parts[number] for number in range(len(self.sizes))]

    def apart(self, values: Values) -> list[Values]:
        """All values ``(M, ...)``, one component after the other, as stacks ``(C_s, M_s, ...)``."""
        return [picked(values, places) for places in self.places]

    def together(self, stacks: Sequence[Values]) -> Values:
        """Stacks ``(C_s, M_s, ...)`` as all values ``(M, ...)``, one component after the other."""
        return picked(_concatenated([stack.reshape(-1, *stack.shape[2:]) for stack in stacks]), _orders(self)[1])

    def in_order(self, stacks: Sequence[Values]) -> Values:
        """What each stack has one entry of for each of its components, ``(C_s, ...)``, in the order of these."""
        return picked(_concatenated(stacks), _orders(self)[2])

    def diagonal(self, stacks: Sequence[Array]) -> Float[Array, "M M"]:
        """Matrices ``(C_s, M_s, M_s)`` of all components as blocks on one diagonal."""
        size = sum(self.sizes)
        whole = jnp.zeros((size, size), jnp.result_type(*stacks))
        for places, stack in zip(self.places, stacks, strict=True):
            whole = whole.at[places[:, :, None], places[:, None, :]].set(stack)
        return whole

    def squares(self, stacks: Sequence[Array]) -> Float[Array, "C N"]:
        """``|A_cn|^2`` of each component, from stacks ``(C_s, M_s, N)``."""
        return self.in_order([jnp.sum(stack**2, axis=1) for stack in stacks])


@functools.lru_cache
def _orders(stacks: Stacks) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The places of the values in each stack, and those of values and of components in all stacks behind each other."""
    first = stacks.first
    places = [first[list(numbers), None] + np.arange(stacks.sizes[numbers[0]]) for numbers in stacks.members]
    of_values = np.argsort(np.concatenate([numbers.ravel() for numbers in places]))
    return places, of_values, np.argsort(np.concatenate(stacks.members))


def _concatenated(stacks: Sequence[Values]) -> Values:
    return (np if isinstance(stacks[0], np.ndarray) else jnp).concatenate(stacks)


@value_type(static=("stacks",))
class Stacked(Sequence[Array]):
    """A matrix for each component, held as one array for each stack: what a tuple of them says, in few arrays.

    Attributes
    ----------
    stacks : Stacks
    arrays : tuple of Array (..., C_s, M_s, M_s)
    """

    stacks: Stacks
    arrays: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.stacks.sizes)

    def __getitem__(self, number: object) -> Any:
        for numbers, array in zip(self.stacks.members, self.arrays, strict=True):
            if number in numbers:
                return array[..., numbers.index(number), :, :]
        raise IndexError(number)
