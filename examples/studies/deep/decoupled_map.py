"""Where decoupled layers are cheaper: processor time of a step beside that of coupled layers (Havasi et al. 2018).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.deep.decoupled_map --data DATA

A map over rows in a step (1000, or all 6553 of the paper's training set of kin8nm), hidden layers, their width, and
the points of mean and covariance. Both kinds are compiled first, then their steps alternate in one process, and the
least of each counts: a busy machine slows both. Rows that are there are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO

from examples.studies.deep import decoupled_deep
from examples.tools.datasets import load, standardise
from examples.tools.run_queue import version
from examples.tools.tables import markdown, of_mean, read, save, with_error

ROWS = 6553  # four fifths of kin8nm, as the paper trains
SIZES = {"coupled": 200, "mean": 500, "covariance": 100}
PAPER = {0: 2.67, 1: 0.90, 2: 0.72, 3: 0.65}  # seconds of decoupled over coupled fits that it prints
PLACE = ("hidden", "width", "batch", "coupled", "mean", "covariance")


def plan(rows=ROWS, small=1000):
    """Places of the map: sizes of the paper by layers, width and batch, then other numbers of points."""
    layers = ((1, 10), (3, 10), (0, 8), (1, 8), (2, 10), (2, 8))
    found = [(*place, *SIZES.values()) for place in layers]
    points = [(1, 10, *own) for own in ((200, 250, 100), (400, 500, 100), (200, 1000, 100))]
    return [(*p[:2], batch, *p[2:]) for p in found[:3] + points[:2] + found[3:] + points[2:] for batch in (small, rows)]


class Steps:
    """Compiled steps and their states; places that differ in one kind alone share the other's."""

    def __init__(self, X, y):
        self.data, self.known, self.states = (X, y), {}, {}

    def of(self, kind, place):
        """The key of a kind's step at a place, compiled if it is new."""
        hidden, width, batch, *points = place
        sizes = dict(zip(SIZES, points, strict=True)) | {"width": width}
        own = (kind, hidden, width, *(points[:1] if kind == "coupled" else points[1:]))
        if (*own, batch) not in self.known:
            svi = SVI(*decoupled_deep.build(kind, self.data[0], hidden, sizes), optax.adam(0.01), Trace_ELBO())
            keywords = {"batch": batch if batch < len(self.data[0]) else None}
            start = lambda key: svi.init(key, *self.data, **keywords)  # noqa: E731
            if own in self.states:
                jax.eval_shape(start, jax.random.key(0))  # sets up the engine; the state is there
            else:
                self.states[own] = jax.jit(start)(jax.random.key(0))
            step = jax.jit(lambda state: svi.update(state, *self.data, **keywords))
            self.known[(*own, batch)] = step.lower(self.states[own]).compile()
        return (*own, batch)

    def take(self, name):
        """Milliseconds of the processor for one step."""
        start = time.process_time()
        state, loss = self.known[name](self.states[name[:-1]])
        assert np.isfinite(loss), f"the loss of {name} must be finite"
        self.states[name[:-1]] = jax.block_until_ready(state)
        return 1e3 * (time.process_time() - start)

    def measured(self, place, repeats):
        """Milliseconds of the steps of each kind, that alternate; the first is not counted."""
        names = {kind: self.of(kind, place) for kind in decoupled_deep.KINDS}
        spent = [{kind: self.take(name) for kind, name in names.items()} for _ in range(repeats + 1)]
        return {kind: [one[kind] for one in spent[1:]] for kind in names}


def times(row, kind):
    return np.array([float(value) for value in row[f"{kind}_ms"].split()])


def ratio(row):
    """Least time of decoupled over that of coupled steps."""
    return times(row, "decoupled").min() / times(row, "coupled").min()


def ratio_and_error(row):
    """`ratio`, and the standard error of the mean ratio of neighbouring steps."""
    return with_error(ratio(row), of_mean(times(row, "decoupled") / times(row, "coupled"))[1], 2)


def at_paper(rows):
    """Rows at the paper's numbers of points."""
    return [row for row in rows if all(int(row[name]) == size for name, size in SIZES.items())]


def table(rows):
    """Markdown: layers and width against rows in a step, milliseconds of both kinds and their ratio."""
    lines = []
    for place in sorted(
        {(row["hidden"], row["width"]) for row in at_paper(rows)}, key=lambda place: tuple(map(int, place))
    ):
        own = [row for row in at_paper(rows) if (row["hidden"], row["width"]) == place]
        least = [[f"{times(row, kind).min():.0f}" for kind in ("decoupled", "coupled")] for row in own]
        cells = [f"{' / '.join(both)} = {ratio_and_error(row)}" for both, row in zip(least, own, strict=True)]
        printed = PAPER.get(int(place[0])) if place[1] == "10" or place[0] == "0" else None
        lines.append([*place, *cells, f"{printed:.2f}" if printed else ""])
        heads = [f"ms, decoupled / coupled, {rows} rows" for rows in (1000, ROWS)]
    return markdown(["hidden layers", "width", *heads, "printed ratio"], lines)


def points_table(rows):
    """Markdown: numbers of points against rows in a step, for one hidden layer of width 10."""
    own = [row for row in rows if (row["hidden"], row["width"]) == ("1", "10")]
    found = {(tuple(row[name] for name in SIZES), row["batch"]): ratio_and_error(row) for row in own}
    places = dict.fromkeys(place for place, _ in found)
    lines = [[*place, *(found.get((place, batch), "") for batch in ("1000", str(ROWS)))] for place in places]
    return markdown(["coupled", "mean", "covariance", "ratio, 1000 rows", f"ratio, {ROWS} rows"], lines)


def figure(rows, path):
    """The map: a cell for each place, blue where decoupled is cheaper."""
    import matplotlib.pyplot as plt

    own = sorted(at_paper(rows), key=lambda row: (int(row["hidden"]), int(row["width"])))
    rest = [row for row in rows if (row["hidden"], row["width"]) == ("1", "10")]
    layers = {(row["hidden"], row["width"]): f"{row['hidden']} hidden, width {row['width']}" for row in own}
    layers |= {place: "no hidden layer" for place in layers if place[0] == "0"}
    points = {tuple(row[n] for n in SIZES): "{} beside {} + {}".format(*(row[n] for n in SIZES)) for row in rest}
    panels = (
        (own, ("hidden", "width"), layers, "200 points beside 500 + 100"),
        (rest, tuple(SIZES), points, "one hidden layer, width 10"),
    )
    panels = [panel for panel in panels if len(panel[2]) > 1]
    size = (4.6 * len(panels), 3.2)
    drawn, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axis, (some, names, labels, title) in zip(axes[0], panels, strict=True):
        batches = sorted({int(row["batch"]) for row in some})
        value = {(tuple(row[n] for n in names), int(row["batch"])): ratio(row) for row in some}
        cells = np.array([[value.get((place, batch), np.nan) for batch in batches] for place in labels])
        image = axis.imshow(np.log2(cells), cmap="RdBu_r", vmin=-2, vmax=2, aspect="auto")
        for (line, column), number in np.ndenumerate(cells):
            look = {"color": "white" if abs(np.log2(number)) > 1 else "black", "fontsize": 9}
            axis.text(column, line, "" if np.isnan(number) else f"{number:.2f}", ha="center", va="center", **look)
        axis.set(xticks=range(len(batches)), yticks=range(len(labels)), xlabel="rows in a step", title=title)
        axis.set_xticklabels(batches)
        axis.set_yticklabels(labels.values(), fontsize=8)
    bar = drawn.colorbar(image, ax=axes, ticks=[-1, 0, 1], label="decoupled / coupled")
    bar.ax.set_yticklabels(["0.5", "1", "2"])
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--places", type=int, help="only so many of the map, the first that decide most")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    import matplotlib as mpl

    mpl.use("Agg")
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    X, y, _ = load("yacht" if options.smoke else "kin8nm", options.data)
    order = np.random.default_rng(0).permutation(len(X))[:ROWS]
    X, y = jnp.asarray(standardise(X)[order]), jnp.asarray(standardise(y[:, None])[order, 0])
    places = [(0, 6, 50, 8, 12, 6)] if options.smoke else plan()[: options.places]
    path = options.out / "decoupled_map.csv"
    rows, code, steps = read(path), version(), Steps(X, y)
    for place in places:
        if any(tuple(row[name] for name in PLACE) == tuple(map(str, place)) for row in rows):
            continue
        start, found = time.process_time(), steps.measured(place, options.repeats)
        row = dict(zip(PLACE, map(str, place), strict=True))
        row |= {f"{kind}_ms": " ".join(f"{value:.2f}" for value in own) for kind, own in found.items()}
        rows.append(row | {"seconds": f"{time.process_time() - start:.0f}", "version": code})
        save(path, rows)
        print(*rows[-1].values(), f"ratio {ratio(rows[-1]):.2f}", flush=True)
    if not options.smoke:
        print(table(rows), points_table(rows), sep="\n")
        figure(rows, options.out / "decoupled_map.png")


if __name__ == "__main__":
    main()
