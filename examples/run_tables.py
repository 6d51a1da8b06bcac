"""Tables and a figure of what a queue of runs has appended so far; rows of different versions are never in one."""

import csv

import numpy as np

from examples.tables import of_mean

__all__ = ["groups", "last_rounds", "markdown", "paired", "plot", "read"]

# Differences that the papers' claims are about, first minus second.
PAIRS = {
    "decoupled": [("OrthNat", "CoupledNat"), ("OrthNat", "Orth"), ("CoupledNat", "Coupled"), ("Orth", "Coupled")],
    "deep": [("GP-GP VI", "GP VI"), ("LV-GP-GP VI", "GP-GP VI"), ("LV-GP-GP IW", "LV-GP-GP VI")],
}
HEADING = """# Long runs

Made by `python -m examples.long_runs --tables` from `long_runs.csv`. Mean ± standard error over splits (how many). *:
not flat, twice the steps may lower the loss by 0.01 nats a row. Each run counts with its last row.
"""
METHODS = ("Coupled", "CoupledNat", "Orth", "OrthNat", "GP VI", "GP-GP VI", "LV-GP-GP VI", "LV-GP-GP IW")
NUMBERS = ("log_density", "rmse", "bound", "seconds")


def read(path):
    """Rows of the table with numbers as numbers."""
    with open(path) as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row |= {key: float(row[key]) for key in NUMBERS} | {"steps": int(row["steps"]), "split": int(row["split"])}
        row["curve"] = [float(value) for value in row["curve"].split()]
    return rows


def last_rounds(rows):
    """Of every run the row with the most steps."""
    last = {}
    for row in rows:
        run = tuple(row[key] for key in ("version", "experiment", "settings", "set", "method", "split", "seed"))
        if run not in last or row["steps"] > last[run]["steps"]:
            last[run] = row
    return list(last.values())


def groups(rows):
    """Rows that may stand in one table, ``{(version, experiment, settings): rows}``."""
    found = {}
    for row in rows:
        found.setdefault((row["version"], row["experiment"], row["settings"]), []).append(row)
    return found


def paired(rows, first, second, metric):
    """Differences of two methods on the same set, split and seed: ``{set: (mean, error, number)}``."""
    scores = {(row["set"], row["method"], row["split"], row["seed"]): row[metric] for row in rows}
    found = {}
    for (name, method, *place), value in scores.items():
        other = scores.get((name, second, *place))
        if method == first and other is not None:
            found.setdefault(name, []).append(value - other)
    return {name: (*of_mean(values), len(values)) for name, values in found.items()}


def in_order(methods):
    """Methods from the plainest to the one that claims most."""
    return sorted(methods, key=lambda method: (METHODS.index(method) if method in METHODS else len(METHODS), method))


def cell(mean, error, count):
    """``mean ± error``, or the mean alone and the word for it."""
    return f"{mean:.3f} ± {error:.3f} ({count})" if count > 1 else f"{mean:.3f} (1)"


def grid(title, lines, columns):
    """A table of markdown; ``lines`` are ``(name, {column: text})``."""
    head = [f"| {title} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    return [*head, *(f"| {name} | " + " | ".join(own.get(c, "") for c in columns) + " |" for name, own in lines), ""]


def markdown(rows):
    """All tables: by version, experiment and settings; scores, then paired differences over splits."""
    text = [HEADING]
    for (code, experiment, settings), own in groups(last_rounds(rows)).items():
        steps, flat = [row["steps"] for row in own], sum(row["flattened"] == "yes" for row in own)
        span = f"{min(steps)} to {max(steps)}" if min(steps) < max(steps) else f"{steps[0]}"
        text += [f"## {experiment}: {span} steps, {flat} of {len(own)} runs flat (version {code})\n\n`{settings}`\n"]
        sets, methods = sorted({row["set"] for row in own}), in_order({row["method"] for row in own})
        for metric, title in (("log_density", "test log density"), ("rmse", "RMSE"), ("steps", "steps")):
            text += grid(title, [(s, scores(own, s, methods, metric)) for s in sets], methods)
        for metric, title in (("log_density", "paired difference of log density"), ("rmse", "of RMSE")):
            pairs = [(pair, paired(own, *pair, metric)) for pair in PAIRS.get(experiment, [])]
            lines = [(" - ".join(pair), {s: cell(*value) for s, value in own.items()}) for pair, own in pairs if own]
            text += grid(title, lines, sets) if lines else []
    return "\n".join(text)


def scores(rows, name, methods, metric):
    """One line: every method's mean over splits on a set, with a star where a run still gains."""
    line = {}
    for method in methods:
        own = [row for row in rows if (row["set"], row["method"]) == (name, method)]
        if own:
            values = [row[metric] for row in own]
            star = "" if all(row["flattened"] == "yes" for row in own) else "*"
            plain = f"{min(values)} to {max(values)}" if min(values) < max(values) else f"{values[0]}"
            line[method] = plain if metric == "steps" else cell(*of_mean(values), len(values)) + star
    return line


def plot(rows, path):
    """Bounds a row against steps, a panel for each experiment and set, of the version of the last row."""
    import matplotlib.pyplot as plt

    own = [row for row in last_rounds(rows) if row["version"] == rows[-1]["version"]]
    places = list(dict.fromkeys((row["experiment"], row["set"]) for row in own))
    width = min(3, len(places))
    figure, axes = plt.subplots(
        -(-len(places) // width), width, figsize=(4.4 * width, 3.2 * -(-len(places) // width)), squeeze=False
    )
    for axis in axes.flat[len(places) :]:
        axis.remove()
    for axis, (experiment, name) in zip(axes.flat, places, strict=False):
        here = [row for row in own if (row["experiment"], row["set"]) == (experiment, name)]
        methods, named = in_order({row["method"] for row in here}), set()
        for row in here:
            curve = -np.asarray(row["curve"])
            at = (np.arange(len(curve)) + 0.5) * row["steps"] / len(curve)
            label = row["method"] if row["method"] not in named else None
            named.add(row["method"])
            axis.plot(at, curve, color=f"C{methods.index(row['method'])}", lw=1, alpha=0.8, label=label)
        late = np.concatenate([-np.asarray(row["curve"])[len(row["curve"]) // 10 :] for row in here])
        room = 0.05 * np.ptp(late) + 1e-6
        axis.set(title=f"{experiment}: {name}", xlabel="steps", ylim=(late.min() - room, late.max() + room))
        axis.legend(fontsize=7, loc="lower right")
        axis.set_xscale("log")
    for line in axes[:, 0]:
        line.set_ylabel("bound a row, nats")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
