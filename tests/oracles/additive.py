"""Additive sites from oracle cases: their components store only their own columns, a site has all of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from numpyro_gp.additive import anova
from numpyro_gp.beliefs import AdditiveBasis, BlockDiagonal, BlockLowRank, Coupled, Structured
from numpyro_gp.kernels import Kernel, Uniform, ZeroMean
from numpyro_gp.likelihoods import Gaussian
from tests.oracles.build import build, kernel_of

POSTERIORS = ("structured", "meanfield", "full", "blocklowrank")


def count(case: dict[str, Any]) -> int:
    return len({key.split("/")[0] for key in case if key.startswith("component") and "/" in key and key[9].isdigit()})


def additive_of(
    case: dict[str, Any], zero_mean: bool = False, dtype: Any = jnp.float64
) -> tuple[dict[str, Kernel], dict[str, Any]]:
    """Kernels and inducing inputs by component, embedded in the columns of the data (7.0 elsewhere: never read)."""
    kernels, inducing = {}, {}
    for c in range(count(case)):
        dims = [int(d) for d in case[f"component{c}/dims"]]
        base = kernel_of(case, f"component{c}/", dtype)
        own = np.asarray(case[f"component{c}/Z"])
        points = np.full((len(own), case["Xs"].shape[1]), 7.0)
        points[:, dims] = own
        kernels[f"c{c}"] = (ZeroMean(base, Uniform(0.0, 1.0)) if zero_mean else base).on(dims)
        inducing[f"c{c}"] = jnp.asarray(points, dtype)
    return kernels, inducing


def additive_basis_of(
    case: dict[str, Any], jitter: float = 0.0, dtype: Any = jnp.float64, **options: Any
) -> AdditiveBasis:
    """The stacked basis, without jitter unless asked for."""
    return build(AdditiveBasis.build)(*additive_of(case, dtype=dtype, **options), jitter)


def belief_of(case: dict[str, Any], tag: str, dtype: Any = jnp.float64) -> Any:
    """The belief that a block of results belongs to."""
    mean = jnp.asarray(case["m"], dtype)
    blocks = {name: {} for name in ("S_chol", "precision_chol")}
    for name, found in blocks.items():
        for c in range(count(case)):
            if f"component{c}/{name}" in case:
                found[f"c{c}"] = jnp.asarray(case[f"component{c}/{name}"], dtype)
    W = jnp.asarray(case["W"], dtype)
    if tag == "structured":
        return Structured(mean, W)
    if tag == "meanfield":
        return BlockDiagonal(mean, blocks["S_chol"])
    if tag == "blocklowrank":
        return BlockLowRank(mean, blocks["precision_chol"], W)
    return Coupled(mean, jnp.asarray(case["S_chol_full"], dtype))


def design_posterior(draws=3):
    """Points as posterior draws of a design with a category and an interaction."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(10, 30, 40), rng.choice([2.0, 5.0], 40), rng.normal(size=40)], 1)
    layout = anova.design(
        X, names=["age", "sex", "dose"], categorical=["sex"], pairs=[("age", "dose"), ("age", "sex")],
        num_inducing=4, pair_inducing=3,
    )  # fmt: skip
    model = layout.model(lambda: Gaussian(0.1))
    keys = jax.random.split(jax.random.key(0), draws)
    trace = jax.jit(jax.vmap(lambda key: _latents(model, X, key)))(keys)
    return X, layout, model, trace


def _latents(model, X, key):
    with handlers.seed(rng_seed=key):
        trace = handlers.trace(model).get_trace(X)
    return {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and n != "y"}
