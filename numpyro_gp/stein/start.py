"""Where particles start: near a point, such as a MAP, or at given values."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import random

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.checks import check_finite, check_nonnegative, fail

__all__ = ["Around", "check_start", "starting_values"]


@value_type(static=("scale",))
class Around:
    """Start every particle near one point: ``values`` plus ``scale`` times normal noise, both unconstrained.

    ``values`` maps site names to constrained values without a particle axis, such as those of a MAP:
    ``{name: v[0] for name, v in svgd.particles(params).items()}`` of a run with one particle, or
    ``AutoDelta.median(params)``.
    """

    values: Any
    scale: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping):
            got = f"a {type(self.values).__name__}"
            fail("values", "a dictionary of site names to values", got, "{'noise': 0.1}.", TypeError)
        check_nonnegative("scale", self.scale)


def check_start(init_particles: Any) -> None:
    """Refuse what is no description of a start."""
    if init_particles is not None and not isinstance(init_particles, (Mapping, Around)):
        got = f"a {type(init_particles).__name__}"
        cure = "Use the names of the sites as keys."
        fail("init_particles", "a dictionary of arrays, or Around(values)", got, cure, TypeError)


def starting_values(
    key: Array, start: Mapping[str, Any] | Around, drawn: dict[str, Array], transforms: Mapping[str, Any]
) -> dict[str, Array]:
    """Constrained starting values ``(n, ...)`` by site: those asked for, and the drawn ones for all other sites.

    ``transforms`` are those from unconstrained to constrained values, for `Around`.
    """
    near = isinstance(start, Around)
    given = start.values if near else start
    unknown = sorted(set(given) - set(drawn))
    if unknown:
        fail("init_particles", f"values of latent sites among {sorted(drawn)}", f"{unknown}", "Check the spelling.")
    values = dict(drawn)
    for number, site in enumerate(sorted(given)):
        values[site] = _checked(site, given[site], drawn[site], near)
        if near:
            free = transforms[site].inv(values[site])
            noise = random.normal(random.fold_in(key, number), free.shape, free.dtype)
            values[site] = transforms[site](free + jnp.asarray(start.scale, free.dtype) * noise)
    return values


def _checked(site: str, given: Any, drawn: Array, near: bool) -> Array:
    """A given value with the shape of the drawn ones, and its own precision (NumPyro draws in the default one)."""
    name, value = f"init_particles[{site!r}]", jnp.asarray(given)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        value = value.astype(drawn.dtype)
    wanted = drawn.shape[1:] if near else drawn.shape
    if value.shape != wanted:
        what = "one value for all particles" if near else f"the {drawn.shape[0]} particles on the first axis"
        fail(name, f"of shape {wanted}, {what}", f"shape {value.shape}", "Pass constrained values.")
    check_finite(name, value)
    return jnp.broadcast_to(value, drawn.shape)
