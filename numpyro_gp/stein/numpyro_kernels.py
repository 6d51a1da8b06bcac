"""Directions with one of NumPyro's own kernels, which it describes pair by pair."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array
from numpyro_gp.programs.private import SteinHooks
from numpyro_gp.stein.direction import Forces, average, healthy_particles, mark_faults
from numpyro_gp.stein.metric import from_rows, of_row, to_rows


def numpyro_forces(
    engine: SteinHooks, rng_key: Array, free: dict, scores: dict, log_target: Callable[[dict], Array]
) -> Forces:
    """Forces on unconstrained particles by the kernel of an engine that holds one of NumPyro's."""
    unravel, positions, slopes = of_row(free), to_rows(free), to_rows(scores)
    healthy = healthy_particles(positions, slopes)
    x = jnp.where(healthy[:, None], positions, average(positions, healthy)[None])
    s = jnp.where(healthy[:, None], slopes, 0)
    places, apply, slope = engine.pair_functions(free)

    def density(key: Array, row: Array, index: Array) -> Array:  # noqa: ARG001
        return log_target(unravel(row))

    kernel = engine.kernel_fn.compute(rng_key, x, places, density)
    pull = jax.vmap(lambda a, b, y: apply(kernel, a, y, b), in_axes=(0, 0, None))
    push = jax.vmap(lambda a, y: slope(kernel, a, y), in_axes=(0, None))
    attraction = jax.vmap(lambda y: average(pull(x, s, y), healthy))(x)
    repulsion = jax.vmap(lambda y: average(push(x, y), healthy))(x)
    attraction, repulsion = (mark_faults(part, positions, slopes, healthy) for part in (attraction, repulsion))
    return Forces(from_rows(attraction, free), from_rows(repulsion, free))
