"""What the starts and schedules of a deep model with latent inputs are worth, one at a time.

    python -m examples.studies.deep.deep_starts --data ../shared/data --steps 4000  # resumes; --smoke for a few seconds

LV-GP-GP of `deep_models` on one split of three sets, importance-weighted bound. The default starts inner
layers near their mean, lets an encoder give the latent inputs, raises the natural step of the last layer from 0.001
to 0.1 over 1000 steps and lets Adam's rate fall by a cosine. Every other row changes one of these. Compared is the
log density of the same test rows: difference to the default, with its standard error over these rows (not over splits
or keys). "flat" is the plateau test of `examples.tools.run_queue`.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import numpyro_gp as ngp
from examples.studies.importance import deep_models
from examples.tools.datasets import load, split_mask, standardise
from examples.tools.run_queue import is_flat, version
from examples.tools.tables import markdown, of_mean, read, save

HERE = Path(__file__).parent
ADAM = 0.005
# What `deep_models.build` and `deep_models.train` are given.
STARTS = {
    "default": ({}, {}),
    "inner layers as wide as their prior": ({"inner": 1.0}, {}),
    "no ramp of the natural step": ({}, {"ramp": 1}),
    "free latent inputs, start 0.1": ({"latent": ngp.guides.free_latent()}, {}),
    "free latent inputs, start 1": ({"latent": ngp.guides.free_latent(scale=1.0)}, {}),
    "noise starts at 0.05 in place of 0.3": ({"noise": 0.05}, {}),
    "constant rate": ({}, {"adam": optax.constant_schedule(ADAM)}),
    "rate halves every quarter": ({}, {"adam": None}),
}


def one(name, start, options):
    """One row: flat or not, bound a row, test log density, and that of each test row as a word."""
    inputs, targets, masks = load(name, options.data)
    X, y, test = standardise(inputs), standardise(targets[:, None])[:, 0], split_mask(masks, 0)
    build, train = STARTS[start]
    if train.get("adam", ADAM) is None:
        train = {"adam": optax.exponential_decay(ADAM, options.steps // 4, 0.5)}
    model, guide = deep_models.build("LV-GP-GP", jnp.asarray(X[~test]), options.inducing, **build)
    settings = {"steps": options.steps, "batch": options.batch, "samples": 5, "adam": ADAM} | train
    found, seconds = deep_models.train(model, guide, X[~test], y[~test], **settings)
    posterior, held_out = ngp.Posterior.from_svi(model, guide, found.params), map(jnp.asarray, (X[test], y[test]))
    densities = deep_models.log_density(posterior, None, *held_out, num_samples=options.draws)
    count = int(np.sum(~test))
    losses = np.asarray(found.losses) / count
    last = found.losses[-max(1, len(losses) // 10) :]
    return {
        "set": name, "start": start, "steps": options.steps, "flat": str(is_flat(losses)),
        "bound": -float(np.mean(last)) / count,
        "log_density": float(densities.mean()),
        "seconds": round(seconds, 1), "version": version(), "rows": " ".join(f"{value:.4f}" for value in densities),
    }  # fmt: skip


def table(rows):
    """Markdown: bound a row and test log density of the default, and what the others add to both."""
    by = {(row["set"], row["start"]): row for row in rows}
    sets, starts = (list(dict.fromkeys(row[key] for row in rows)) for key in ("set", "start"))
    head = ["start", *(f"{name}: {what}" for name in sets for what in ("bound", "test log density"))]
    lines = []
    for start in starts:
        cells = [start]
        for name in sets:
            row, default = by.get((name, start)), by.get((name, "default"))
            if row is None or default is None:
                cells += ["", ""]
                continue
            own, base = (np.array(one["rows"].split(), float) for one in (row, default))
            mean, error = of_mean(own - base)
            star, gain = "" if row["flat"] == "True" else "*", float(row["bound"]) - float(default["bound"])
            if start == "default":
                cells += [f"{float(row['bound']):.3f}{star}", f"{own.mean():.3f}"]
            else:
                cells += [f"{gain:+.3f}{star}", f"{mean:+.3f} ± {error:.3f}"]
        lines.append(cells)
    return markdown(head, lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "data")
    parser.add_argument("--sets", nargs="+", default=["yacht", "housing", "energy"])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--inducing", type=int, default=32)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the rows")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    starts = list(STARTS)
    if options.smoke:
        options.sets, options.steps, options.inducing, options.draws, starts = ["challenger"], 3, 4, 4, starts[:1]
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "deep_starts.csv"
    rows = read(path)
    for name in options.sets:
        for start in starts:
            if not any((row["set"], row["start"], int(row["steps"])) == (name, start, options.steps) for row in rows):
                rows.append(one(name, start, options))
                save(path, rows)
                print(*(f"{key} {value}" for key, value in rows[-1].items() if key != "rows"), flush=True)
    print(table(rows), "\n* not flat: twice the steps may lower the loss by 0.01 nats a row.")


if __name__ == "__main__":
    main()
