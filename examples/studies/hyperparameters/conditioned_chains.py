"""NUTS on latent processes: the model itself, with a dense mass matrix, and in the coordinates of a fit.

    # rows that are there are not made again; name cases to choose some
    python -m examples.studies.hyperparameters.conditioned_chains

"NumPyro's" is NumPyro's own ``NUTS`` at its own start on the model itself; the other chains are of `ngp.NUTS`.

The five models of ``hyperparameters.py``, and steep labels on a line, which say much about the function: for
these 200 draws follow 200 of warm-up in trees of at most 255 steps, so that plain chains end. Rows have leapfrog steps
per draw, divergences, the least effective sample size of the hyper-parameters, that size per second with warm-up (and
with the fit, for the coordinates), and mean and standard deviation of each hyper-parameter. The plain rows of the
counts are not run: 400 draws were not done in twenty minutes when they were tried. ``--check`` runs two long chains,
plain and conditioned, on the labels and on the outputs, and compares their draws of hyper-parameters and of the
function at 20 inputs (Kolmogorov-Smirnov).
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from scipy.stats import ks_2samp

import numpyro_gp as ngp
from examples.studies.hyperparameters.hyperparameters import (
    CASES,
    Matern,
    classification,
    data_plate,
    outputs,
    positive,
)
from examples.tools.tables import read, save


def steep(rng, rows):
    """Labels that follow a steep function on a line, 40 inducing inputs."""
    X = jnp.asarray(np.sort(rng.uniform(-1, 1, (rows, 1)), 0))
    y = jnp.asarray((rng.uniform(size=rows) < 1 / (1 + np.exp(-6 * np.sin(8 * X[:, 0])))).astype(float))
    Z = jnp.linspace(-1, 1, 40)[:, None]

    def model(X, y):
        f = ngp.gp("f", Matern(positive("variance", 0.0, 2.0), positive("lengthscale")), Z)
        with data_plate(X):
            ngp.observe("y", f(X), ngp.likelihoods.Bernoulli(), obs=y)

    return model, (X, y), ["f"]


ALL = CASES | {steep: 300}
WAYS = ("plain", "NumPyro's", "dense mass", "conditioned")


def coordinates(case, steps):
    """The model in those of a fit."""
    model, data, sites = case
    guide = ngp.AutoGP(model, dict.fromkeys(sites, ngp.guides.conditional()))
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.02), 0.3), Trace_ELBO())
    params = ngp.fit(jax.random.key(0), svi, steps, *data, progress=False).params
    return ngp.conditioned(model, guide, params, *data)


def case_of(make, options):
    """A model, its data, and the names of its processes."""
    return make(np.random.default_rng(0), 60 if options.smoke else ALL[make])


def run(make, way, options):
    """One row."""
    case = case_of(make, options)
    (target, data, _), kernel_options = case, {}
    start = time.perf_counter()
    if way == "conditioned":
        target = coordinates(case, options.steps)
    elif way == "dense mass":
        kernel_options["dense_mass"] = True
    sampler = NUTS if way == "NumPyro's" else ngp.NUTS
    warmup, draws = options.warmup, options.draws
    if make is steep:
        warmup, draws, kernel_options["max_tree_depth"] = min(200, warmup), min(200, draws), 8
    sizes = {"num_warmup": warmup, "num_samples": draws, "progress_bar": options.progress}
    mcmc = MCMC(sampler(target, **kernel_options), **sizes)
    mcmc.run(jax.random.key(0), *data, extra_fields=("num_steps", "diverging"))
    seconds = time.perf_counter() - start
    draws = {name: np.asarray(x) for name, x in mcmc.get_samples().items() if x.ndim == 1}
    fields = mcmc.get_extra_fields()
    least = min(float(effective_sample_size(x[None])) for x in draws.values())
    moments = " ".join(f"{name} {x.mean():.3f} ± {x.std():.3f}" for name, x in sorted(draws.items()))
    return {
        "model": make.__name__, "way": way, "leapfrogs": f"{np.mean(fields['num_steps']):.1f}",
        "divergences": int(np.sum(fields["diverging"])), "least_ess": round(least),
        "ess_per_1000_gradients": f"{1000 * least / np.sum(fields['num_steps']):.1f}",
        "ess_per_second": f"{least / seconds:.2f}", "seconds": f"{seconds:.1f}", "moments": moments,
    }  # fmt: skip


def check(make, options):
    """The least p-value of the two chains being one posterior, over hyper-parameters and values at 20 inputs."""
    case = case_of(make, options)
    model, data, _ = case
    found, places = [], data[0][:: max(1, len(data[0]) // 20)][:20]
    for target in (model, coordinates(case, options.steps)):
        sizes = {"num_warmup": options.warmup, "num_samples": 10 * options.draws, "thinning": 10}
        mcmc = MCMC(ngp.NUTS(target), **sizes, progress_bar=options.progress)
        mcmc.run(jax.random.key(len(found)), *data)
        draws = {name: np.asarray(x) for name, x in mcmc.get_samples().items() if x.ndim == 1}
        functions = ngp.Posterior.from_mcmc(target, mcmc).function_draws(jax.random.key(2), places, *data)
        values = np.moveaxis(np.asarray(functions), 0, -1).reshape(-1, len(functions))
        found.append(draws | {f"f at input {i}": own for i, own in enumerate(values)})
    p_values = {name: ks_2samp(found[0][name], found[1][name]).pvalue for name in found[0]}
    least = min(p_values, key=p_values.get)
    sizes = {"draws": options.draws, "compared": len(p_values)}
    return {"model": make.__name__, **sizes, "least_p_value": f"{p_values[least]:.3g}", "of": least}


def main():
    """Make the rows that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=[make.__name__ for make in ALL])
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--check", action="store_true", help="two long chains, in place of the rows")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.warmup, options.draws = 20, 5, 8
    jax.config.update("jax_enable_x64", True)
    if options.check:
        rows = []
        for make in (classification, outputs):
            rows.append(check(make, options))
            save(options.out / "conditioned_check.csv", rows)
            print(rows[-1], flush=True)
        return
    path = options.out / "conditioned_chains.csv"
    rows = read(path)
    for make in list(ALL)[: 1 if options.smoke else None]:
        for way in options.ways:
            done = any(row["model"] == make.__name__ and row["way"] == way for row in rows)
            if done or make.__name__ not in options.cases or (make.__name__ == "counts" and way != "conditioned"):
                continue
            rows.append(run(make, way, options))
            save(path, rows)
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
