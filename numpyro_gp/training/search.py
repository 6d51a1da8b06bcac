"""The first point of a fit: the best of a grid of lengthscales and noises, by the objective of the fit itself.

From one start, such as the medians of priors, a function that changes within a thirteenth of its lengthscale is noise:
there is an optimum that says so, and gradients lead to it. From a start near the lengthscale of the data they lead to
the other one. Where a function is integrated out, as in `gp_regression`, one look at the objective tells such starts
apart. Where its values or a belief about them have parameters of their own it does not: at their start, the prior,
every function is noise, and nothing is searched.

A point of the grid is a change of the guide's locations. It is the least one, to first order, that multiplies every
lengthscale of the kernels by one factor and every noise by another, and their variances by none: whatever the sites
are called, scaled or shared. Losses are those of the first step, in the program of all steps: nothing compiles for
them, and all points have the same key and the same batch.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import SVI, init_to_feasible, init_to_mean, init_to_median, init_to_sample, init_to_uniform
from numpyro.infer.autoguide import AutoGuide, AutoGuideList

from numpyro_gp.arrays import Array
from numpyro_gp.guides import AutoGP
from numpyro_gp.guides.other_sites import to_median
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.programs.compiled import prepared
from numpyro_gp.rows.call import Arguments
from numpyro_gp.rows.feeds import Feed
from numpyro_gp.sites import role
from numpyro_gp.training.first_state import definite

# Factors of lengthscales and of standard deviations of noise; the start itself is the first point.
LENGTHSCALES = (1.0, 3.0, 1 / 3, 1 / 9, 1 / 27, 1 / 81)
NOISES = (1.0, 3.0, 1 / 3, 1 / 9)
# A fit is short, and has no search unless it is asked for, where the grid would be more than this share of its steps.
SHARE = 1 / 20
SHORT = round(len(LENGTHSCALES) * len(NOISES) / SHARE)
# Starts that name no value: those of NumPyro's strategies, and our own medians.
STRATEGIES = (init_to_uniform, init_to_median, init_to_mean, init_to_sample, init_to_feasible, to_median)
# What a kernel, or a process given its data, calls these; and by which power of the factors they grow.
FIELDS = {"lengthscale": (1.0, 0.0), "noise": (0.0, 2.0), "variance": (0.0, 0.0)}


def best_start(engine: object, feed: Feed, state: object, advance: Callable[..., tuple]) -> object:
    """The state of a fit at the best point of the grid, ``state`` itself where no other is better.

    ``advance`` takes the steps of the fit. Of an engine, a guide or a model that this is not for, it is ``state``.
    """
    names = movable(engine, state) if isinstance(engine, SVI) and feed.placement is None else []
    found = directions(engine, feed, state, names) if names else None
    if found is None:
        return state

    def moved(state: object, change: Array) -> Any:
        free = engine.optim.get_params(state.optim_state)
        own, unravel = ravel_pytree({name: free[name] for name in names})
        new = {**free, **unravel(own + change.astype(own.dtype))}
        return definite(state._replace(optim_state=engine.optim.init(new)))

    changes = np.log([(scale, noise) for scale in LENGTHSCALES for noise in NOISES]) @ found
    changes = np.asarray(list(dict.fromkeys(map(tuple, changes))), found.dtype)  # where one direction is none
    arrays, move, best, least = feed.arrays(), prepared(moved, state, changes[0]), state, np.inf
    for change in changes:
        other = move(state, change) if change.any() else state
        _, _, losses, healthy = advance(other, 1, arrays)
        loss = float(np.asarray(losses)[0])
        if healthy and loss < least:
            best, least = other, loss
    return best


def movable(engine: SVI, state: object) -> list[str]:
    """Names of the parameters that a search moves; none where the model has values of a process, or latent inputs.

    These start at noise.
    """
    sites = getattr(engine.guide, "prototype_trace", None) or {}
    if any(role(site) is not None for site in sites.values()):
        return []
    free = engine.optim.get_params(state.optim_state)
    return [name for name in dict.fromkeys(locations(engine.guide)) if name in free]


def locations(guide: object) -> Iterator[str]:
    """Names of the parameters of a guide that say where its hyper-parameters are, and that nobody gave a value."""
    guide = guide.rest if isinstance(guide, AutoGP) else guide
    for part in guide if isinstance(guide, AutoGuideList) else ():
        yield from locations(part)
    start = getattr(guide, "init_loc_fn", None)
    if isinstance(guide, AutoGuide) and getattr(start, "func", start) in STRATEGIES:
        yield f"{guide.prefix}_loc"
        yield from (f"{site}_{guide.prefix}_loc" for site in guide.prototype_trace or ())


def directions(engine: object, feed: Feed, state: object, names: list[str]) -> np.ndarray | None:
    """Changes ``(2, P)`` of the parameters of these names for the logarithms of both factors; None without any.

    ``J`` being the derivative of the logarithms of all lengthscales, noises and variances, and ``t`` the powers by
    which they are to grow, the change is the shortest ``x`` for which ``J x`` is nearest to ``t``.
    """
    powers: list[np.ndarray] = []

    def derivative(state: object, arrays: list[Array]) -> list[Array]:
        free = engine.optim.get_params(state.optim_state)
        flat, unravel = ravel_pytree({name: free[name] for name in names})

        def logarithms(flat: Array) -> list[Array]:
            with feed.opened(arrays) as given:
                call = Arguments(given.args, {**given.kwargs, **feed.call.static})
                found = processes_at(engine, engine.constrain_fn({**free, **unravel(flat)}), call)
            leaves = jax.tree_util.tree_leaves_with_path(dict(found))
            named = [(getattr(path[-1], "name", None), leaf) for path, leaf in leaves]
            fields = [(name, jnp.asarray(leaf)) for name, leaf in named if name in FIELDS]
            own = [(name, x) for name, x in fields if jnp.issubdtype(x.dtype, jnp.floating)]
            powers[:] = [np.broadcast_to(FIELDS[name], (leaf.size, 2)) for name, leaf in own]
            return [jnp.log(leaf.ravel()) for _, leaf in own]

        return jax.jacfwd(logarithms)(flat)

    # The rest of the model, its matrices among it, is traced and no part of the program.
    rows_at = prepared(derivative, state, feed.arrays())
    if not powers:
        return None
    rows = rows_at(state, feed.arrays())
    jacobian, wanted = np.concatenate([np.asarray(row, float) for row in rows]), np.concatenate(powers)
    follow = np.isfinite(jacobian).all(1) & jacobian.any(1)
    if not wanted[follow, 0].any():
        return None
    return np.linalg.lstsq(jacobian[follow], wanted[follow], rcond=1e-6)[0].T


def processes_at(engine: object, params: Mapping[str, object], call: Arguments) -> dict[str, object]:
    """The processes of the model at a draw of the guide, by name; none where one is not integrated out."""
    (args, kwargs), key = call, jax.random.key(0)
    with handlers.block(), recorded_processes() as found:
        with handlers.seed(rng_seed=key):
            trace = handlers.trace(handlers.substitute(engine.guide, data=params)).get_trace(*args, **kwargs)
        model = handlers.replay(handlers.substitute(handlers.seed(engine.model, key), data=params), trace)
        model(*args, **kwargs)
    return found if all(process.noise is not None for process in found.values()) else {}
