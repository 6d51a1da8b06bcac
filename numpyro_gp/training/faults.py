"""Why a step failed: the sites and parameters at fault, found by running guide and model once more."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.handlers import replay, seed
from numpyro.infer.util import compute_log_probs

from numpyro_gp.arrays import Array
from numpyro_gp.training.checkpoints import is_key

__all__ = ["all_finite", "explain", "not_finite"]


def all_finite(tree: Any) -> Array:
    """Whether every floating point entry of a tree is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if not is_key(leaf)]
    checks = [jnp.all(jnp.isfinite(leaf)) for leaf in leaves if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]
    return functools.reduce(jnp.logical_and, checks, jnp.asarray(True))


def explain(
    engine: Any, state: Any, loss: np.ndarray, after: Any, arrays: list[Array], merge: Callable
) -> tuple[str, tuple[str, ...]]:
    """Why the step from ``state`` failed: a sentence, and the names of the sites at fault in model order."""
    finite_loss = bool(np.isfinite(loss))
    reason = f"the loss is {loss}."
    if finite_loss:
        names = ", ".join(not_finite(engine.get_params(after)))
        reason = f"the loss is {loss:.6g}, but its gradient is not finite, and would leave {names} not finite."
    elif names := ", ".join(not_finite(engine.get_params(state))):
        reason += f" Parameters that were not finite before this step: {names}."
    else:
        reason += " All parameters were finite before this step."
    if not hasattr(engine, "model") or not hasattr(engine, "guide"):
        return reason, ()
    try:
        # The loss of a Stein engine is the norm of its scores, which are gradients.
        is_stein = hasattr(engine, "num_stein_particles")
        found, where = faulty_sites(engine, state, arrays, merge, gradients=finite_loss or is_stein)
    # The failure itself matters more than a failure to explain it.
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return f"{reason} Its sites could not be examined ({type(error).__name__}: {error}).", ()
    if not found:
        return f"{reason} No single site is at fault: look at the objective, or at what the model does not sample.", ()
    what = "gradient of its log density" if finite_loss else "log density or value"
    what += ", or its gradient," if is_stein and not finite_loss else ""
    listed = ", ".join(f"{name!r} ({detail})" for name, detail in found)
    return f"{reason} Sites whose {what} is not finite{where}, in model order: {listed}.", tuple(n for n, _ in found)


def not_finite(params: Any) -> list[str]:
    """Names of the parameters with an entry that is not finite."""
    if not isinstance(params, dict):
        return [] if all_finite(params) else ["unnamed"]
    return [repr(name) for name, value in params.items() if not all_finite(value)]


def faulty_sites(
    engine: Any, state: Any, arrays: list[Array], merge: Callable, gradients: bool
) -> tuple[list[tuple[str, str]], str]:
    """Run guide and model once more with the keys of the failed step and look at every site.

    The keys follow ``SVI.update`` and ``Trace_ELBO``; for several ELBO or Stein particles the
    first one with a fault is reported. Compiled, so that the library's own checks of values, which
    would raise here, are not met.
    """
    order: list[str] = []

    def terms(free: dict, fixed: dict, key: Array, arrays: list[Array]) -> tuple[dict, dict]:
        args, kwargs = merge(arrays)
        kwargs = {**kwargs, **engine.static_kwargs}
        params = {**constrain(free), **fixed}
        model_key, guide_key = jax.random.split(key)
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

    def slope(name: str, *inputs: Any) -> dict:
        # One site at a time: in a joint Jacobian the zero weights of the other sites turn infinity into NaN.
        return jax.jit(jax.grad(lambda *inputs: terms(*inputs)[0][name]))(*inputs)

    for number, (free, fixed, key) in enumerate(draws := particles(engine, state)):
        densities, finite = evaluate(free, fixed, key, arrays)
        found = [(n, f"{float(densities[n]):.6g}") for n in order if not np.isfinite(densities[n])]
        found = [(n, dict(found).get(n, "value")) for n in order if n in dict(found) or not finite[n]]
        if gradients and not found:
            names = [(n, ", ".join(not_finite(slope(n, free, fixed, key, arrays)))) for n in tuple(order)]
            found = [(n, f"by {culprits}") for n, culprits in names if culprits]
        if found:
            return found, f" (particle {number})" if len(draws) > 1 else ""
    return [], ""


def particles(engine: Any, state: Any) -> list[tuple[dict, dict, Array]]:
    """Unconstrained parameters, mutable state and key of every particle of the step that starts at ``state``."""
    if not hasattr(engine, "num_stein_particles"):
        free = engine.optim.get_params(state.optim_state)
        key, count = jax.random.split(state.rng_key)[1], getattr(engine.loss, "num_particles", 1)
        keys = [key] if count == 1 else list(jax.random.split(key, count))
        return [(free, state.mutable_state or {}, key) for key in keys]
    inner = getattr(state, "steinvi_state", state)
    free = engine.optim.get_params(inner.optim_state)
    key = jax.random.split(inner.rng_key, 3)[2]
    shared = {name for name in free if name not in engine.guide_sites or engine.non_mixture_params_fn(name)}

    def pick(number: int) -> dict:
        return {n: x if n in shared else jax.tree.map(lambda leaf: leaf[number], x) for n, x in free.items()}

    return [(pick(number), {}, key) for number in range(engine.num_stein_particles)]
