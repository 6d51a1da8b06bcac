"""Orthogonal points beside a larger coupled basis, in equal seconds (Salimbeni, Cheng et al. 2018).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.orthogonal.equal_seconds --data DATA

Natural steps on 300 points and 700 more for the mean, beside 400 points without more: the model, batches and rates of
`long_runs`, in single precision. Programs are compiled first, then pieces of both fits alternate in one
process until each has had its seconds of the processor, so that a busy machine slows both alike. Test log densities at
a fifth, two fifths ... of the time. Rows that are there are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np

from examples.studies.orthogonal import decoupled_comparison
from examples.studies.side_by_side.long_runs import DECOUPLED
from examples.tools.datasets import split_mask
from examples.tools.run_queue import version
from examples.tools.tables import judged, markdown, mean_and_error, read, save, with_error

METHODS = {"orthogonal": ("OrthNat", 300), "coupled": ("CoupledNat", 400)}
FIRST, SECOND = METHODS
MARKS = 5


class Fit:
    """One fit that is continued in pieces: its state, what its steps took, and how often it was scored."""

    def __init__(self, method, own, length):
        self.method, self.seconds, self.steps, self.marks = method, 0.0, 0, 0
        self.svi, self.score, self.losses, self.rows = own.svi, own.score, [], len(own.arguments[0])
        advance = lambda state, _: own.svi.update(state, *own.arguments, **own.keywords)  # noqa: E731
        piece = jax.jit(lambda state: jax.lax.scan(advance, state, None, length=length))
        self.state = jax.jit(lambda key: own.svi.init(key, *own.arguments, **own.keywords))(own.key)
        self.piece, self.length = piece.lower(self.state).compile(), length

    def go_on(self):
        start = time.process_time()
        self.state, losses = jax.block_until_ready(self.piece(self.state))
        self.seconds += time.process_time() - start
        self.steps += self.length
        self.losses = np.asarray(losses)


def problem(name, beta, data, options, seed):
    """What a fit of a basis with ``beta`` points of the covariance is."""
    sizes = {"beta": max(4, beta // options.shrink), "gamma": max(8, 700 // options.shrink), "columns": 64}
    rates = {name: DECOUPLED[name] for name in ("learning_rate", "natural_step")}
    settings = sizes | rates | {"batch": options.batch, "single": True, "many": "robustmax"}
    return decoupled_comparison.problem(name, data, argparse.Namespace(**settings), seed)


def race(fits, limit, name, split, code, by="seconds"):
    """Rows of one split: every fit at each share of its seconds or steps, at the first piece that ends beyond it."""
    rows = []
    while open_ones := [fit for fit in fits if fit.marks < MARKS]:
        for fit in open_ones:
            fit.go_on()
            while fit.marks < MARKS and getattr(fit, by) >= (fit.marks + 1) * limit / MARKS:
                fit.marks += 1
                scores = fit.score(fit.svi.get_params(fit.state))
                row = {"set": name, "split": split, "method": fit.method, "mark": fit.marks}
                row |= {"seconds": f"{fit.seconds:.1f}", "steps": fit.steps}
                row |= {"log_density": f"{scores['log_density']:.4f}", "rmse": f"{scores['rmse']:.4f}"}
                rows.append(row | {"loss": f"{fit.losses.mean() / fit.rows:.4f}", "version": code})
                print(*rows[-1].values(), flush=True)
    return rows


def at_the_end(rows):
    """Rows of the last mark, numbers as numbers."""
    keep = ("seconds", "steps", "log_density", "rmse")
    return [row | {name: float(row[name]) for name in keep} for row in rows if int(row["mark"]) == MARKS]


def table(rows):
    """Markdown: sets and methods against steps, test log density and what the orthogonal basis is ahead, by split."""
    rows = at_the_end(rows)
    found, lines = mean_and_error(rows, ("set", "method"), ("seconds", "steps", "log_density")), []
    for (name, method), own in found.items():
        gaps = ahead(rows, name, method)
        cells = [f"{own['seconds'][0]:.0f}", f"{own['steps'][0]:.0f}", with_error(*own["log_density"])]
        lines.append([name, method, *cells, judged(gaps) if method != FIRST else ""])
    return markdown(["set", "basis", "seconds", "steps", "test log density", f"{FIRST} is ahead by"], lines)


def ahead(rows, name, method, first=FIRST):
    """By how much the first method is above another, for each split of a set, at the end."""
    known = {(row["method"], row["split"]): float(row["log_density"]) for row in rows if row["set"] == name}
    splits = sorted({split for _, split in known})
    return [known[first, split] - known[method, split] for split in splits]


def figure(rows, path):
    """Test log density against seconds, each split a line."""
    import matplotlib.pyplot as plt

    sets, methods = (list(dict.fromkeys(row[of] for row in rows)) for of in ("set", "method"))
    drawn, axes = plt.subplots(1, len(sets), figsize=(4.2 * len(sets), 3.2), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], sets, strict=True):
        for number, method in enumerate(methods):
            for split in dict.fromkeys(row["split"] for row in rows if row["set"] == name):
                own = [row for row in rows if (row["set"], row["method"], row["split"]) == (name, method, split)]
                at, values = [float(row["seconds"]) for row in own], [float(row["log_density"]) for row in own]
                axis.plot(
                    at, values, "osv"[number] + "-", ms=3, lw=1, color=f"C{number}", label=None if split else method
                )
        axis.set(title=name, xlabel="seconds of one core")
    axes[0][0].set_ylabel("test log density, nats per row")
    axes[0][0].legend(fontsize=8)
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--sets", nargs="+", default=["kin40k"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the processor, for each fit")
    parser.add_argument("--piece", type=int, default=20, help="steps between two looks at the clock")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--shrink", type=int, default=1, help="divide all numbers of points by this")
    parser.add_argument("--label", help="what rows are called in place of the set, for other seconds")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.splits, options.seconds, options.piece = ["yacht"], 1, 0.01, 2
        options.shrink, options.batch = 50, 32
    jax.config.update("jax_enable_x64", False)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "equal_seconds.csv"
    rows, code = read(path), version()
    for data_set in options.sets:
        name = options.label or (data_set if options.shrink == 1 else f"{data_set}, points / {options.shrink}")
        X, y, splits, classes = decoupled_comparison.prepare(data_set, options.data)
        for split in range(options.splits):
            if any((row["set"], row["split"]) == (name, split) for row in rows):
                continue
            data = (X, y, split_mask(splits, split), classes)
            problems = {method: problem(*basis, data, options, split) for method, basis in METHODS.items()}
            fits = [Fit(method, own, options.piece) for method, own in problems.items()]
            rows += race(fits, options.seconds, name, split, code)
            save(path, rows)
    if not options.smoke:
        print(table(rows))
        figure(rows, options.out / "equal_seconds.png")


if __name__ == "__main__":
    main()
