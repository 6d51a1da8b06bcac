"""Test density of deep models against seconds: coupled, decoupled and orthogonal layers (Havasi et al. 2018).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.deep.decoupled_seconds --data DATA

The paper's sizes: hidden layers of width 10, all training rows in a step (10 000 at most), Adam at 0.01, a fifth of the
rows for testing, 200 points beside 500 for the mean and 100 for the covariance. "orthogonal" has the same points as
"decoupled", in the basis of Salimbeni et al. 2018, and natural steps in the last layer. All in single precision.
Programs are compiled first, then steps of all fits alternate in one process until each has had its seconds of the
processor, so that a busy machine slows them alike. Test log densities, in raw units, at a fifth, two fifths ... of the
time. With `--epochs` each fit makes as many passes over the data as the paper instead, and its rows go to a table of
their own, `decoupled_epochs.csv`. Rows that are there are not made again.
"""

import argparse
from pathlib import Path

import jax
import numpy as np

from examples.studies.deep import decoupled_deep
from examples.studies.orthogonal import equal_seconds
from examples.tools.datasets import load
from examples.tools.run_queue import version
from examples.tools.tables import judged, markdown, of_mean, read, save, with_error

METHODS = ("decoupled", "coupled", "orthogonal")
FIRST = METHODS[0]
SIZES = {"coupled": 200, "mean": 500, "covariance": 100, "width": 10, "draws": 50, "rate": 0.01}


def fifths(rows, splits):
    """Masks ``(rows, splits)`` that hold a fifth of the rows out, drawn anew for each split."""
    masks = np.zeros((rows, splits), bool)
    for split in range(splits):
        masks[np.random.default_rng(split).permutation(rows)[: rows // 5], split] = True
    return masks


def at_mark(rows, mark):
    """Rows of a mark, test log densities as numbers."""
    return [row | {"log_density": float(row["log_density"])} for row in rows if int(row["mark"]) == mark]


def apart(rows, name, method, mark):
    """By how much decoupled layers are above others at a mark, over splits of a set."""
    return equal_seconds.ahead(at_mark(rows, mark), name, method, FIRST)


def table(rows, data_set=None):
    """Markdown: layers against seconds, test log density; then what decoupled layers are ahead, paired by split."""
    rows = [row for row in rows if data_set in (None, row["set"].split(",")[0])]
    marks = range(1, equal_seconds.MARKS + 1)
    mean = lambda own, what: np.mean([float(row[what]) for row in own])  # noqa: E731
    heads = [f"{mean(at_mark(rows, mark), 'seconds'):.0f} s" for mark in marks]
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        for method in METHODS:
            own = [row for row in rows if (row["set"], row["method"]) == (name, method)]
            cells = [with_error(*of_mean([row["log_density"] for row in at_mark(own, mark)])) for mark in marks]
            lines.append([f"{method}, {mean(at_mark(own, marks[-1]), 'steps'):.0f} steps", *cells])
        for method in METHODS[1:]:
            cells = [judged(apart(rows, name, method, mark)) for mark in marks]
            lines.append([f"{FIRST} less {method}", *cells])
    return markdown(["layers", *heads], lines)


def by_epochs(rows):
    """Markdown: layers against passes over the data, test log density, and RMSE after all; then their difference."""
    marks = range(1, equal_seconds.MARKS + 1, 2)  # pages have six columns at most
    heads = [f"{at_mark(rows, mark)[0]['steps']} epochs" for mark in marks]
    ways, lines = list(dict.fromkeys(row["method"] for row in rows)), []
    for method in ways:
        own = [row for row in rows if row["method"] == method]
        cells = [with_error(*of_mean([row["log_density"] for row in at_mark(own, mark)])) for mark in marks]
        rmse = of_mean([float(row["rmse"]) for row in at_mark(own, marks[-1])])
        lines.append([method, *cells, with_error(*rmse, 4)])
    name = rows[0]["set"]
    gaps = [judged(apart(rows, name, "coupled", mark)) for mark in marks]
    return markdown(["layers", *heads, "RMSE"], [*lines, [f"{FIRST} less coupled", *gaps, ""]])


def figure(rows, path):
    """Test log density against seconds, each split a line."""
    equal_seconds.figure(rows, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--sets", nargs="+", default=["kin8nm"])
    parser.add_argument("--hidden", type=int, default=1, help="hidden layers")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600.0, help="of the processor, for each fit")
    parser.add_argument("--epochs", type=int, help="passes over the data for each fit, in place of seconds")
    parser.add_argument("--piece", type=int, default=20, help="steps between two looks at the clock")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    sizes = SIZES
    if options.smoke:
        options.sets, options.splits, options.seconds, options.piece = ["yacht"], 1, 0.01, 2
        sizes = {"coupled": 6, "mean": 9, "covariance": 4, "width": 3, "draws": 3, "rate": 0.01}
    jax.config.update("jax_enable_x64", False)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / ("decoupled_epochs.csv" if options.epochs else "decoupled_seconds.csv")
    rows, code = read(path), version()
    for data_set in options.sets:
        name = f"{data_set}, hidden layers: {options.hidden}"
        X, y, _ = load(data_set, options.data)
        data, arguments = (X, y, fifths(len(X), options.splits)), argparse.Namespace(batch=options.batch, **sizes)
        for split in range(options.splits):
            if any((row["set"], row["split"]) == (name, split) for row in rows):
                continue
            ways = METHODS[:2] if options.epochs else METHODS  # the paper's own
            problems = {way: decoupled_deep.problem(way, options.hidden, data, split, arguments) for way in ways}
            fits = [equal_seconds.Fit(way, own, options.piece) for way, own in problems.items()]
            limit, by = options.seconds, "seconds"
            if options.epochs:
                count = fits[0].rows
                limit, by = -(-options.epochs * count // min(options.batch, count)), "steps"
            rows += equal_seconds.race(fits, limit, name, split, code, by)
            save(path, rows)
    if options.epochs:
        print(by_epochs(rows))
    elif not options.smoke:
        print(table(rows))
        figure(rows, options.out / "decoupled_seconds.png")


if __name__ == "__main__":
    main()
