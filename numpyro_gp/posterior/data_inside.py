"""Models that hold their data inside, as those of `gp_regression`: which process has them, and what new data are."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.primitives.local_process import LocalProcess, SeenProcesses
from numpyro_gp.primitives.observe import shifted
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.sites import Observation, Trace, unwrap


def seen_by_neighbours(trace: Trace) -> dict[str, SeenProcesses]:
    """Processes by neighbours with the likelihood of their data, by the names of these."""
    fns = {name: unwrap(site["fn"]) for name, site in trace.items() if site["type"] == "sample"}
    seen = {name: fn.seen_of for name, fn in fns.items() if isinstance(fn, Observation)}
    return {name: one for name, one in seen.items() if isinstance(one, SeenProcesses)}


def is_conditioned(process: GaussianProcess | LocalProcess) -> bool:
    """Whether `gp_regression` made the process, which then knows its data and their noise."""
    return process.noise is not None


def conditioned_observation(
    process: GaussianProcess | LocalProcess | SeenProcesses, X: Any, noise_variance: Array | None, offset: Array | None
) -> Observation:
    """New data of a process that has its data, with its noise variance or the one given, and their offset."""
    if isinstance(process, SeenProcesses):
        if noise_variance is not None:
            cure = "Leave it out: the noise is that of the likelihood."
            fail("noise_variance", "None of data that ngp.observe sees", "a variance", cure, TypeError)
        if (offset is None) != (process.offset is None):
            got, cure = "None", "Pass that of the new data, offset=, one number for each row."
            got, cure = (got, cure) if offset is None else ("numbers", "Leave it out.")
            fail("offset", f"given where the data {process.name!r} have one, and only there", got, cure)
        f = process.at(X)
        f = f if offset is None else shifted("predict_at", f, offset, process.likelihood)
        return Observation(f, process.likelihood)
    if offset is not None:
        cure = "Leave it out: data of gp_regression have none."
        fail("offset", "None of a gp_regression", "numbers", cure, TypeError)
    if process.noise is None:
        got = f"the gp site {process.name!r}"
        fail("gp", "the data site of a gp_regression", got, "Call predict, with new inputs and no data.", TypeError)
    variance = process.noise if noise_variance is None else noise_variance
    if noise_variance is None and jnp.ndim(variance) and (not process.plates.names or variance.shape[-1] != 1):
        got = f"a variance for each of {variance.shape[-1]} training data"
        cure = "Pass noise_variance=0.1, or one variance for each row."
        fail("noise_variance", "given for the new data", got, cure)
    return Observation(process(X), Gaussian(jnp.sqrt(variance)))


def is_same(value: ArrayLike, seen: Array) -> bool:
    """Whether an argument of the model is one of its observed arrays, in whose precision they are compared."""
    own = np.asarray(seen)
    return np.shape(value) == own.shape and np.array_equal(np.asarray(value).astype(own.dtype), own)
