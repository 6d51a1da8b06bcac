"""Means and variances of the members of a process, at rows and at its inducing inputs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import Process
from numpyro_gp.beliefs.basis import AbstractBasis, Basis
from numpyro_gp.beliefs.batch_basis import BatchBasis
from numpyro_gp.beliefs.members import each_member
from numpyro_gp.linalg import materialised
from numpyro_gp.primitives.plates import Layout

# What a process and its basis say at rows (R, N, D), with R on its left.
AtRows = Callable[..., Any]


def of_members(
    function: AtRows, process: Process, basis: AbstractBasis, layout: Layout, inputs: Array, own: tuple[Array, ...]
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
