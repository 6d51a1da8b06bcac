"""Do gradients of the importance-weighted bound get noisier with more samples? At a fit of each K, on the letters.

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.importance.importance_gradients

A process with a latent input is fitted with K samples, and the gradient of its encoder is drawn many times with as
many, on fixed rows, plain and doubly reparametrised (Salimbeni et al. 2019). Its noise is that of the samples alone.
The ratio is the median over parameters of |mean| / standard deviation; a mean of zero would give 0.67 / sqrt(draws).
Fits by batches end near an optimum, so the mean on some rows does not vanish.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import numpyro_gp as ngp
from examples import dgp_letters
from examples.studies.importance.importance_weighting import fitted, halves, model
from examples.tools.run_queue import version
from examples.tools.tables import markdown, mean_and_error, read, save, with_error

HERE = Path(__file__).parent
SAMPLES = (1, 5, 50)
KINDS = {"plain": False, "doubly reparametrised": True}


def moments(samples, doubly, guide, params, arrays, keywords, *, draws=400, seed=0):
    """Mean and standard deviation of the gradient of the encoder's parameters over draws."""
    objective = ngp.ImportanceWeightedELBO(samples, doubly_reparametrised=doubly)
    encoder, unravel = ravel_pytree({name: value for name, value in params.items() if name.startswith("w/")})

    def loss(encoder, key, params, arrays):
        return objective.loss(key, params | unravel(encoder), model, guide, *arrays, **keywords)

    each = jax.jit(jax.grad(loss))
    keys = jax.random.split(jax.random.key(seed), draws)
    found = np.array([each(encoder, key, params, arrays) for key in keys])
    return found.mean(0), found.std(0, ddof=1)


def table(rows):
    """Markdown: gradients and numbers of samples against signal over noise, and the sizes of both, over splits."""
    metrics = {"ratio": 3, "size_of_mean": 1, "size_of_noise": 1}
    rows = [row | {name: float(row[name]) for name in metrics} for row in rows]
    found = mean_and_error(rows, ("gradient", "samples"), metrics)
    lines = [
        [kind, k, *(with_error(*found[kind, k][name], digits) for name, digits in metrics.items())]
        for kind in KINDS
        for k in dict.fromkeys(row["samples"] for row in rows)
        if (kind, k) in found
    ]
    return markdown(["gradient of the encoder", "K", "signal over noise", "size of the mean", "of the noise"], lines)


def ratio(row, by):
    """Signal over noise of a row: of parameters, their median, or of the sizes of mean and noise."""
    return float(row["ratio"]) if by == "median" else float(row["size_of_mean"]) / float(row["size_of_noise"])


def fall(rows, kind, by, few="1", many="50"):
    """By how much signal over noise falls from few samples to many, paired by split."""
    found = {(row["samples"], row["split"]): ratio(row, by) for row in rows if row["gradient"] == kind}
    splits = [split for samples, split in found if samples == few]
    return [found[few, split] - found[many, split] for split in splits]


def figure(rows, path):
    """Signal over noise against the number of samples: means and errors over splits."""
    import matplotlib.pyplot as plt

    rows = [row | {"ratio": float(row["ratio"])} for row in rows]
    found = mean_and_error(rows, ("gradient", "samples"), ["ratio"])
    drawn, axis = plt.subplots(figsize=(7.0, 3.0), layout="constrained")
    for number, kind in enumerate(KINDS):
        at = [(int(k), *own["ratio"]) for (name, k), own in found.items() if name == kind]
        samples, means, errors = np.array(sorted(at)).T
        axis.errorbar(samples, means, 2 * errors, fmt="os"[number] + "-", capsize=3, label=kind)
    chance = 0.6745 / np.sqrt(float(rows[0]["draws"]))  # the median of |mean| / deviation where the mean is zero
    axis.axhline(chance, color="0.6", lw=0.8)
    axis.text(SAMPLES[0], chance, "a mean of zero", fontsize=8, color="0.4", va="bottom")
    ticks = (0.05, 0.1, 0.2, 0.4)
    axis.set(xscale="log", yscale="log", xlabel="samples K", ylabel="signal over noise", xticks=SAMPLES, yticks=ticks)
    axis.set_xticklabels(SAMPLES)
    axis.set_yticklabels(ticks)
    axis.minorticks_off()
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=256, help="rows of a step, and of the gradients")
    parser.add_argument("--inducing", type=int, default=40)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "data" / "dgp_letters.csv.gz")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.splits, options.steps, options.batch, options.inducing, options.draws = 1, 4, 16, 6, 3
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "importance_gradients.csv"
    rows, code, data = read(path), version(), dgp_letters.load(options.data)
    for split in range(options.splits):
        training, _ = halves(data, split)
        few = np.random.default_rng(split).choice(len(training[0]), options.batch, replace=False)
        arrays = tuple(jnp.asarray(part[few]) for part in training)
        for samples in (2,) if options.smoke else SAMPLES:
            if any((row["samples"], row["split"]) == (str(samples), split) for row in rows):
                continue
            objective = ngp.ImportanceWeightedELBO(samples)
            (guide, params, _, keywords), _ = fitted("LV-GP", objective, split, training, options)
            for kind, doubly in KINDS.items():
                own = {"draws": options.draws, "seed": split}
                mean, scale = moments(samples, doubly, guide, params, arrays, keywords, **own)
                row = {"gradient": kind, "samples": str(samples), "split": split}
                row |= {"ratio": f"{np.median(np.abs(mean) / scale):.4f}"}
                row |= {"size_of_mean": f"{np.linalg.norm(mean):.4f}", "size_of_noise": f"{np.linalg.norm(scale):.4f}"}
                rows.append(row | {"draws": options.draws, "steps": options.steps, "version": code})
                print(*rows[-1].values(), flush=True)
            save(path, rows)
    if not options.smoke:
        print(table(rows))
        figure(rows, options.out / "importance_gradients.png")


if __name__ == "__main__":
    main()
