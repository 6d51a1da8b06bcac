"""Tables of the guide's pages that no program of its own makes, each a function of rows: a part of `rebuild`."""

import numpy as np

from examples.studies.orthogonal import decoupled_convergence
from examples.tools.tables import markdown, mean_and_error, of_mean, with_error


def number(text, digits=3):
    """A number as it stands in a table; nothing for none."""
    return f"{float(text):.{digits}f}" if text not in ("", None) else ""


def values_of(rows, key):
    return list(dict.fromkeys(row[key] for row in rows))


def plain(rows, columns):
    """A line for each row; ``columns`` are ``{head: text of a row}``."""
    return markdown(list(columns), [[text(row) for text in columns.values()] for row in rows])


def only(make, keep):
    """The table that ``make`` gives of rows, with the columns ``keep`` alone: pages have six at most."""

    def shown(rows, *more):
        cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in make(rows, *more).splitlines()]
        columns = [cells[0].index(name) for name in keep]
        return markdown([cells[0][c] for c in columns], [[line[c] for c in columns] for line in cells[2:]])

    return shown


def means(rows, by, metrics):
    """A line for each group of rows: means of some columns, ``{name: digits}``, and their standard errors."""
    lines = [
        [*place, *(with_error(*own[metric], digits) for metric, digits in metrics.items())]
        for place, own in mean_and_error(rows, by, metrics).items()
    ]
    return markdown([*by, *(metric.replace("_", " ") for metric in metrics)], lines)


def pivot(rows, line, column, metric, *, best=max, digits=3, ranked=()):
    """Means by ``line`` and ``column``, the best of a line in bold; below the mean ranks over ``ranked`` lines."""
    found = {place: own[metric] for place, own in mean_and_error(rows, (line, column), [metric]).items()}
    columns, lines, ranks = values_of(rows, column), [], []
    for name in values_of(rows, line):
        own = {c: found[name, c] for c in columns if (name, c) in found}
        wanted = best(own, key=lambda c: own[c][0]) if best else None
        cells = {c: with_error(*cell, digits) for c, cell in own.items()}
        lines.append([name, *(f"**{cells[c]}**" if c == wanted else cells.get(c, "") for c in columns)])
        if name in ranked:
            order = sorted(own, key=lambda c: own[c][0], reverse=best is max)
            ranks.append([order.index(c) + 1 for c in columns])
    if ranks:
        lines.append([f"mean rank of {len(ranks)}", *(f"{rank:.2f}" for rank in np.mean(ranks, axis=0))])
    return markdown([line, *columns], lines)


def convergence(rows):
    """A line for each task and method: means over seeds of the iterations to 1 %, to 10 nats and to 1 nat."""

    def cell(own, key):
        values = [row[key] for row in own]
        if "" in values:
            return f"not in {own[0]['steps']}"
        return values[0] if "not recorded" in values else with_error(*of_mean([float(value) for value in values]), 0)

    lines = []
    for place in dict.fromkeys((row["task"], row["method"]) for row in rows):
        own = [row for row in rows if (row["task"], row["method"]) == place]
        lines.append([*place, str(len(own)), *(cell(own, key) for key in decoupled_convergence.REACHED)])
    return markdown(["task", "method", "seeds", "1 %", "10 nats", "1 nat"], lines)


def starts(rows):
    return plain(rows, {
        "D": lambda row: row["columns"],
        "median lengthscale at the start": lambda row: "default, of order √D" if "prior" in row["prior"] else "1",
        "1 %": lambda row: row["steps"],
        "99 % of the way": lambda row: row["way"],
        "loss per row": lambda row: number(row["loss_a_row"]),
        "test log density": lambda row: with_error(float(row["log_density"]), float(row["log_density_se"])),
    })  # fmt: skip


def gam(rows):
    """Means over splits; what a peer is ahead of ours is paired by row and split."""

    def mean(own, key):
        values = [float(row[key]) for row in own if row[key]]
        return with_error(*of_mean(values)) if values else ""

    lines = []
    for name in values_of(rows, "model"):
        own = [row for row in rows if row["model"] == name]
        seconds = np.mean([float(row["seconds"]) for row in own])
        lines.append([name, str(len(own)), mean(own, "held-out log density"), mean(own, "ahead"), f"{seconds:.0f}"])
    return markdown(["model", "splits", "held-out log density", "ahead of ngp.gam", "CPU s"], lines)


def geometry(rows):
    return plain(rows, {
        "target": lambda row: row["target"],
        "recipe": lambda row: row["recipe"],
        "bias": lambda row: number(row["bias"], 2),
        "sd": lambda row: number(row["sd"], 2),
        "correlations": lambda row: number(row["correlations"]),
    })  # fmt: skip


def regret(rows):
    cells = {(row["function"], row["method"]): f"{float(row['median']):.3f}, {float(row['worst']):.3f}" for row in rows}
    methods = values_of(rows, "method")
    lines = [[name, *(cells[name, method] for method in methods)] for name in values_of(rows, "function")]
    return markdown(["median, worst regret", *methods], lines)


def letters(rows):
    shown = [row for row in rows if row["metric"] in ("log_density", "normality")]
    return pivot(shown, line="metric", column="model", metric="value", best=None)


def devices(rows):
    cells = {
        (row["inducing"], row["devices"]): [float(row[key]) for key in row if key.startswith("ms")] for row in rows
    }
    columns = values_of(rows, "devices")
    lines = [
        [
            name,
            *(
                ", ".join(
                    f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"
                    for value in dict.fromkeys(cells[name, c])
                )
                for c in columns
            ),
        ]
        for name in values_of(rows, "inducing")
    ]
    return markdown(["inducing points", *(f"{c} device{'s' if c != '1' else ''}" for c in columns)], lines)


def here(rows):
    return plain(rows, {
        "inducing points": lambda row: row["inducing"],
        "cores": lambda row: row["devices"],
        "predicted, ms": lambda row: number(1000 * float(row["predicted"]), 0),
        "measured, ms": lambda row: number(1000 * float(row["measured"]), 0),
    })  # fmt: skip


def on_a_gpu(rows):
    """Milliseconds in double precision and single, and GPyTorch's."""
    names = {"adam": "Adam", "natural": "natural", "predict": "predict", "neighbours": "32 neighbours,"}
    cells = {(row["task"], row["size"], row["unit"], row["dtype"]): row for row in rows}

    def cell(key, dtype):
        row = cells.get((*key, dtype))
        both = [f"{float(row[name]):#.3g}".rstrip(".") for name in ("ours", "gpytorch") if row[name]] if row else []
        return ", ".join(both) or "not timed"

    lines = []
    for key in dict.fromkeys((task, size, unit) for task, size, unit, _ in cells):
        task, size, unit = key
        many = {"chain": f"{size} rows", "neighbours": f"{size} rows per batch"}.get(task, f"M = {size}")
        what = f"{names[task]} {unit}, {many}" if task != "chain" else f"leapfrog step, exact, {many}"
        lines.append([what, cell(key, "float64"), cell(key, "float32")])
    return markdown(["ms: ours, GPyTorch's", "float64", "float32"], lines)


def covered(rows):
    """The share of simulations in which 90 % intervals held each quantity, a line for each way."""
    names = [key for key in rows[0] if key.endswith("_covered")]
    shares = {way: [row for row in rows if row["way"] == way] for way in values_of(rows, "way")}
    lines = [
        [way, *(f"{np.mean([int(row[name]) for row in own]):.2f}" for name in names)] for way, own in shares.items()
    ]
    return markdown(["held by 90 % intervals", *(name.removesuffix("_covered") for name in names)], lines)


def calibrated(rows):
    """Of each model with distributions of its hyper-parameters, how often 90 % intervals hold the true values."""
    lines = []
    for name in values_of([row for row in rows if row["site"]], "model"):
        shares = [float(row["inside_90"]) for row in rows if row["model"] == name]
        lines.append([name, str(len(shares)), f"{min(shares):.2f}", f"{max(shares):.2f}"])
    return markdown(["model", "hyper-parameters", "least covered", "most covered"], lines)


def versions(rows):
    """Ratios of today's time to another version's by group, and the largest with its name."""
    names = {"steps": "steps of engines", "gams": "fits by a formula", "predictions": "predictions, and fits again"}
    lines = []
    for group in values_of(rows, "group"):
        own = sorted((float(row["ratio"]), row["what"]) for row in rows if row["group"] == group)
        ratios = [ratio for ratio, _ in own]
        numbers = [f"{value:.2f}" for value in (ratios[0], np.median(ratios), ratios[-1])]
        lines.append([names.get(group, group), str(len(own)), *numbers, own[-1][1]])
    return markdown(["group", "benchmarks", "least", "median", "largest", "of which"], lines)
