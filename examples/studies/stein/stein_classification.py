"""Stein variational GP classification: particles over whitened values and hyper-parameters, beside VI and NUTS.

    python -m examples.studies.stein.stein_classification                               # two small sets, some minutes
    python -m examples.studies.stein.stein_classification --data ../shared/data --sets blood hepatitis spectf

One model for the three engines: a GP at inducing inputs (at the training inputs where there are at most ``--inducing``
of them) with a Bernoulli likelihood. The hyper-parameters have a Stein kernel, in which the many whitened values would
drown them, and each whitened value one of its own, as twenty particles would collapse in their common distance.
"stein.auto" is `ngp.stein.auto`, which chooses all that itself. Rows that are there are not made again.
"""

import argparse
import itertools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.studies.stein.stein_regression import leading
from examples.tools import datasets
from examples.tools.run_queue import version
from examples.tools.tables import mean_and_error, of_mean, read, save

matplotlib.use("Agg")
PAPER_SETS = "blood breast-cancer fertility hepatitis mammographic spectf"


def model(X, y=None, Z=None):
    """Bernoulli data with a Matern-3/2 process."""
    lengthscale = numpyro.sample("lengthscale", dist.Gamma(3.0, 1.0))
    variance = numpyro.sample("variance", dist.Gamma(2.0, 1.0))
    offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern32(variance, lengthscale), Z, mean=offset)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Bernoulli(), obs=y)


def stein(key, particles, steps, X, y, Z):
    kernel = ngp.stein.Groups([["lengthscale", "variance", "offset"]], rest=ngp.stein.RBF(per_coordinate=True))
    svgd = ngp.stein.SVGD(model, optax.adam(0.05), kernel, particles)
    return ngp.Posterior.from_stein(model, svgd, ngp.fit(key, svgd, steps, X, y, Z, progress=False).params)


def stein_auto(key, particles, X, y, Z):
    svgd, result = ngp.stein.auto(key, model, X, y, Z, num_particles=particles)
    return ngp.Posterior.from_stein(model, svgd, result.params)


def variational(key, steps, X, y, Z):
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.05), 0.5), Trace_ELBO())
    return ngp.Posterior.from_svi(model, guide, ngp.fit(key, svi, steps, X, y, Z, progress=False).params)


def nuts(key, warmup, X, y, Z):
    mcmc = MCMC(NUTS(model), num_warmup=warmup, num_samples=warmup, progress_bar=False)
    mcmc.run(key, X, y, Z)
    return ngp.Posterior.from_mcmc(model, mcmc)


def one_split(name, split, options, known):
    """Rows of results, one for each engine that has none among ``known``, as they come."""
    folder = Path(options.data) / "classification"  # fertility is also a regression set
    X, y, masks = datasets.load(name, folder if folder.is_dir() else options.data)
    X, test = datasets.standardise(X), datasets.split_mask(masks, split)
    X = X[:, X.std(0) > 0]
    X, X_test, y, y_test = (jnp.asarray(part) for part in (X[~test], X[test], y[~test] * 1.0, y[test] * 1.0))
    key, labels = jax.random.key(split), y_test.astype(int)
    Z = X if X.shape[0] <= options.inducing else ngp.inducing.kmeans(key, X, options.inducing)
    engines = {f"stein, {n} particles": (lambda n=n: stein(key, n, options.steps, X, y, Z)) for n in options.particles}
    count = max(options.particles)
    engines[f"stein.auto, {count} particles"] = lambda: stein_auto(key, count, X, y, Z)
    engines["variational"] = lambda: variational(key, options.steps, X, y, Z)
    engines["NUTS"] = lambda: nuts(key, options.warmup, X, y, Z)
    for engine, run in engines.items():
        if (name, split, engine) in known:
            continue
        start = time.process_time()
        posterior = run()
        prediction = posterior.predict(key, X_test, Z=Z)
        seconds = time.process_time() - start
        yield {
            "dataset": name, "rows": len(test), "split": split, "engine": engine,
            "accuracy": float(ngp.metrics.accuracy(prediction.mean, labels).value),
            "log_density": float(prediction.log_density(y_test).mean()),
            "calibration_error": float(ngp.metrics.expected_calibration_error(prediction.mean, labels)),
            "seconds": round(seconds, 2), "version": version(),
        }  # fmt: skip


METRICS = ("accuracy", "log_density", "calibration_error", "seconds")


def figure(table, path):
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for name, _ in table))
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    marks = dict(zip(dict.fromkeys(engine for _, engine in table), itertools.cycle("osD^v*"), strict=False))
    cycle = itertools.cycle(["#56B4E9", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"])
    colours = dict(zip(marks, cycle, strict=False))
    for ax, metric in zip(axes, METRICS[1:3], strict=True):
        for (name, engine), cells in table.items():
            mean, error = cells[metric]
            place = names.index(name) + 0.12 * (list(marks).index(engine) - len(marks) / 2)
            label = engine if name == names[0] else None
            bar = 0 if np.isnan(error) else error
            ax.errorbar(place, mean, yerr=bar, fmt=marks[engine], color=colours[engine], label=label)
        ax.set_xticks(range(len(names)), names, rotation=20, ha="right")
        ax.set_ylabel(metric.replace("_", " "))
    axes[0].set_title("test log density (nats), higher is better")
    axes[1].set_title("calibration error, lower is better")
    axes[1].legend(fontsize=8)
    fig.savefig(path, dpi=120)
    plt.close(fig)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(datasets.HERE), help="folder of data sets (../shared/data has all)")
    parser.add_argument("--sets", nargs="+", default=["fertility", "blood"], help=f"any of {PAPER_SETS}")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warmup", type=int, default=300, help="NUTS warm-up steps, and as many draws")
    parser.add_argument("--particles", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--inducing", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "output")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.splits, options.steps, options.warmup, options.inducing = ["fertility"], 1, 20, 10, 10
        options.particles = [5]
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "stein_classification.csv"
    rows = read(path, METRICS)
    known = {(row["dataset"], row["split"], row["engine"]) for row in rows}
    for name in options.sets:
        for split in range(options.splits):
            for row in one_split(name, split, options, known):
                rows.append(row)
                save(path, rows)
            print(f"{name}, split {split + 1} of {options.splits} done", flush=True)
    table, most = mean_and_error(rows, ("dataset", "engine"), METRICS), leading(rows, "engine")
    print(f"{'data set':14s} {'engine':20s}" + "".join(f"{metric:>24s}" for metric in METRICS))
    for (name, engine), cells in table.items():
        print(f"{name:14s} {engine:20s}" + "".join(f"{m:14.3f} +- {e:6.3f}" for m, e in cells.values()))
    figure(table, options.out / "stein_classification.png")
    print("\nParticles minus NUTS, paired by split:")
    found = {(row["dataset"], row["split"], row["engine"]): row for row in rows}
    for name in options.sets:
        text = f"{name:14s} "
        for metric in METRICS:
            pairs = [(name, split) for split in range(options.splits)]
            ours, theirs = ([found[*pair, engine][metric] for pair in pairs] for engine in (most, "NUTS"))
            gap, error = of_mean(np.subtract(ours, theirs))
            text += f"{metric.replace('_', ' ')} {gap:+.3f} +- {error:.3f}   "
        print(text)
    print("Distrust the particles where they and NUTS differ by more than twice the standard errors above.")


if __name__ == "__main__":
    main()
