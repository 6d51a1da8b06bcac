"""Two layers by importance weights from where the variational fit ended: do weights gain once they have arrived?

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.importance.weights_from_fit --data DATA

In `latent_scores` two layers on airfoil, trained by importance weights from their first values, ended below the fit by
the variational bound (VI) in both bounds, which no optimum does. Here that fit, at the paper's 128 inducing inputs and
batches of 512, goes on by VI and by K importance samples (IW), with the same steps, rates and random key. Rows have the
test log density, and the valid bounds of K = 1 and of K samples on all training rows. Rows that are there are not made
again, but the first fit of a split is made again where only a part of its rows is there.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import numpyro_gp as ngp
from examples.studies.importance import deep_models
from examples.tools.datasets import load, split_mask, standardise
from examples.tools.run_queue import version
from examples.tools.tables import apart, judged, markdown, mean_and_error, read, save, with_error

WAYS = {"first": "VI", "VI": "VI, then VI", "IW": "VI, then IW"}
METRICS = {"log_density": "test log density", "bound_1": "bound, K = 1", "bound_5": "bound, K = 5"}
PAIRS = (("VI", "first"), ("IW", "first"), ("IW", "VI"))


def model_of(split, data, options):
    """Model and guide of ``LV-GP-GP``, as `latent_scores` makes them, and its rows: training, and held out."""
    inputs, targets, masks = data
    test, X, y = split_mask(masks, split), standardise(inputs), standardise(targets[:, None])[:, 0]
    training, held_out = ((jnp.asarray(X[rows]), jnp.asarray(y[rows])) for rows in (~test, test))
    carried = {"carry_latent": True, "mixing": deep_models.INNER_WIDTH, "start": 0}
    return *deep_models.build("LV-GP-GP", training[0], options.inducing, seed=split, **carried), training, held_out


def fitted(way, model, guide, training, split, options, start=None):
    """Parameters after the steps of a way, from those of ``start`` on, and CPU seconds."""
    began, steps = time.process_time(), options.steps if start is None else options.more
    rate = optax.exponential_decay(0.005, 1000, 0.98) if start is None else optax.cosine_decay_schedule(0.002, steps)
    svi = deep_models.engine(model, guide, samples=options.samples if way == "IW" else 1, adam=rate)
    batch = options.batch if options.batch < len(training[0]) else None
    own = {"batch": batch, "progress": False, "init_params": start}
    result = ngp.fit(jax.random.key(split + 100 * (start is not None)), svi, steps, *training, **own)
    return result.params, time.process_time() - began


def scored(params, model, guide, training, held_out, options):
    """Test log density, and both bounds per training row."""
    posterior, (X, y) = ngp.Posterior.from_svi(model, guide, params), held_out
    found = {"log_density": deep_models.log_density(posterior, None, X, y, num_samples=options.draws).mean()}
    for samples in (1, options.samples):
        loss = ngp.ImportanceWeightedELBO(samples).loss
        draw = jax.jit(lambda key, params, loss=loss: loss(key, params, model, guide, *training))
        losses = [float(draw(key, params)) for key in jax.random.split(jax.random.key(2), options.bounds)]
        found[f"bound_{samples}"] = -np.mean(losses) / len(training[0])
    return {key: f"{value:.4f}" for key, value in found.items()}


def differences(rows, metric="log_density", name="airfoil"):
    """Of test log density or a bound, ``{(first, second): [difference of a split]}``."""
    found = {way: {r["split"]: float(r[metric]) for r in rows if (r["set"], r["way"]) == (name, way)} for way in WAYS}
    return {(first, second): [*apart(found[first], found[second]).values()] for first, second in PAIRS}


def table(rows):
    """Markdown: ways against test log density and valid bounds, mean and error over splits."""
    rows = [row | {name: float(row[name]) for name in METRICS} for row in rows]
    found = mean_and_error(rows, ("set", "way"), METRICS)
    lines = [[name, WAYS[way], *(with_error(*own[metric]) for metric in METRICS)] for (name, way), own in found.items()]
    return markdown(["set", "trained by", *METRICS.values()], lines)


def pairs(rows):
    """Markdown: `differences` of all three numbers."""
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        found = {metric: differences(rows, metric, name) for metric in METRICS}
        for first, second in PAIRS:
            cells = [judged(own[first, second]) for own in found.values()]
            lines.append([name, f"{WAYS[first]} - {WAYS[second]}", *cells])
    return markdown(["set", "difference", *METRICS.values()], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--sets", nargs="+", default=["airfoil"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000, help="of the first fit, by VI")
    parser.add_argument("--more", type=int, default=3_000, help="of either way after it")
    parser.add_argument("--inducing", type=int, default=128)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--samples", type=int, default=5, help="importance samples of IW")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--bounds", type=int, default=20, help="draws of a bound on all rows")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.splits, options.steps, options.more = ["challenger"], 1, 4, 3
        options.inducing, options.draws, options.bounds = 4, 5, 1
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "weights_from_fit.csv"
    rows, code = read(path), version()
    for name in options.sets:
        data = load(name, options.data)
        for split in range(options.splits):
            known = {row["way"] for row in rows if (row["set"], row["split"]) == (name, split)}
            if known == set(WAYS):
                continue
            model, guide, training, held_out = model_of(split, data, options)
            start = None
            for way in WAYS:
                params, seconds = fitted(way, model, guide, training, split, options, start)
                start = params if way == "first" else start
                if way not in known:
                    row = {"set": name, "split": split, "way": way}
                    row |= scored(params, model, guide, training, held_out, options)
                    row |= {"steps": options.steps + (way != "first") * options.more, "seconds": f"{seconds:.0f}"}
                    rows.append(row | {"version": code})
                    save(path, rows)
                    print(*rows[-1].values(), flush=True)
    print(table(rows), pairs(rows), sep="\n")


if __name__ == "__main__":
    main()
