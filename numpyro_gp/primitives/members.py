"""Rows that each name the member of a plate, or the output, that they belong to."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type, widened
from numpyro_gp.beliefs.base import Process
from numpyro_gp.beliefs.basis import AbstractBasis, Basis, BatchBasis
from numpyro_gp.beliefs.members import each_member, member_axes
from numpyro_gp.checks import check_array, check_points, fail, when_known
from numpyro_gp.linalg import materialised
from numpyro_gp.primitives.opening import PlateLayout

# Numbers of a belief or a factor that are gathered for rows at a time.
HELD = 2**22


@value_type()
class Levels:
    """A mean function: one level for each member of plates, ``value`` with the axes ``lead`` of what they return."""

    value: Array

    def __call__(self, X: ArrayLike) -> Array:
        """The levels at each of N rows."""
        size = check_points("X", X, leading=True).shape[-2]
        return jnp.broadcast_to(self.value[..., None], (*self.value.shape, size))

    def of_rows(self, codes: Array) -> Array:
        """The level of the member of each row, ``(N,)``."""
        return self.value.reshape(-1)[codes]


def check_members(member: object, sizes: Shape, shape: Shape) -> tuple[Array, Array]:
    """Numbers of members, one for each row (of several plates a tuple, which becomes one), and which of them exist."""
    given = member if isinstance(member, tuple) else (member,)
    cure = "Number members and outputs from 0."
    if len(given) != len(sizes):
        required = f"a tuple of {len(sizes)} arrays, one for each plate"
        fail("member", required, f"{len(given)}", "Pass f.at((first, second), X).")
    codes, exist = [], jnp.ones(shape, bool)
    for one, size in zip(given, sizes, strict=True):
        array = check_array("member", one)
        if array.shape != shape or not jnp.issubdtype(array.dtype, jnp.integer):
            got = f"dtype {array.dtype}, shape {array.shape}"
            fail("member", f"whole numbers of shape {shape}, one for each row of X", got, cure)

        def check(values: np.ndarray, size: int = size) -> None:
            if not np.all((values >= 0) & (values < size)):
                fail("member", f"from 0 to {size - 1}", f"{values.min()} to {values.max()}", cure)

        when_known(check, array)
        array = widened(array)
        codes.append(array)
        exist &= (array >= 0) & (array < size)
    return jnp.ravel_multi_index(tuple(codes), sizes, mode="clip") if len(codes) > 1 else codes[0], exist


def marginals_of_rows(
    process: Process, basis: AbstractBasis, lead: Shape, codes: Array, X: Array
) -> tuple[Array, Array]:
    """Mean and variance ``(N,)``, or ``(N, P)``, at rows of members whose axes ``lead`` processes have on their left.

    Some rows at a time, and again for derivatives: a row takes the belief and the factor of its member.
    """
    axes = member_axes(process)

    def flat(leaf: Array) -> Array:
        return leaf.reshape(-1, *leaf.shape[len(lead) :])

    own = jax.tree.map(lambda leaf, axis: leaf if axis is None else flat(leaf), process, axes)
    inner = basis.members if isinstance(basis, BatchBasis) else basis
    is_own = isinstance(basis, BatchBasis) and basis.own
    members = jax.tree.map(flat, inner) if is_own else inner

    @jax.checkpoint
    def row(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        code, x = pair
        of_row = jax.tree.map(lambda leaf, axis: leaf if axis is None else leaf[code], own, axes)
        at = jax.tree.map(lambda leaf: leaf[code], members) if is_own else members
        mean, variance = of_row.marginals(at, x[None])
        return mean[..., 0], variance[..., 0]

    together = max(1, HELD // basis.size**2)
    found: tuple[Array, Array]
    if codes.shape[0] <= together:
        found = jax.vmap(row)((codes, X))
    else:
        found = jax.lax.map(row, (codes, X), batch_size=together)
    return found


# --------------------------------------------------------------------------------------
# Means and variances of the members of a process, at rows and at its inducing inputs.


# What a process and its basis say at rows (R, N, D), with R on its left.
AtRows = Callable[..., Any]


def of_members(
    function: AtRows, process: Process, basis: AbstractBasis, layout: PlateLayout, inputs: Array, own: tuple[Array, ...]
) -> Any:
    """A function of each member and its rows, results ``(*batch, R, ...)``."""
    rows = layout.rows(inputs)
    if not layout.plates.names:
        return function(process, basis, rows, *own)
    assert isinstance(basis, BatchBasis)
    if layout.is_own:
        return each_member(function, process, basis, rows, *own)
    return each_member(lambda one, at, *rest: function(one, at, rows, *rest), process, basis, *own)


def marginals_of(process: Process, basis: AbstractBasis, rows: Array) -> tuple[Array, Array]:
    """Mean and variance at rows ``(R, N, D)``: ``(R, N)``, or ``(R, N, P)``.

    What is drawn or integrated at a row comes back as a number for it, which the derivative of `materialised` computes
    once: XLA would do it for each inducing point. Several sets stay an axis of their own: in one axis with the rows,
    those that lie on other devices would all be sent.
    """

    def at(points: Array) -> tuple[Array, Array]:
        mean, variance = process.marginals(basis, points)
        return materialised(mean), materialised(variance)

    mean, variance = jax.vmap(at)(rows) if rows.shape[0] > 1 else (value[None] for value in at(rows[0]))
    return (mean, variance) if mean.ndim == 2 else (jnp.swapaxes(mean, 1, 2), jnp.swapaxes(variance, 1, 2))


def marginals_at_inducing(process: Process, basis: AbstractBasis) -> tuple[Array, Array]:
    """Mean and variance ``([P,] M)`` at the inducing inputs, with axes of plates on the left."""
    if isinstance(basis, BatchBasis):
        return each_member(marginals_at_inducing, process, basis)
    assert isinstance(basis, Basis)
    own = dataclasses.replace(basis, at_inducing=True)
    return process.marginals(own, own.inducing)
