"""Tables and a figure of what a queue of runs has appended so far; rows of different versions are never in one."""

import csv
import textwrap

import numpy as np

from examples.tables import markdown as table
from examples.tables import of_mean, with_error

__all__ = ["by_samples", "groups", "last_rounds", "markdown", "paired", "plot", "read"]

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

Made by `python -m examples.long_runs --tables` from `long_runs.csv`. Mean ± standard error over splits (how many). *:
not flat, twice the steps may lower the loss by 0.01 nats a row. Each run counts by its last row; a difference is taken
at the most steps that both runs have, which it names, where one that is flat has any number beyond its last. "Over
sets": the mean of the sets' differences and its standard error over sets (how many).
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
    return {s: cell(*d) for s, d in found.items()} | {OVER_SETS: cell(*of_mean(means), len(means))}


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


def by_samples(rows):
    """Sets against the importance samples of LV-GP, where nothing else in the settings differs, and differences."""
    found = {}
    for row in last_rounds(rows):
        settings = dict(word.split("=") for word in row["settings"].split())
        samples = settings.pop("K", None)
        if samples and row["method"] == "LV-GP IW":
            place = row["version"], tuple(settings.items()), row["set"]
            found.setdefault(place, {}).setdefault(int(samples), {})[row["split"]] = row["log_density"]
    found = {place: own for place, own in found.items() if len(own) > 1}
    numbers = sorted({samples for own in found.values() for samples in own})
    pairs = list(zip(numbers[1:], numbers, strict=False))
    lines = []
    for (*_, name), own in found.items():
        scores = [with_error(*of_mean(list(own.get(samples, {}).values()))) for samples in numbers]
        both = [[own[a][split] - own[b][split] for split in own[a] if split in own[b]] for a, b in pairs]
        lines.append([name, *scores, *(with_error(*of_mean(one)) for one in both)])
    return table(["set", *(f"K = {k}" for k in numbers), *(f"{a} - {b}" for a, b in pairs)], lines)


def panel(row):
    """Which panel a row stands in."""
    return row["experiment"], row["set"], row["settings"]


def plot(rows, path):
    """Bounds a row against steps, a panel for each experiment, set and settings: the version with most runs."""
    import matplotlib.pyplot as plt

    runs = {}
    for row in last_rounds(rows):
        runs.setdefault(panel(row), {}).setdefault(row["version"], []).append(row)
    chosen = {place: max(versions.values(), key=len) for place, versions in runs.items()}
    own = [row for here in chosen.values() for row in here]
    methods, places = in_order({row["method"] for row in own}), list(chosen)
    width = min(3, len(places))
    places = sorted(places, key=lambda place: (place[0], place[2], place[1]))
    figure, axes = plt.subplots(
        -(-len(places) // width), width, figsize=(4.4 * width, 3.2 * -(-len(places) // width)), squeeze=False
    )
    for axis in axes.flat[len(places) :]:
        axis.remove()
    for axis, (experiment, name, settings) in zip(axes.flat, places, strict=False):
        here = [row for row in own if panel(row) == (experiment, name, settings)]
        others = {other for *same, other in places if same == [experiment, name]}
        differing = [word for word in settings.split() if not all(word in other.split() for other in others)]
        named = set()
        for row in sorted(here, key=lambda row: methods.index(row["method"])):
            curve = -np.asarray(row["curve"])
            at = (np.arange(len(curve)) + 0.5) * row["steps"] / len(curve)
            label = row["method"] if row["method"] not in named else None
            named.add(row["method"])
            axis.plot(at, curve, color=f"C{methods.index(row['method']) % 10}", lw=1, alpha=0.8, label=label)
        late = np.concatenate([-np.asarray(row["curve"])[len(row["curve"]) // 10 :] for row in here])
        room = 0.05 * np.ptp(late) + 1e-6
        title = "\n".join([f"{experiment}: {name}", *textwrap.wrap(" ".join(differing), 44)])
        axis.set(xlabel="steps", ylim=(late.min() - room, late.max() + room))
        axis.set_title(title, fontsize=8)
        axis.legend(fontsize=7, loc="lower right")
        axis.set_xscale("log")
    for line in axes[:, 0]:
        line.set_ylabel("bound a row, nats")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
