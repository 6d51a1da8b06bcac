"""Two larger coupled bases beside the orthogonal ones, by the same code (Salimbeni, Cheng et al. 2018).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.orthogonal.larger_bases --data DATA

Coupled and CoupledNat of 400 points, Orth and OrthNat of 300 points and 700 more for the mean: the model and rates of
`long_runs`, in single precision, as many steps for each, on smaller batches. Test log density, mean absolute error
and RMSE in standardised units, and the bound per row over the last tenth of the steps. Rows that are there are not made
again.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np

import numpyro_gp as ngp
from examples.studies.orthogonal import decoupled_comparison, equal_seconds
from examples.tools.datasets import split_mask
from examples.tools.run_queue import version
from examples.tools.tables import judged, markdown, mean_and_error, of_mean, read, save, with_error

METHODS = {
    "Coupled(400)": ("Coupled", 400),
    "CoupledNat(400)": ("CoupledNat", 400),
    "Orth": ("Orth", 300),
    "OrthNat": ("OrthNat", 300),
}
SETS = ("kin40k", "protein", "bike", "keggdirected")
PAIRS = (("OrthNat", "CoupledNat(400)"), ("Orth", "Coupled(400)"), ("OrthNat", "Orth"))


def one(method, data, split, options):
    """Fit one basis on a split and score it: its row."""
    own, began = equal_seconds.problem(*METHODS[method], data, options, split), time.process_time()
    fit = ngp.fit(own.key, own.svi, options.steps, *own.arguments, **own.keywords, progress=False)
    seconds, losses = time.process_time() - began, np.asarray(fit.losses)
    scores = own.score(fit.params)
    row = {"log_density": scores["log_density"], "mae": scores["error"], "rmse": scores["rmse"]}
    row["bound"] = -losses[-max(1, len(losses) // 10) :].mean() / len(own.arguments[0])
    shown = {key: f"{value:.4f}" for key, value in row.items()}
    return shown | {"steps": options.steps, "batch": options.batch, "seconds": f"{seconds:.1f}"}


def values(rows, name, method, key="log_density"):
    """A score of one basis on each split of a set."""
    return {row["split"]: float(row[key]) for row in rows if (row["set"], row["method"]) == (name, method)}


def ranks(rows):
    """Mean rank ``{basis: one of each set}`` of the log density over splits; 1 is the best."""
    found = {method: [] for method in METHODS}
    for name in dict.fromkeys(row["set"] for row in rows):
        scores = [values(rows, name, method) for method in METHODS]
        table = np.array([[own[split] for own in scores] for split in scores[0]])
        for method, rank in zip(METHODS, decoupled_comparison.rankdata(-table).mean(0), strict=True):
            found[method].append(rank)
    return found


def table(rows):
    """Markdown: bases against sets, test log density and mean rank; then differences, paired by split."""
    sets, order = list(dict.fromkeys(row["set"] for row in rows)), ranks(rows)
    scores = [row | {"log_density": float(row["log_density"])} for row in rows]
    found = mean_and_error(scores, ("method", "set"), ("log_density",))
    lines = [
        [method, *(with_error(*found[method, name]["log_density"]) for name in sets), with_error(*of_mean(own), 2)]
        for method, own in order.items()
    ]
    lines += [
        [f"{first} - {second}", *(judged(equal_seconds.ahead(rows, name, second, first)) for name in sets), ""]
        for first, second in PAIRS
    ]
    return markdown(["test log density", *sets, "mean rank"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--shrink", type=int, default=1, help="divide all numbers of points by this")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.splits, options.steps, options.batch, options.shrink = ["yacht"], 2, 6, 32, 50
    jax.config.update("jax_enable_x64", False)
    options.out.mkdir(parents=True, exist_ok=True)
    path, code = options.out / "larger_bases.csv", version()
    rows = read(path)
    for split in range(options.splits):
        for name in options.sets:
            X, y, masks, classes = decoupled_comparison.prepare(name, options.data)
            for method in METHODS:
                place = {"set": name, "split": split, "method": method}
                if any(place.items() <= row.items() for row in rows):
                    continue
                rows.append(place | one(method, (X, y, split_mask(masks, split), classes), split, options))
                rows[-1]["version"] = code
                save(path, rows)
                print(*rows[-1].values(), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
