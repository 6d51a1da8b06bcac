"""What is wrong with a run: why a step failed, by running guide and model once more, and fits that never started."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.contrib.einstein import ASVGD, SteinVI
from numpyro.handlers import replay, seed
from numpyro.infer import SVI
from numpyro.infer.util import compute_log_probs

from numpyro_gp.arrays import Array, is_key
from numpyro_gp.checks import fail
from numpyro_gp.programs.private import SteinHooks, key_of_stein_step, keys_of_elbo_particles, model_and_guide_keys
from numpyro_gp.rows.call import argument_names
from numpyro_gp.rows.feeds import Feed

# --------------------------------------------------------------------------------------
# What `fit` has to know about an engine beyond init, update and get_params: one row for each family of engines.


class Particle(NamedTuple):
    """One evaluation of guide and model within a step: unconstrained and mutable parameters, and its key."""

    free: dict[str, Any]
    mutable: dict[str, object]
    key: Array


class EngineTraits(NamedTuple):
    """What engines of one kind have in common.

    ``loss_name`` is what ``update`` returns beside the state, a loss or the norm of a gradient;
    ``particles(engine, state)`` are those of the step that starts at ``state``, None where nobody can say.
    ``can_be_traced``: ``init`` keeps nothing that it computes but in the guide and in attributes of the engine.
    ``judged(engine, state, args, kwargs)`` says what is wrong with a state at the end, or nothing.
    """

    loss_name: str
    particles: Callable[[Any, Any], list[Particle]] | None
    can_be_traced: bool = False
    judged: Callable[[Any, Any, tuple[object, ...], dict[str, Any]], str] | None = None


def check_engine(engine: object, reserved: Sequence[str]) -> None:
    """Refuse what is no inference engine, and models whose arguments ``fit`` would swallow: those ``reserved``."""
    if isinstance(engine, type) or not hasattr(engine, "update"):
        required = "an SVI, a SteinVI, a model function or another object with init, update and get_params"
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


def _judged(engine: Any, state: object, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """Particles that are stranded or narrow; those that are not finite have stopped the fit."""
    engine.judgement = found = engine.judge(state, *args, **kwargs)
    return "" if found is None or not np.isfinite(found.log_density).all() else str(found.warning())


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
    SVI: EngineTraits("loss", _elbo_particles, can_be_traced=True),
    SteinVI: EngineTraits("Stein force", _stein_particles),
    SteinHooks: EngineTraits("Stein force", _stein_particles, can_be_traced=True, judged=_judged),
    ASVGD: EngineTraits("Stein force", lambda engine, state: _stein_particles(engine, state.steinvi_state)),
}


def traits_of(engine: object) -> EngineTraits:
    """The family of an engine by its class; one that is in no row has a loss, and sites that cannot be named."""
    return next((TRAITS[kind] for kind in type(engine).__mro__ if kind in TRAITS), EngineTraits("loss", None))


# A shorter fit says nothing about where it would end.
FEWEST_STEPS = 100
SAME = 1e-3


def all_finite(tree: object) -> Array:
    """Whether every floating point entry of a tree is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if not is_key(leaf)]
    checks = [jnp.all(jnp.isfinite(leaf)) for leaf in leaves if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]
    return functools.reduce(jnp.logical_and, checks, jnp.asarray(True))


def explain(
    engine: object, state: object, loss: np.ndarray, after: object, arrays: list[Array], feed: Feed
) -> tuple[str, tuple[str, ...]]:
    """Why the step from ``state`` failed: a sentence, and the names of the sites at fault in model order."""
    finite_loss = bool(np.isfinite(loss))
    reason = f"the loss is {loss}."
    if finite_loss:
        names = ", ".join(names_not_finite(engine.get_params(after)))
        reason = f"the loss is {loss:.6g}, but its gradient is not finite, and would leave {names} not finite."
    elif names := ", ".join(names_not_finite(engine.get_params(state))):
        reason += f" Parameters that were not finite before this step: {names}."
    else:
        reason += " All parameters were finite before this step."
    kind = traits_of(engine)
    if kind.particles is None:
        return reason, ()
    try:
        is_gradient = kind.loss_name != "loss"
        gradients = finite_loss or is_gradient
        faulty, where = faulty_sites(engine, kind.particles(engine, state), arrays, feed, gradients)
    # The failure itself matters more than a failure to explain it.
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return f"{reason} Its sites could not be examined ({type(error).__name__}: {error}).", ()
    if not faulty and finite_loss:
        cure = "Take smaller steps: the new value, often an exponential, or the gradient itself overflowed."
        return f"the loss is {loss:.6g}, but the step was too long: {names} would not be finite after it. {cure}", ()
    if not faulty:
        return f"{reason} No single site is at fault: look at the objective, or at what the model does not sample.", ()
    what = "gradient of its log density" if finite_loss else "log density or value"
    what += ", or its gradient," if is_gradient and not finite_loss else ""
    listed = ", ".join(f"{name!r} ({detail})" for name, detail in faulty)
    sites = tuple(name for name, _ in faulty)
    return f"{reason} Sites whose {what} is not finite{where}, in model order: {listed}.", sites


def standstill(before: object, after: object, losses: np.ndarray) -> str:
    """A sentence where a fit from parameters ``before`` ended where it began, and nothing where it did not.

    It did if no parameter moved by a thousandth (of its largest entry, or of 1) and the mean loss of the last tenth of
    the steps is that of the first tenth to four standard errors or a thousandth. A fit that converges in its first
    steps has moved its parameters.
    """
    moves = []
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        if is_key(old) or not jnp.issubdtype(jnp.result_type(old), jnp.inexact) or not np.size(old):
            moves.append(0.0)  # no optimiser moves these
            continue
        # The largest change of an entry, relative to the largest entry or 1.
        a, b = np.asarray(old), np.asarray(new)
        moves.append(float(np.max(np.abs(b - a)) / max(1.0, np.max(np.abs(a)))))
    if len(losses) < FEWEST_STEPS or not moves or not np.max(moves) <= SAME:  # nor where a move is NaN
        return ""
    tenth = len(losses) // 10
    first, last = (np.asarray(part, float) for part in (losses[:tenth], losses[-tenth:]))
    noise = np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / tenth)
    if abs(last.mean() - first.mean()) > max(4 * noise, SAME * abs(first.mean())):
        return ""
    return (
        f"After {len(losses)} steps the fit is where it began: no parameter moved by more than {max(moves):.1g} of its "
        f"size and the loss is still about {first.mean():.5g}. The steps are too small, or there is no gradient to "
        "follow: often because the inputs lie many lengthscales apart (scale them, or start lengthscales near the "
        "square root of the number of columns). If it began at its optimum, all is well."
    )


def names_not_finite(params: object) -> list[str]:
    """Names of the parameters with an entry that is not finite."""
    if not isinstance(params, dict):
        return [] if all_finite(params) else ["unnamed"]
    return [repr(name) for name, value in params.items() if not all_finite(value)]


def faulty_sites(
    engine: object, particles: list[Particle], arrays: list[Array], feed: Feed, gradients: bool
) -> tuple[list[tuple[str, str]], str]:
    """Run guide and model once more for the particles of the failed step and look at every site.

    The first particle with a fault is reported. Compiled, so that the library's checks of values, which would raise
    here, are not met.
    """
    order: list[str] = []

    def terms(free: dict, mutable: dict, key: Array, arrays: list[Array]) -> tuple[dict, dict]:
        with feed.opened(arrays) as (args, kwargs):
            kwargs = {**kwargs, **feed.call.static}
            params = {**constrain(free), **mutable}
            model_key, guide_key = model_and_guide_keys(key)
            guide_terms, guide_trace = compute_log_probs(seed(engine.guide, guide_key), args, kwargs, params)
            model = replay(seed(engine.model, model_key), guide_trace)
            model_terms, model_trace = compute_log_probs(model, args, kwargs, params)
        sites = {**model_trace, **{name: site for name, site in guide_trace.items() if name not in model_trace}}
        sites = {name: site for name, site in sites.items() if site["type"] in ("sample", "deterministic")}
        order[:] = sites
        zero = jnp.zeros(())
        densities = {n: model_terms.get(n, zero) - guide_terms.get(n, zero) for n in sites}
        return densities, {n: all_finite(site["value"]) for n, site in sites.items()}

    constrain = engine.constrain_fn
    evaluate = jax.jit(terms)

    def slope(name: str, *inputs: object) -> dict:
        # One site at a time: in a joint Jacobian the zero weights of the other sites turn infinity into NaN.
        return jax.jit(jax.grad(lambda *inputs: terms(*inputs)[0][name]))(*inputs)

    for number, particle in enumerate(particles):
        densities, finite = evaluate(*particle, arrays)
        details = {n: f"{float(densities[n]):.6g}" if not np.isfinite(densities[n]) else "value" for n in order}
        faulty = [(n, details[n]) for n in order if details[n] != "value" or not finite[n]]
        if gradients and not faulty:
            culprits = {n: ", ".join(names_not_finite(slope(n, *particle, arrays))) for n in tuple(order)}
            faulty = [(n, f"by {names}") for n, names in culprits.items() if names]
        if faulty:
            return faulty, f" (particle {number})" if len(particles) > 1 else ""
    return [], ""
