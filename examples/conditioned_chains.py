"""NUTS on latent processes: the model itself, with a dense mass matrix, and in the coordinates of a fit.

    python -m examples.conditioned_chains    # rows that are there are not made again; name cases to choose some

The five models of ``examples/hyperparameters.py``. Rows have leapfrog steps per draw, divergences, the least effective
sample size of the hyper-parameters, that size per second with warm-up (and with the fit, for the coordinates), and
mean and standard deviation of each hyper-parameter. The plain rows of the counts are not run: 400 draws were not done
in twenty minutes when they were tried.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
import optax
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.hyperparameters import CASES
from examples.tables import read, save

WAYS = ("plain", "dense mass", "conditioned")


def run(make, way, options):
    """One row."""
    model, data, sites = make(np.random.default_rng(0), 60 if options.smoke else CASES[make])
    start = time.perf_counter()
    target, kernel_options = model, {}
    if way == "conditioned":
        guide = ngp.AutoGP(model, dict.fromkeys(sites, ngp.guides.conditional()))
        svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.02), 0.3), Trace_ELBO())
        params = ngp.fit(jax.random.key(0), svi, options.steps, *data, progress=False).params
        target = ngp.conditioned(model, guide, params, *data)
    elif way == "dense mass":
        kernel_options["dense_mass"] = True
    mcmc = MCMC(
        ngp.NUTS(target, **kernel_options),
        num_warmup=options.warmup, num_samples=options.draws, progress_bar=options.progress,
    )  # fmt: skip
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


def main():
    """Make the rows that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=[make.__name__ for make in CASES])
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.warmup, options.draws = 20, 5, 8
    jax.config.update("jax_enable_x64", True)
    path = options.out / "conditioned_chains.csv"
    rows = read(path)
    for make in list(CASES)[: 1 if options.smoke else None]:
        for way in options.ways:
            done = any(row["model"] == make.__name__ and row["way"] == way for row in rows)
            if done or make.__name__ not in options.cases or (make.__name__ == "counts" and way != "conditioned"):
                continue
            rows.append(run(make, way, options))
            save(path, rows)
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
