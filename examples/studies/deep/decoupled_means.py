"""Six ways to hold a decoupled layer, three means by two covariances: which are unstable (Havasi et al. 2018)?

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.deep.decoupled_means --data DATA
    python -m examples.studies.deep.decoupled_means --data DATA --whole  # four fifths of it, at the paper's sizes

500 rows of kin8nm, one hidden layer as wide as the inputs, plain Adam at the paper's rate. "cb" holds mean or
covariance as Cheng and Boots (2017) do, "gp" and "gpcent" are the paper's own; "orthogonal" is a mean that the paper
does not have. Rows have the loss per training row after a third of the steps and at the end, the worst loss of the last
two thirds, and the test log density. Rows that are there are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.datasets import load, standardise
from examples.tools.run_queue import version
from examples.tools.tables import markdown, mean_and_error, read, save, with_error

WAYS = [(mean, covariance) for covariance in ("gp", "cb") for mean in ("gpcent", "gp", "cb")]
WHOLE = 6553  # rows of kin8nm that the paper trains on
METRICS = {
    "loss_early": "loss, a third",
    "loss_end": "loss, end",
    "worst": "worst loss between",
    "log_density": "test log density",
}


def problem(mean, covariance, X, points, few):
    """Model and guide of one hidden layer; ``points`` of the mean and ``few`` of the covariance are rows of ``X``."""
    layers = ngp.deep.stack(
        X, [X.shape[1]], X[:few], mean_inducing=X[few : few + points], mean=mean, covariance=covariance
    )

    def model(X, y=None, batch=None):
        scale = numpyro.sample("scale", dist.LogNormal(jnp.log(0.3), 1.0))
        f = layers()
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
            ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(scale), obs=None if y is None else y[idx])

    return model, ngp.AutoGP(model, layers.recipes)


def summary(losses):
    """Of losses a row: whether all are finite, means of a tenth by a third and at the end, the worst after a third."""
    third, tenth = len(losses) // 3, max(1, len(losses) // 10)
    early, end, worst = losses[third - tenth : third].mean(), losses[-tenth:].mean(), losses[third:].max()
    shown = {"loss_early": early, "loss_end": end, "worst": worst, "start": losses[:tenth].mean()}
    return {"finite": "yes" if np.isfinite(losses).all() else "no"} | {k: f"{v:.4f}" for k, v in shown.items()}


def one(mean, covariance, seed, data, options):
    """Fit one way on rows drawn by the seed, and score it on others: its row."""
    inputs, targets = data
    order, began = np.random.default_rng(seed).permutation(len(inputs)), time.process_time()
    train, test = order[: options.rows], order[options.rows : 3 * options.rows]
    X, y = jnp.asarray(inputs[train]), jnp.asarray(targets[train])
    model, guide = problem(mean, covariance, X, options.mean, options.covariance)
    svi = SVI(model, guide, optax.adam(options.rate), Trace_ELBO())
    row = {"mean": mean, "covariance": covariance, "seed": str(seed)}
    try:
        result = ngp.fit(jax.random.key(seed), svi, options.steps, X, y, batch=options.batch, progress=False)
    except ngp.NonFiniteLoss as error:
        result = error.result
        losses = np.append(np.asarray(result.losses) / len(X), np.nan)
        row |= summary(losses) | {"log_density": "nan"}
    else:
        posterior = ngp.Posterior.from_svi(model, guide, result.params)
        prediction = posterior.predict(jax.random.key(1), jnp.asarray(inputs[test]), num_samples=options.draws)
        density = float(jnp.mean(prediction.log_density(jnp.asarray(targets[test]))))
        row |= summary(np.asarray(result.losses) / len(X)) | {"log_density": f"{density:.4f}"}
    row |= {"rows": options.rows, "steps": options.steps, "rate": options.rate}
    return row | {"seconds": f"{time.process_time() - began:.0f}"}


def trained_on(rows, count):
    """Rows of fits of so many training rows."""
    return [row for row in rows if int(row["rows"]) == count]


def table(rows, count=500):
    """Markdown: ways against how many fits are finite, losses a row and test log density, over seeds."""
    rows = [row | {name: float(row[name]) for name in METRICS} for row in trained_on(rows, count)]
    found = mean_and_error(rows, ("mean", "covariance"), METRICS)
    lines = []
    for way, own in found.items():
        fits = [row["finite"] for row in rows if (row["mean"], row["covariance"]) == way]
        cells = [with_error(*own[name], 2) for name in METRICS]
        lines.append([", ".join(way), f"{fits.count('yes')} of {len(fits)}", *cells])
    return markdown(["mean, covariance", "finite", *METRICS.values()], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=500, help="to train on; twice as many are for testing")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=12000)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--mean", type=int, default=100, help="points of the mean")
    parser.add_argument("--covariance", type=int, default=20, help="points of the covariance")
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--whole", action="store_true", help="6553 rows, 500 + 100 points, in single precision")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.seeds, options.rows, options.batch, options.steps = 1, 40, 20, 12
        options.mean, options.covariance, options.draws = 8, 4, 3
    if options.whole:
        options.rows, options.batch, options.steps = WHOLE, 256, 5000
        options.mean, options.covariance = 500, 100
    jax.config.update("jax_enable_x64", not options.whole)
    options.out.mkdir(parents=True, exist_ok=True)
    X, y, _ = load("yacht" if options.smoke else "kin8nm", options.data)
    data, path = (standardise(X), standardise(y[:, None])[:, 0]), options.out / "decoupled_means.csv"
    rows, code = read(path), version()
    for seed in range(options.seeds):
        for way in WAYS[-2:] if options.smoke else WAYS:
            done = trained_on(rows, options.rows)
            if any((row["mean"], row["covariance"], row["seed"]) == (*way, str(seed)) for row in done):
                continue
            rows.append(one(*way, seed, data, options) | {"version": code})
            save(path, rows)
            print(*rows[-1].values(), flush=True)
    print(table(rows, options.rows))


if __name__ == "__main__":
    main()
