"""Tables and figures of what a queue of runs has appended so far; on a set never of rows of different versions."""

import csv

import numpy as np

from examples.tools.tables import bold, direction, of_mean, seen, with_error
from examples.tools.tables import markdown as table

__all__ = ["by_depth", "draw_depths", "groups", "last_rounds", "markdown", "paired", "read"]

# Differences that the papers' claims are about, first minus second.
BASES = [("OrthNat", "CoupledNat"), ("OrthNat", "Orth"), ("CoupledNat", "Coupled"), ("Orth", "Coupled")]
OTHERS = [("Orth", "Hybrid"), ("Hybrid", "Decoupled")]
PAIRS = {
    "decoupled": [*BASES, *OTHERS],
    "classes": [*BASES, *OTHERS],
    "deep": [
        ("GP-GP VI", "GP VI"),
        ("LV-GP VI", "GP VI"),
        ("LV-GP-GP VI", "GP-GP VI"),
        ("LV-GP IW", "LV-GP VI"),
        ("LV-GP-GP IW", "LV-GP-GP VI"),
        ("LV-GP-GP-GP IW", "LV-GP-GP-GP VI"),
    ],
    "depth": [
        *((f"decoupled {depth}", f"coupled {depth}") for depth in range(5)),
        *((f"{kind} {depth + 1}", f"{kind} {depth}") for kind in ("coupled", "decoupled") for depth in range(4)),
    ],
}
HEADING = """# Long runs

Made by `python -m examples.studies.side_by_side.long_runs --tables` from `long_runs.csv`. Mean ± standard error over
splits (how many). *: not flat, twice the steps may lower the loss by 0.01 nats per row. Each run counts by its last
row; a difference is
taken at the most steps that both runs have, which it names, where one that is flat has any number beyond its last.
Bold is a difference that a t test at 5 % sees.
"Over sets": the mean of the sets' differences and its standard error over sets (how many).

Rows of version 0.1.0 are of one large GPU, and would take more than half an hour of a core for each set. They differ
in two ways from what the same program makes today. `deep` counted a prior of the inducing inputs in its bound, and it
scored latent inputs by draws of the prior.
"""
METHODS = ("Coupled", "CoupledNat", "Orth", "OrthNat", "Hybrid", "Decoupled")
METHODS += ("GP VI", "GP-GP VI", "LV-GP VI", "LV-GP IW", "LV-GP-GP VI", "LV-GP-GP IW")
OVER_SETS = "over sets"
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
    """Differences of two methods on the same set, split and seed, ``{set: (mean, error, number, steps)}``.

    Each pair is taken at the most steps that both have; a run that is flat has any number beyond its last.
    """
    runs = {}
    for row in rows:
        place = row["set"], row["split"], row["seed"]
        runs.setdefault(place, {}).setdefault(row["method"], {})[row["steps"]] = row
    found = {}
    for (name, *_), methods in runs.items():
        pair = [methods.get(method, {}) for method in (first, second)]
        both = [(steps, at(pair[0], steps), at(pair[1], steps)) for steps in sorted({*pair[0], *pair[1]})]
        both = [(steps, a[metric] - b[metric]) for steps, a, b in both if a and b]
        if both:
            found.setdefault(name, []).append(both[-1])
    return {name: (*of_mean([d for _, d in own]), len(own), span([s for s, _ in own])) for name, own in found.items()}


def at(run, steps):
    """The row of a run after so many steps, its last where it was flat by then, or None."""
    last = run[max(run)] if run else None
    is_over = last is not None and last["flattened"] == "yes" and last["steps"] <= steps
    return last if is_over else run.get(steps)


def span(values):
    """Least and greatest of some numbers, or the one that they are."""
    return f"{min(values)} to {max(values)}" if min(values) < max(values) else f"{values[0]}"


def in_order(methods):
    """Methods from the plainest to the one that claims most."""
    return sorted(methods, key=lambda method: (METHODS.index(method) if method in METHODS else len(METHODS), method))


def cell(mean, error, count, steps=None):
    """``mean ± error (count, steps)``; of one value no error."""
    return f"{mean:.3f}{f' ± {error:.3f}' if count > 1 else ''} ({count}{'' if steps is None else f'; {steps}'})"


def difference(mean, error, count, steps=None):
    """A `cell` whose mean and error are bold where a t test at 5 % sees a difference."""
    numbers, rest = cell(mean, error, count, steps).split(" (")
    return f"{bold(numbers, seen(mean, error, count))} ({rest}"


def grid(title, lines, columns):
    """A table of markdown; ``lines`` are ``(name, {column: text})``."""
    head = [f"| {title} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    return [*head, *(f"| {name} | " + " | ".join(own.get(c, "") for c in columns) + " |" for name, own in lines), ""]


def markdown(rows):
    """All tables: by version, experiment and settings; scores, then paired differences over splits."""
    text = [HEADING]
    for (code, experiment, settings), rounds in groups(rows).items():
        own = last_rounds(rounds)
        steps, flat = span([row["steps"] for row in own]), sum(row["flattened"] == "yes" for row in own)
        text += [f"## {experiment}: {steps} steps, {flat} of {len(own)} runs flat (version {code})\n\n`{settings}`\n"]
        sets, methods = sorted({row["set"] for row in own}), in_order({row["method"] for row in own})
        for metric, title in (("log_density", "test log density"), ("rmse", "RMSE"), ("steps", "steps")):
            text += grid(title, [(s, scores(own, s, methods, metric)) for s in sets], methods)
        for metric, title in (("log_density", "paired difference of log density"), ("rmse", "of RMSE")):
            pairs = [(pair, paired(rounds, *pair, metric)) for pair in PAIRS.get(experiment, [])]
            lines = [(" - ".join(pair), differences(found)) for pair, found in pairs if found]
            text += grid(title, lines, [*sets, OVER_SETS] if len(sets) > 2 else sets) if lines else []
    return "\n".join(text)


def differences(found):
    """One line: the difference on every set, and the mean of those over sets with its error over sets."""
    means = [mean for mean, *_ in found.values()]
    return {s: difference(*d) for s, d in found.items()} | {OVER_SETS: difference(*of_mean(means), len(means))}


def scores(rows, name, methods, metric):
    """One line: every method's mean over splits on a set, with a star where a run still gains."""
    line = {}
    for method in methods:
        own = [row for row in rows if (row["set"], row["method"]) == (name, method)]
        if own:
            values = [row[metric] for row in own]
            star = "" if all(row["flattened"] == "yes" for row in own) else "*"
            line[method] = span(values) if metric == "steps" else cell(*of_mean(values), len(values)) + star
    return line


# Of each experiment with layers the settings that are the paper's sizes, as they begin.
SIZES = {"depth": "coupled=200 mean=500", "deep": "inducing=128 batch=512"}


def at_paper_sizes(rows, experiment, by=("set",)):
    """Rows of an experiment at the paper's sizes, on every set (or other keys) those of the version with most."""
    own = [row for row in rows if row["experiment"] == experiment and row["settings"].startswith(SIZES[experiment])]
    versions = {}
    for row in own:
        versions.setdefault(tuple(row[key] for key in by), []).append(row["version"])
    most = {name: max(dict.fromkeys(found), key=found.count) for name, found in versions.items()}
    return [row for row in own if row["version"] == most[tuple(row[key] for key in by)]]


def depths(rows, metric="log_density"):
    """Test log densities, or another score, at the paper's sizes, ``{(set, kind, hidden layers): {split: value}}``.

    Kinds of one depth are of one version.
    """
    found = {}
    own = [row | {"hidden": row["method"].split()[1]} for row in rows if row["experiment"] == "depth"]
    for row in last_rounds(at_paper_sizes(own, "depth", ("set", "hidden"))):
        kind, hidden = row["method"].split()
        found.setdefault((row["set"], kind, int(hidden)), {})[row["split"]] = row[metric]
    return found


def by_depth(rows):
    """Hidden layers against sets and kinds of layers: test log density."""
    found = depths(rows)
    columns = sorted({(name, kind) for name, kind, _ in found})
    lines = [
        [
            str(hidden),
            *(cell(*of_mean([*own.values()]), len(own)) if (own := found.get((*c, hidden))) else "" for c in columns),
        ]
        for hidden in sorted({hidden for *_, hidden in found})
    ]
    return table(["hidden layers", *(f"{name}, {kind}" for name, kind in columns)], lines)


def gains_by_depth(rows):
    """Decoupled less coupled layers, paired by split, bold by a t test at 5 %: test log density, and RMSE."""
    columns, by = [], {"log density": depths(rows), "RMSE": depths(rows, "rmse")}
    for name in sorted({name for name, *_ in by["RMSE"]}):
        columns += [(name, metric) for metric in by]
    lines = []
    for hidden in sorted({hidden for *_, hidden in by["RMSE"]}):
        both = [[by[m][name, kind, hidden] for kind in ("decoupled", "coupled")] for name, m in columns]
        gaps = [[first[split] - second[split] for split in first if split in second] for first, second in both]
        lines.append([str(hidden), *(bold(with_error(*of_mean(gap), 4), direction(gap)) for gap in gaps)])
    return table(["hidden layers", *(f"{name}, {metric}" for name, metric in columns)], lines)


def draw_depths(rows, path):
    """Save test log density against hidden layers, coupled beside decoupled, with errors over splits."""
    import matplotlib.pyplot as plt

    found = depths(rows)
    sets = sorted({name for name, *_ in found})
    figure, axes = plt.subplots(1, len(sets), figsize=(3.8 * len(sets), 3.0), squeeze=False, layout="tight")
    for axis, name in zip(axes[0], sets, strict=True):
        axis.set_title(name, fontsize=10)
        for number, kind in enumerate(sorted({kind for _, kind, _ in found})):
            at = sorted(hidden for own, other, hidden in found if (own, other) == (name, kind))
            means, errors = zip(*(of_mean([*found[name, kind, hidden].values()]) for hidden in at), strict=True)
            axis.errorbar(np.array(at) + 0.06 * number, means, errors, fmt="os"[number] + "-", capsize=3, label=kind)
        axis.set(xlabel="hidden layers", xticks=range(5))
    axes[0, 0].set_ylabel("test log density, nats per row")
    axes[0, -1].legend(loc="lower right")
    figure.savefig(path, dpi=110, pil_kwargs={"optimize": True})
    plt.close(figure)
