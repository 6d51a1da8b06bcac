"""A posterior's draws at its data, as the groups, dimensions and attributes that ArviZ works on."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.arviz import from_groups
from numpyro_gp.checks import fail
from numpyro_gp.draws import TrainingDraws

__all__ = ["SAMPLING", "arviz_container", "sample_stats", "spread_draws"]

# What the draws are, by engine: written into the attributes, because ArviZ takes all draws for chains.
SAMPLING = {
    "mcmc": "draws of Markov chains",
    "svi": "independent draws from a variational approximation: R-hat and effective sample size say nothing about it",
    "stein": "particles of Stein variational gradient descent, one position each and no chain: "
    "R-hat, effective sample size and PSIS-LOO do not apply",
}
# NumPyro's names of what NUTS records, and ArviZ's.
STATS = {
    "potential_energy": "lp",
    "adapt_state.step_size": "step_size",
    "num_steps": "n_steps",
    "accept_prob": "acceptance_rate",
}


def spread_draws(count: int, available: int, chains: int) -> np.ndarray:
    """Indices of about ``count`` stored draws, as many and the same ones of each chain, spread evenly."""
    length = available // chains
    each = np.round(np.linspace(0, length - 1, max(1, count // chains))).astype(int)
    return (np.arange(chains)[:, None] * length + each).ravel()


def sample_stats(extra: Mapping[str, Any], index: np.ndarray, chains: int) -> dict[str, np.ndarray]:
    """What NUTS recorded, ``(chains, draws)``, under ArviZ's names; ``extra`` has all draws on the first axis."""
    found = {}
    for name, value in extra.items():
        if not hasattr(value, "dtype"):
            continue
        rows = np.asarray(value)[index].reshape(chains, -1)
        found[STATS.get(name, name)] = -rows if name == "potential_energy" else rows
        if name == "num_steps":
            found["tree_depth"] = np.log2(rows).astype(int) + 1
    return found


def arviz_container(
    kind: str,
    found: TrainingDraws,
    constant: Mapping[str, Array],
    stats: Mapping[str, np.ndarray],
    chains: int,
    *,
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """ArviZ's container of draws at the training data, with named dimensions."""

    def by_chain(named: Mapping[str, Array]) -> dict[str, np.ndarray]:
        return {name: np.asarray(x).reshape((chains, -1, *x.shape[1:])) for name, x in named.items()}

    known = set(found.latent) | set(found.observed) | set(constant)
    unknown = sorted(set(dims or {}) - known)
    if unknown:
        fail("dims", f"names of sites or arguments: {sorted(known)}", f"{unknown}", "Check the spelling.")
    terms = {name: _pointwise(name, found) for name in found.log_likelihood}
    names = {**found.dims, **_constant_dims(constant, found), **{k: list(v) for k, v in (dims or {}).items()}}
    groups = {
        "posterior": by_chain(found.latent),
        "posterior_predictive": by_chain(found.replicated),
        "log_likelihood": by_chain(terms),
        "sample_stats": stats,
        "observed_data": dict(found.observed),
        "constant_data": dict(constant),
    }
    attrs = {"inference_library": "numpyro_gp", "inference_engine": kind, "sampling": SAMPLING[kind]}
    return from_groups(groups, coords=coords or {}, dims=names, attrs=attrs)


def _pointwise(name: str, found: TrainingDraws) -> Array:
    """Log likelihood with the axes of the data that it has terms for: outputs of one datum are one term."""
    terms, observed = found.log_likelihood[name], found.observed[name]
    if terms.shape[1:] == observed.shape[: terms.ndim - 1]:
        return terms
    return jnp.broadcast_to(terms, terms.shape[:1] + observed.shape)


def _constant_dims(constant: Mapping[str, Array], found: TrainingDraws) -> dict[str, list[str]]:
    """The first axis of an argument is the data plate where their sizes agree."""
    plates = {x.shape[0]: found.dims[name][0] for name, x in found.observed.items() if x.ndim}
    return {
        name: [plates.get(x.shape[0], f"{name}_dim_0"), *(f"{name}_dim_{axis}" for axis in range(1, x.ndim))]
        for name, x in constant.items()
        if x.ndim
    }
