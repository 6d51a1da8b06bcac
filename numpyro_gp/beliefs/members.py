"""How what is written for one process is mapped over several side by side, in plates or as outputs of one site."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, over_axes
from numpyro_gp.beliefs.basis import BatchBasis

Method = TypeVar("Method", bound=Callable[..., Any])
Result = TypeVar("Result")


def member_axes(process: Any) -> Any:
    """For ``vmap``: where the members of a batch are in each array of a belief or a point.

    On the first axis, but for the fields named ``Z_...`` and ``columns``, which all members share.
    """

    def axis(path: tuple[Any, ...], _: Array) -> int | None:
        names = [str(key).lstrip(".") for key in path]
        return None if any(name.startswith("Z_") or name == "columns" for name in names) else 0

    return jax.tree_util.tree_map_with_path(axis, process)


def each_member(function: Callable[..., Result], process: Any, basis: BatchBasis, *own: Any) -> Result:
    """``function(process, basis, *own)`` of each member, results with the axes of the batch on their left.

    Arrays of the process and of ``own`` have these axes on their left.
    """
    axes = (member_axes(process), 0 if basis.own else None, *[0] * len(own))
    return over_axes(function, basis.axes, axes)(process, basis.members, *own)


def over_members(method: Method) -> Method:
    """A method of one process and its basis; at a batch of them, mapped over the members of both.

    A KL divergence is summed over outputs, and has one entry for each member of plates.
    """

    @functools.wraps(method)
    def mapped(self: Any, basis: Any = None, *arguments: Any) -> Any:
        if not isinstance(basis, BatchBasis):
            return method(self, basis, *arguments)
        found = each_member(lambda own, one: mapped(own, one, *arguments), self, basis)
        return jnp.sum(found) if method.__name__ == "kl" and basis.batch is None else found

    return cast("Method", mapped)
