"""Table and figure of `gam_interactions`: models beside ours with chosen pairs, and what chose them."""

import numpy as np

from examples.tools import tables
from examples.tools.tables import markdown, of_mean, with_error

__all__ = ["CHOSEN", "compare", "figure", "parse", "read"]

CHOSEN = "ngp.gam, chosen pairs"


def compare(rows):
    """Markdown: means over splits, and differences of log density to ours with chosen pairs, paired by split."""
    lines, ours = [], {row["split"]: row["log_density"] for row in rows if row["model"] == CHOSEN}
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        gaps = [row["log_density"] - ours[row["split"]] for row in own if row["split"] in ours]
        found = [of_mean([row[key] for row in own]) for key in ("log_density", "rmse", "coverage")]
        found.append(of_mean(gaps or [np.nan]))
        text = [with_error(*one) for one in found]
        pairs = of_mean([len(row["pairs"].split()) for row in own])[0]
        lines.append([model, str(len(own)), f"{pairs:.1f}", *text, f"{np.mean([row['seconds'] for row in own]):.0f}"])
    head = ["model", "splits", "pairs", "log density", "RMSE", "in the 90 % band", "log density above chosen", "CPU s"]
    return markdown(head, lines)


def figure(rows, surface, path):
    """Scores of all pairs, every split a dot, and on how many a pair was kept; the strongest interaction as a map."""
    import matplotlib.pyplot as plt

    own = [row for row in rows if row["model"] == CHOSEN]
    scores = [parse(row["scores"]) for row in own]
    kept = [name for row in own for name in row["pairs"].split()]
    means = {name: np.mean([found[name] for found in scores]) for name in scores[0]}
    names = sorted(means, key=means.get)
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    colours = ["#0072B2" if name in kept else "#E69F00" for name in names]
    left.barh(range(len(names)), [means[name] for name in names], color=colours)
    for height, name in enumerate(names):
        left.plot([found[name] for found in scores], [height] * len(scores), "k.", markersize=4)
    labels = [f"{name} ({kept.count(name)}/{len(own)})" for name in names]
    left.set(
        yticks=range(len(names)), yticklabels=labels, xlabel="score: joint variation of the residuals beside noise"
    )
    left.set_title("blue: kept (on so many splits); orange: never", fontsize=9)
    a, b, mean, _ = np.loadtxt(surface, delimiter=",", skiprows=1).T
    size, limit = (len(np.unique(a)), -1), np.abs(mean).max()
    levels = np.linspace(-limit, limit, 21)
    shown = right.contourf(*(part.reshape(size) for part in (a, b, mean)), levels, cmap="PuOr_r")
    first, second = surface.read_text().split("\n")[0].split(",")[:2]
    right.set(xlabel=first, ylabel=second, title="the strongest interaction, first split")
    fig.colorbar(shown, ax=right, label="effect, in deviations of the target")
    fig.savefig(path, dpi=120)
    plt.close(fig)


def parse(text):
    """Scores of pairs from their column of the table."""
    return {name: float(value) for name, value in (part.rsplit(" ", 1) for part in text.split("; ") if part)}


def read(path):
    """Rows of the table so far, numbers as numbers."""
    return tables.read(path, ("log_density", "rmse", "coverage", "seconds"))
