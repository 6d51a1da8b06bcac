"""A model run again at values of its posterior: which sites take them, and what its data sites are."""

from collections.abc import Mapping
from inspect import BoundArguments
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.sites import Observation, role, unwrap

__all__ = [
    "abstract_trace",
    "conditioned_observation",
    "data_site",
    "is_conditioned",
    "is_same",
    "only_process",
    "trace_at",
]


class GlobalValues:
    """Substitute the values of global sites; sites in the data plate stay with their prior."""

    def __init__(self, values: Mapping[str, Any], data_plate: str | None = None) -> None:
        self.values, self.data_plate = values, data_plate

    def __call__(self, site: Mapping[str, Any]) -> Any:
        if site["type"] != "sample" or role(site) in ("noise", "latent") or isinstance(unwrap(site["fn"]), Observation):
            return None
        return None if _stands_in(site, self.data_plate) else self.values.get(site["name"])


def trace_at(
    posterior: Any, key: Array, index: Array, call: BoundArguments, data_plate: str | None = None, offset: Any = None
) -> dict[str, Any]:
    """Trace of a posterior's model at one of its draws.

    One key a draw fixes the global values; ``offset``, the first row of a chunk, gives each chunk its own noise.
    """
    key_draw, key_model = jax.random.split(key)
    values = posterior.values(key_draw, index, *call.args, **call.kwargs)
    model = handlers.substitute(posterior.fitted_model, substitute_fn=GlobalValues(values, data_plate))
    key_model = key_model if offset is None else jax.random.fold_in(key_model, offset)
    with handlers.block(), handlers.seed(rng_seed=key_model):
        return handlers.trace(model).get_trace(*call.args, **call.kwargs)


def abstract_trace(posterior: Any, call: BoundArguments) -> dict[str, Any]:
    """Sample sites of a posterior's model with their shapes: nothing is computed."""
    found: dict[str, Any] = {}

    def run() -> None:
        trace = trace_at(posterior, jax.random.key(0), jnp.asarray(0), call)
        found.update({name: site for name, site in trace.items() if site["type"] == "sample"})

    jax.eval_shape(run)
    return found


def data_site(trace: Mapping[str, Any], site: str | None) -> tuple[str, str | None, bool]:
    """The site to predict, the plate of its data, and whether some site is drawn for single data."""
    open_sites = [n for n, s in trace.items() if isinstance(unwrap(s["fn"]), Observation) and not s["is_observed"]]
    if site is None and len(open_sites) == 1:
        site = open_sites[0]
    if site not in open_sites:
        fail(
            "site",
            f"one unobserved ngp.observe site of the model: {open_sites}",
            repr(site),
            "Call predict without the data (y=None), and name the site where there are several. A model with "
            "gp_regression is predicted by predict_at(key, X_new, *arguments_of_the_fit); compare takes at=X_new.",
        )
    # The rightmost plate around the data: what stands in it belongs to single data.
    frames = sorted(trace[site]["cond_indep_stack"], key=lambda frame: frame.dim)
    plate = frames[-1].name if frames else None
    others = (s for n, s in trace.items() if n != site)
    return site, plate, any(role(s) in ("noise", "latent") or _stands_in(s, plate) for s in others)


def _stands_in(site: Mapping[str, Any], plate: str | None) -> bool:
    return any(frame.name == plate for frame in site["cond_indep_stack"])


def only_process(found: Mapping[str, Any], name: str | None) -> Any:
    """The process of a name, or the only one."""
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None or name not in found:
        fail("gp", f"the name of one process of the model: {sorted(found)}", repr(name), "Name it: gp='f'.")
    return found[name]


def is_conditioned(process: Any) -> bool:
    """Whether `gp_regression` made the process, which then knows its data and their noise."""
    return hasattr(process.process, "noise")


def conditioned_observation(process: Any, X: Array, noise: Array | None = None) -> Observation:
    """New data of a process that `gp_regression` conditioned, with its noise variance or the one given."""
    if not is_conditioned(process):
        got = f"the gp site {process.name!r}"
        fail("gp", "the data site of a gp_regression", got, "Call predict, with new inputs and no data.", TypeError)
    own = process.process.noise
    variance = own if noise is None else noise
    if noise is None and jnp.ndim(variance):
        got = f"a variance for each of {variance.shape[0]} training data"
        fail("noise", "given: the noise variance of the new data", got, "Pass noise=, a number or one for each row.")
    return Observation(process(X), Gaussian(jnp.sqrt(variance)))


def is_same(value: Any, seen: Any) -> bool:
    """Whether an argument of the model is one of its observed arrays."""
    return np.shape(value) == seen.shape and np.array_equal(np.asarray(value), np.asarray(seen))
