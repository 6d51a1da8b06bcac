"""Posteriors of hyper-parameters under NUTS: exact, by neighbours, by both, by inducing points (mathematics.md 16).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.neighbours.neighbours_nuts --data DATA

One model function for 600 rows of kin8nm, six ways to state its data. ``distance`` is that of the posterior means from
those of the exact process, in standard deviations of the latter, on the log scale: their mean over the ten
hyper-parameters, and the largest. Neighbours are found in the lengthscales of a short fit, and the nearest unless they
are chosen of more. Rows that are there are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
import numpyro
import optax
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from examples.tools.datasets import load, split_mask
from examples.tools.run_queue import version
from examples.tools.tables import markdown, read, save

# Neighbours of each, rows that they are chosen from, and inducing inputs; without any it is exact.
WAYS = {
    "exact": (None, None, None),
    "32 neighbours": (32, None, None),
    "32 of 128 neighbours": (32, 128, None),
    "16 of 64 neighbours": (16, 64, None),
    "16 and 50 inducing": (16, None, 50),
    "100 inducing": (None, None, 100),
}


def model(X, y, Z=None):
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(getattr(X, "inputs", X)))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    ngp.gp_regression("y", ngp.kernels.Matern52(variance, lengthscale), X, noise**2, inducing=Z, obs=y)


def some_rows(name, data, size):
    """Rows to fit of the first split, standardised, without columns that are constant there."""
    X, y, splits = load(name, data)
    chosen = np.flatnonzero(~split_mask(splits, 0))
    chosen = np.random.default_rng(0).permutation(chosen)[:size]
    X, y = X[chosen][:, X[chosen].std(axis=0) > 0], y[chosen]
    return [(values - values.mean(axis=0)) / values.std(axis=0) for values in (X, y)]


def found_near(X, y, count, candidates):
    """Neighbours in the lengthscales of a short fit."""
    near = ngp.neighbours(X, count, lengthscale=X.shape[1] ** 0.5, candidates=candidates)
    guide = AutoDelta(model)
    svi = SVI(model, guide, optax.adam(0.05), Trace_ELBO())
    result = ngp.fit(jax.random.key(0), svi, 300, near, y, progress=False)
    return near.rescaled(guide.median(result.params)["lengthscale"])


def sampled(X, y, way, options):
    """Log hyper-parameters at each draw, and seconds of the chain."""
    count, candidates, size = WAYS[way]
    start = time.process_time()
    rows = X if count is None else found_near(X, y, min(count, len(X) - 1), candidates)
    Z = None if size is None else ngp.inducing.kmeans(jax.random.key(0), X, min(size, len(X)))
    mcmc = MCMC(ngp.NUTS(model), num_warmup=options.warmup, num_samples=options.draws, progress_bar=False)
    mcmc.run(jax.random.key(1), rows, y, Z)
    draws = {name: np.asarray(values) for name, values in mcmc.get_samples().items()}
    seconds = time.process_time() - start
    return np.log(np.column_stack([draws["variance"], draws["noise"], draws["lengthscale"]])), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--set", default="kin8nm")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.set, options.rows, options.warmup, options.draws = "yacht", 40, 5, 5
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "neighbours_nuts.csv"
    X, y = some_rows(options.set, options.data, options.rows)
    rows, columns = read(path), ["variance", "noise", *(f"lengthscale_{n}" for n in range(X.shape[1]))]
    for way in WAYS:
        if any(row["way"] == way for row in rows):
            continue
        draws, seconds = sampled(X, y, way, options)
        numbers = {f"{name}_mean": draws[:, n].mean() for n, name in enumerate(columns)}
        numbers |= {f"{name}_sd": draws[:, n].std() for n, name in enumerate(columns)}
        first = rows[0] if rows else {name: str(value) for name, value in numbers.items()}
        mean, sd = (np.array([float(first[f"{name}_{kind}"]) for name in columns]) for kind in ("mean", "sd"))
        away = np.abs(draws.mean(axis=0) - mean) / sd
        about = {"set": options.set, "rows": len(X), "way": way, "draws": options.draws}
        numbers = {"distance": away.mean(), "largest": away.max(), "seconds": seconds, **numbers}
        rows.append(about | {name: f"{value:.4f}" for name, value in numbers.items()} | {"version": version()})
        print(*list(rows[-1].values())[:7], flush=True)
        rows.sort(key=lambda row: [*WAYS].index(row["way"]))
        save(path, rows)
    lines = [[row[name] for name in ("way", "distance", "largest", "seconds")] for row in rows]
    print(markdown(["way", "mean distance, sd", "largest", "seconds"], lines))


if __name__ == "__main__":
    main()
