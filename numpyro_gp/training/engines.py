"""What `fit` has to know about an engine beyond init, update and get_params: one row for each family of engines."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.contrib.einstein import ASVGD, SteinVI
from numpyro.infer import SVI, RenyiELBO

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.guides.local_sites import check_renyi
from numpyro_gp.programs.private import SteinHooks, key_of_stein_step, keys_of_elbo_particles
from numpyro_gp.programs.set_up import abstract_trace
from numpyro_gp.rows.call import argument_names
from numpyro_gp.rows.feeds import Feed
from numpyro_gp.rows.look import check_rows_of


class Particle(NamedTuple):
    """One evaluation of guide and model within a step: unconstrained and mutable parameters, and its key."""

    free: dict[str, Any]
    mutable: dict[str, object]
    key: Array


class EngineTraits(NamedTuple):
    """What engines of one kind have in common.

    ``loss_name`` is what ``update`` returns beside the state, ``loss_is_gradient`` whether that is the norm of a
    gradient; ``particles(engine, state)`` are those of the step that starts at ``state``, None where nobody can say.
    ``can_be_traced``: ``init`` keeps nothing that it computes but in the guide and in attributes of the engine.
    ``judged(engine, state, args, kwargs)`` says what is wrong with a state at the end, or nothing.
    """

    loss_name: str
    loss_is_gradient: bool
    particles: Callable[[Any, Any], list[Particle]] | None
    can_be_traced: bool = False
    judged: Callable[[Any, Any, tuple[object, ...], dict[str, Any]], str] | None = None


def check_engine(engine: object, reserved: Sequence[str]) -> None:
    """Refuse what is no inference engine, and models whose arguments ``fit`` would swallow: those ``reserved``."""
    methods = ("init", "update", "get_params")
    if isinstance(engine, type) or not all(callable(getattr(engine, method, None)) for method in methods):
        required = "an SVI, a SteinVI or another object with init, update and get_params"
        cure = "Build SVI(model, guide, optimiser, Trace_ELBO()) first and pass the object."
        fail("svi_or_stein", required, f"{engine!r:.80}", cure, TypeError)
    for role in ("model", "guide"):
        function, bound = getattr(engine, role, None), set(getattr(engine, "static_kwargs", None) or ())
        while isinstance(function, functools.partial):
            bound, function = bound | set(function.keywords), function.func
        if clash := [name for name in reserved if name in argument_names(function) and name not in bound]:
            required = f"free of arguments named like those of fit ({', '.join(reserved)})"
            cure = f"Rename it, or bind it: functools.partial({role}, {clash[0]}=...)."
            fail(f"the {role}", required, f"an argument {clash[0]!r}", cure, TypeError)


def check_data(engine: object, feed: Feed) -> None:
    """Refuse whole data with fewer rows than their plate, under a guide that does not look itself as ours do."""
    model, guide = getattr(engine, "model", None), getattr(engine, "guide", None)
    looks_itself = hasattr(guide, "inducing") or hasattr(engine, "inducing")
    if callable(model) and not feed.changes and not looks_itself:
        check_rows_of(model, feed.call)


def check_objective(engine: object, feed: Feed) -> None:
    """Refuse the bound of Renyi where it is none, under any guide."""
    if isinstance(engine, SVI) and isinstance(engine.loss, RenyiELBO):
        with feed.opened(feed.arrays()) as (args, kwargs):
            check_renyi(abstract_trace(engine.model, args, {**kwargs, **feed.call.static}))


def _judged(engine: Any, state: object, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """Particles that are stranded; those that are not finite have stopped the fit."""
    engine.judgement = found = engine.judge(state, *args, **kwargs)
    return "" if found is None or not np.isfinite(found.log_density).all() else str(found.stranded())


def _elbo_particles(engine: SVI, state: Any) -> list[Particle]:
    """Those of the ELBO, which share all parameters."""
    free = engine.optim.get_params(state.optim_state)
    return [Particle(free, state.mutable_state or {}, key) for key in keys_of_elbo_particles(state, engine.loss)]


def _stein_particles(engine: SteinVI, state: Any) -> list[Particle]:
    """Those of the Stein mixture, which share a key and the parameters that are no guide's."""
    free, key = engine.optim.get_params(state.optim_state), key_of_stein_step(state)
    shared = {name for name in free if name not in engine.guide_sites or engine.non_mixture_params_fn(name)}

    def pick(number: int) -> dict[str, object]:
        return {n: x if n in shared else jax.tree.map(lambda leaf: leaf[number], x) for n, x in free.items()}

    return [Particle(pick(number), {}, key) for number in range(engine.num_stein_particles)]


TRAITS: dict[type, EngineTraits] = {
    SVI: EngineTraits("loss", False, _elbo_particles, can_be_traced=True),
    SteinVI: EngineTraits("Stein force", True, _stein_particles),
    SteinHooks: EngineTraits("Stein force", True, _stein_particles, can_be_traced=True, judged=_judged),
    ASVGD: EngineTraits("Stein force", True, lambda engine, state: _stein_particles(engine, state.steinvi_state)),
}


def traits_of(engine: object) -> EngineTraits:
    """The family of an engine by its class; one that is in no row has a loss, and sites that cannot be named."""
    return next((TRAITS[kind] for kind in type(engine).__mro__ if kind in TRAITS), EngineTraits("loss", False, None))
