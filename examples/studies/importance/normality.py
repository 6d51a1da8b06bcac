"""How far from normal are the predictive densities of latent inputs, and where should these go into the model?

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.importance.normality --data DATA
    python -m examples.studies.importance.normality --data DATA --sets forest autompg --ways "LV-GP, added" GP-LV-GP

Salimbeni, Dutordoir et al. (2019), table 3. Fits by VI from the start at the targets, with the paper's 128 inducing
inputs and batches of 512, in fewer steps. The Shapiro-Wilk statistic of 2000 draws at each test row is below one where
they are not normal, and 0.999 for draws that are. Rows have its median over test rows, the share of rows where a test
at 5 % sees it, and the test log density. A latent input is a column (LV-GP), or noise of learnt scale on each
column (added), or stands between two layers (GP-LV-GP). Rows that are there are not made again.
"""

import argparse
import csv
import itertools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

import numpyro_gp as ngp
from examples.studies.importance import deep_models
from examples.studies.tables.printed_tables import SETS as NAMES
from examples.tools.datasets import load, split_mask, standardise
from examples.tools.run_queue import version
from examples.tools.tables import apart, bold, direction, judged, markdown, of_mean, read, save, with_error

SETS = ("forest", "power", "autompg", "solar", "bike", "airfoil", "yacht", "energy", "housing")
WAYS = {"LV-GP": "concatenate", "LV-GP, added": "add", "GP-LV-GP": "concatenate"}
BY_CHANCE = 0.05  # share of rows that a test at 5 % sees where draws are normal
METRICS = {"statistic": 3, "share": 2, "log_density": 2}
TABLE = "seed004_table3_shapiro_wilk.csv"


def shapiro(draws):
    """Of draws ``(S, N)`` of each row: the median statistic, and the share of rows with a p-value below 0.05."""
    found = [stats.shapiro(own) for own in np.asarray(draws).T]
    return float(np.median([own.statistic for own in found])), float(np.mean([own.pvalue < 0.05 for own in found]))


def one(way, data, split, options):
    """Fit a model with a latent input, and look at its predictive draws: its row."""
    inputs, targets, masks = data
    began, test = time.process_time(), split_mask(masks, split)
    X, y = standardise(inputs), standardise(targets[:, None])[:, 0]
    Xt, yt = jnp.asarray(X[~test]), jnp.asarray(y[~test])
    held_out = jnp.asarray(X[test][: options.most]), jnp.asarray(y[test][: options.most])
    own = {"seed": split, "start": 0, "joined": WAYS[way]}
    model, guide = deep_models.build(way.split(",")[0], Xt, options.inducing, **own)
    svi = deep_models.engine(model, guide, adam=optax.exponential_decay(0.005, 1000, 0.98))
    batch = options.batch if options.batch < len(Xt) else None
    result = ngp.fit(jax.random.key(split), svi, options.steps, Xt, yt, batch=batch, progress=False)
    posterior = ngp.Posterior.from_svi(model, guide, result.params)
    prediction = posterior.predict(jax.random.key(1), held_out[0], num_samples=options.draws)
    statistic, share = shapiro(prediction.sample(options.draws))
    density = deep_models.log_density(posterior, prediction, *held_out, num_samples=500).mean()
    row = {"statistic": f"{statistic:.4f}", "share": f"{share:.2f}", "log_density": f"{density:.4f}"}
    row |= {"test_rows": len(held_out[0]), "steps": options.steps}
    return row | {"seconds": f"{time.process_time() - began:.0f}"}


def values(rows, name, way, metric):
    """Of the splits of a set, ``{split: value}``."""
    return {r["split"]: float(r[metric]) for r in rows if (r["set"], r["way"]) == (name, way)}


def more_than_chance(rows, name, way="LV-GP"):
    """Of each split, the share of test rows whose draws a test sees, less what it sees of normal draws."""
    return [share - BY_CHANCE for share in values(rows, name, way, "share").values()]


def printed(folder):
    """The statistics that the paper prints of a set, whatever the model: our copy lost which is of which."""
    found = {}
    for row in csv.DictReader((folder / "published" / TABLE).read_text().splitlines()):
        found.setdefault(NAMES.get(row["dataset"], row["dataset"]), []).append(float(row["value"]))
    return found


def table(rows, folder=None):
    """Markdown: sets against statistic, share of rows not normal, test density, and what the paper prints."""
    own, lines = printed(folder) if folder else {}, []
    for name in dict.fromkeys(row["set"] for row in rows if row["way"] == "LV-GP"):
        cells = {m: with_error(*of_mean([*values(rows, name, "LV-GP", m).values()]), d) for m, d in METRICS.items()}
        cells["share"] = bold(cells["share"], direction(more_than_chance(rows, name)))
        said = f"{min(own[name]):.3f} to {max(own[name]):.3f}" if name in own else ""
        lines.append([f"{name} ({len(values(rows, name, 'LV-GP', 'share'))})", *cells.values(), said])
    return markdown(["set (splits)", "statistic", "rows not normal", "test log density", "statistic, printed"], lines)


def gaps(rows, name, way, metric):
    """A way less LV-GP, paired by split."""
    return [*apart(values(rows, name, way, metric), values(rows, name, "LV-GP", metric)).values()]


def ways_table(rows):
    """Markdown: where the latent input goes, on sets with rows of more than one way, less LV-GP."""
    lines = []
    for name, way in itertools.product(dict.fromkeys(row["set"] for row in rows), list(WAYS)[1:]):
        if values(rows, name, way, "share"):
            lines.append([name, f"{way} - LV-GP", *(judged(gaps(rows, name, way, m), d) for m, d in METRICS.items())])
    return markdown(["set", "difference", "statistic", "rows not normal", "test log density"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["LV-GP"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--inducing", type=int, default=128)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--most", type=int, default=100, help="test rows that are looked at")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.steps, options.inducing, options.draws = ["challenger"], 3, 4, 20
        options.splits, options.ways = 1, list(WAYS)[1:2]
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "normality.csv"
    rows, code = read(path), version()
    for name in options.sets:
        data = load(name, options.data)
        for way, split in itertools.product(options.ways, range(options.splits)):
            place = {"set": name, "way": way, "split": split}
            if not any(place.items() <= row.items() for row in rows):
                rows.append(place | one(way, data, split, options) | {"version": code})
                save(path, rows)
                print(*rows[-1].values(), flush=True)
    print(table(rows), ways_table(rows), sep="\n")


if __name__ == "__main__":
    main()
