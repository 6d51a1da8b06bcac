"""Where particles start: near a point, such as a MAP, or at given values; and whether they have fixed coordinates."""

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.handlers import seed, trace
from numpyro.infer import init_to_sample

from numpyro_gp.arrays import Array, Model, value_type
from numpyro_gp.checks import check_finite, check_nonnegative, fail, when_known
from numpyro_gp.programs.private import mask_of
from numpyro_gp.programs.set_up import Feasible
from numpyro_gp.sites import Site


@value_type(static=("scale",))
class Around:
    """Start all particles near one point: ``values`` plus ``scale`` times normal noise, both unconstrained.

    Parameters
    ----------
    values : dict
        Site names to constrained values without a particle axis, such as those of a MAP:
        ``{name: v[0] for name, v in svgd.particles(params).items()}`` of a run with one particle, or
        ``AutoDelta.median(params)``.
    scale : float
        Standard deviation of the noise.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist, optax, numpyro_gp as ngp
    >>> def model():
    ...     numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
    >>> start = ngp.stein.Around({"noise": 0.1}, scale=0.05)
    >>> svgd = ngp.stein.SVGD(model, optax.adam(0.01), num_stein_particles=5, init_particles=start)
    """

    values: Any
    scale: float = 0.1

    def __post_init__(self) -> None:
        check_nonnegative("scale", self.scale)


def _draw(site: Site) -> object:
    """Start a particle at a draw of the prior; in coordinates of a fit (`ngp.conditioned`) of ``N(0, I)``, the fit."""
    drawn = init_to_sample(site)
    if drawn is None or site["infer"].get("numpyro_gp") != "coordinates":
        return drawn
    return random.normal(site["kwargs"]["rng_key"], drawn.shape, drawn.dtype)


init_to_draw = functools.partial(_draw)  # the form that NumPyro asks of its strategies


def starting_values(
    key: Array, start: Mapping[str, object] | Around, drawn: dict[str, Array], transforms: Mapping[str, object]
) -> dict[str, Array]:
    """Constrained starting values ``(n, ...)`` by site: those asked for, and the drawn ones for all other sites.

    ``transforms`` are those from unconstrained to constrained values.
    """
    near = isinstance(start, Around)
    asked: Any = start.values if near else start
    if unknown := sorted(set(asked) - set(drawn)):
        fail("init_particles", f"values of latent sites among {sorted(drawn)}", f"{unknown}", "Check the spelling.")
    values: dict[str, Any] = dict(drawn)
    for number, site in enumerate(sorted(asked)):
        name, value, whole = f"init_particles[{site!r}]", jnp.asarray(asked[site]), drawn[site].shape
        if not jnp.issubdtype(value.dtype, jnp.floating):  # else its own precision: NumPy draws in the default one
            value = value.astype(drawn[site].dtype)
        wanted = whole[1:] if near else whole
        if value.shape != wanted:
            what = "one value for all particles" if near else f"the {whole[0]} particles on the first axis"
            fail(name, f"of shape {wanted}, {what}", f"shape {value.shape}", "Pass constrained values.")
        check_finite(name, value)
        values[site] = jnp.broadcast_to(value, whole)
        free = transforms[site].inv(values[site])
        when_known(functools.partial(_check_inside, name), values[site], free)
        if near:
            noise = random.normal(random.fold_in(key, number), free.shape, free.dtype)
            values[site] = transforms[site](free + jnp.asarray(start.scale, free.dtype) * noise)
    return values


def _check_inside(name: str, value: np.ndarray, free: np.ndarray) -> None:
    outside = ~np.isfinite(free.reshape(free.shape[0], -1)).all(axis=1)
    if outside.any():
        wrong = f"{value[outside.argmax()]} at particle {outside.argmax()}"
        fail(name, "inside the support of the site", wrong, "Pass constrained values.")


def check_supports(model: Model, key: Array, args: tuple, kwargs: dict) -> None:
    """Refuse a site whose support depends on another: its coordinates are fixed once, when the particles are placed.

    Warn of masks over the rows of a minibatch, of which a step knows its own alone.
    """
    hidden: set[str] = set()

    def bounds(key: Array) -> dict[str, list[Array]]:
        with Feasible():
            sites = trace(seed(model, key)).get_trace(*args, **kwargs)
        latent = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
        frames = [(name, frame) for name, site in latent.items() for frame in site["cond_indep_stack"]]
        cut = {name for name, frame in frames if frame.size != sites[frame.name]["args"][0]}  # where rows are drawn
        hidden.update(name for name in cut if mask_of(latent[name]["fn"]) is not True)
        leaves = {name: jax.tree.leaves(site["fn"].support) for name, site in latent.items()}
        return {name: [leaf for leaf in found if isinstance(leaf, jax.core.Tracer)] for name, found in leaves.items()}

    sites = jax.eval_shape(bounds, key)
    if hidden:
        values, rows = ", ".join(sorted(hidden)), "Sample all rows (no subsample_size), or leave the hidden ones out."
        message = f"handlers.mask hides rows of {values} in a plate of which a step sees only some. Hidden values are"
        warnings.warn(f"{message} repelled and never drawn back, and others spread too little. {rows}", stacklevel=4)
    if not any(sites.values()):
        return
    first, second = (jax.jit(bounds)(own) for own in random.split(key))
    for name in first:
        for pair in zip(first[name], second[name], strict=True):
            when_known(functools.partial(_check_fixed, name), *pair)


def _check_fixed(site: str, bound: np.ndarray, other: np.ndarray) -> None:
    if np.any(bound != other):
        cure = "Sample it in fixed coordinates, such as a fraction of the other site."
        fail(f"site {site!r}", "of one fixed support", "a support that depends on another site", cure)
