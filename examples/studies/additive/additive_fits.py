"""Fits of additive models, for the examples: a belief with natural steps, hyper-parameters as points with Adam."""

import time

import jax
import jax.numpy as jnp
import optax
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def fit(model, recipe, X, y, *, steps, batch=None, natural=0.1, adam=0.02, seed=0, progress=False):
    """Fit with natural steps on the belief and Adam elsewhere; guide, parameters and seconds."""
    guide = ngp.AutoGP(model, {"f": recipe})
    schedule = ngp.optim.ramp(natural / 30, natural, max(1, steps // 4))
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(adam), schedule), Trace_ELBO())
    start = time.perf_counter()
    batch = None if batch is None or batch >= len(X) else batch
    key = jax.random.key(seed)
    result = ngp.fit(key, svi, steps, jnp.asarray(X), jnp.asarray(y), batch=batch, progress=progress)
    return guide, result.params, time.perf_counter() - start


def hold(model, guide, params):
    """The model with its hyper-parameters fixed at their fitted points, and these points."""
    values = guide.global_values(jax.random.key(0), params)
    points = {name: value for name, value in values.items() if name != "f"}
    return handlers.condition(model, data=points), points


def show(rows, columns):
    """Print a table and return its lines as comma-separated text."""
    print("  ".join(f"{name:>22s}" for name in columns))
    for row in rows:
        cells = [f"{value:22.4f}" if isinstance(value, float) else f"{value!s:>22s}" for value in row]
        print("  ".join(cells))
    return "\n".join(",".join(map(str, row)) for row in [columns, *rows]) + "\n"
