"""ArviZ, whose two generations differ in containers, names and signs: callers see no difference.

ArviZ 0.22 and 0.23 hold results in ``InferenceData``, ArviZ 1 in xarray's ``DataTree``. ArviZ is imported at the
first use: it is slow, and 0.23 warns of its successor.
"""

import functools
import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.posterior.draws import TrainingDraws

# What the draws are, by engine: written into the attributes, because ArviZ takes all draws for chains.
SAMPLING = {
    "mcmc": "draws of Markov chains",
    "svi": "independent draws from a variational approximation: R-hat and effective sample size say nothing about it",
    "stein": "particles of Stein variational gradient descent, one position each and no chain: "
    "R-hat, effective sample size and PSIS-LOO do not apply",
    "resampled": "draws of a variational approximation, each as often as its importance weight says: R-hat and "
    "effective sample sizes say nothing about it",
}
# NumPyro's names of what NUTS records, and ArviZ's.
STATS = {
    "potential_energy": "lp",
    "adapt_state.step_size": "step_size",
    "num_steps": "n_steps",
    "accept_prob": "acceptance_rate",
}


@functools.cache
def arviz() -> Any:
    """The ArviZ package, without the notice of 0.23 about version 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return importlib.import_module("arviz")
        except FileNotFoundError:  # 0.23 renames a file once a day, and another process had done so by then
            return importlib.import_module("arviz")


def sample_stats(extra: Mapping[str, object], index: np.ndarray, chains: int) -> dict[str, np.ndarray]:
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
    coords: Mapping[str, Sequence[object]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """ArviZ's container of draws at the training data, with named dimensions."""

    def by_chain(named: Mapping[str, Array], dtype: type[np.floating] | None = None) -> dict[str, np.ndarray]:
        return {name: np.asarray(x, dtype).reshape((chains, -1, *x.shape[1:])) for name, x in named.items()}

    known = set(found.latent) | set(found.observed) | set(constant)
    if unknown := sorted(set(dims or {}) - known):
        fail("dims", f"names of sites or arguments: {sorted(known)}", f"{unknown}", "Check the spelling.")
    # An argument with the name of a site has its dimensions, and no place beside it where its shape is another.
    shapes = {n: x.shape[1:] for n, x in found.latent.items()} | {n: x.shape for n, x in found.observed.items()}
    constant = {n: x for n, x in constant.items() if n not in found.dims or x.shape == shapes.get(n)}
    # The first axis of an argument is the data plate where their sizes agree.
    whole = {name: x for name, x in found.observed.items() if x.ndim and name not in found.rows}
    plates = {x.shape[0]: found.dims[name][0] for name, x in whole.items()}
    names = {
        **{
            name: [plates.get(x.shape[0], f"{name}_dim_0"), *(f"{name}_dim_{axis}" for axis in range(1, x.ndim))]
            for name, x in constant.items()
            if x.ndim
        },
        **found.dims,
        **{k: list(v) for k, v in (dims or {}).items()},
    }
    groups = {
        "posterior": by_chain(found.latent),
        "posterior_predictive": by_chain(found.replicated),
        # In float64 whatever the fit's precision: the smallest number that ArviZ's smoothing uses is none of float32.
        "log_likelihood": by_chain(found.terms(), np.float64),
        "sample_stats": stats,
        "observed_data": dict(found.observed),
        "constant_data": dict(constant),
    }
    attrs = {"inference_library": "numpyro_gp", "inference_engine": kind, "sampling": SAMPLING[kind]}
    places = {f"{name}_seen": rows for name, rows in found.rows.items() if rows.size}
    data = {group: {name: np.asarray(x) for name, x in named.items()} for group, named in groups.items() if named}
    named = {"coords": {**places, **(coords or {})}, "dims": names}
    noted = {group: dict(attrs) for group in data}
    package = arviz()
    with warnings.catch_warnings():
        # More particles than dimensions, or one draw: ArviZ suspects exchanged axes.
        warnings.filterwarnings("ignore", "More chains", UserWarning)
        warnings.filterwarnings("ignore", "Found chain dimension", UserWarning)
        if int(package.__version__.split(".")[0]) >= 1:  # its containers are trees
            return package.from_dict(data, **named, attrs={**noted, "/": attrs})
        by_group = {f"{group}_attrs": value for group, value in noted.items()}
        return package.from_dict(**data, **named, **by_group, attrs=attrs)
