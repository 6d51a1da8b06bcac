"""Table and figure of `beyond`: the model chosen on each split beside the best rows that the papers print."""

import csv
from pathlib import Path

import numpy as np

from examples.tools import tables
from examples.tools.tables import markdown, of_mean, with_error

__all__ = ["LINEAR", "figure", "published", "read", "table"]

NUMBERS = ("bound", "log_density", "rmse", "seconds")
LINEAR = "linear, normal"  # the control


def read(path):
    """Rows of the table so far, numbers as numbers."""
    return tables.read(path, NUMBERS)


def published(folder):
    """By set: the best row of a GP, of a CVAE, and the linear model's, ``(log density, method)``, as far as printed."""
    found = {}
    for file in ("seed004_table2_test_loglik_all_methods.csv", "seed000_regression_test_loglik.csv"):
        path = Path(folder) / "published" / file
        for row in csv.DictReader(path.read_text().splitlines()) if path.exists() else []:
            if row["value"] and row["metric"].startswith("test_loglik"):
                kind = "linear" if row["method"] == "Linear" else "CVAE" if "CVAE" in row["method"] else "GP"
                here, name = (float(row["value"]), row["method"]), row["dataset"].replace("boston", "housing")
                for place in (kind, "GP") if kind == "linear" else (kind,):  # a linear model is a GP, too
                    own = found.setdefault(name, {})
                    own[place] = max(own.get(place, here), here)
    return found


def chosen(rows, name):
    """Of every split the row whose bound is best; and the linear model's log density, by split."""
    own = [row for row in rows if row["set"] == name]
    lines = {row["split"]: row["log_density"] for row in own if row["model"] == LINEAR}
    best = {}
    for row in sorted((row for row in own if row["model"] != LINEAR), key=lambda row: row["bound"]):
        best[row["split"]] = row
    return best, lines


def verdict(mean, error, printed):
    """In words; a difference of less than two standard errors over splits decides nothing."""
    if not abs(mean - printed) > 2 * error:
        return "not decided"
    return "better" if mean > printed else "worse"


def table(rows, folder):
    """Markdown: ours by set beside what is printed, and the gains over the linear model on both sides."""
    printed, lines = published(folder), []
    columns = ["set", "splits", "chosen by bound", "ours", "best printed GP", "best printed CVAE", "verdict"]
    columns += ["gain over linear: ours", "printed"]
    for name in dict.fromkeys(row["set"] for row in rows):
        best, control = chosen(rows, name)
        mean, error = of_mean([row["log_density"] for row in best.values()])
        gain = of_mean([best[split]["log_density"] - control[split] for split in best if split in control])
        names = [best[split]["model"] for split in sorted(best)]
        models = ", ".join(f"{one} ({names.count(one)})" for one in dict.fromkeys(names))
        own = printed.get(name, {})
        texts = [f"{own[kind][0]:.2f}, {own[kind][1]}" if kind in own else "-" for kind in ("GP", "CVAE")]
        other = f"{own['GP'][0] - own['linear'][0]:.2f}" if "linear" in own else "-"
        said = verdict(mean, error, own["GP"][0]) if "GP" in own else "-"
        ours, more = (with_error(*one) for one in ((mean, error), gain))
        lines.append([name, str(len(best)), models, ours, *texts, said, more, other])
    return markdown(columns, lines)


def figure(rows, folder, path):
    """Differences to the best printed GP row, every split a dot, the mean with two standard errors."""
    import matplotlib.pyplot as plt

    printed = published(folder)
    names = [name for name in dict.fromkeys(row["set"] for row in rows) if "GP" in printed.get(name, {})]
    fig, axis = plt.subplots(figsize=(7, 1.2 + 0.45 * len(names)), layout="constrained")
    for height, name in enumerate(reversed(names)):
        gaps = [row["log_density"] - printed[name]["GP"][0] for row in chosen(rows, name)[0].values()]
        mean, error = of_mean(gaps)
        axis.plot(gaps, np.full(len(gaps), height), "o", color="0.7", markersize=4)
        axis.errorbar(mean, height, xerr=0 if np.isnan(error) else 2 * error, fmt="s", color="#0072B2", capsize=3)
    axis.axvline(0, color="k", lw=0.8)
    axis.set(
        yticks=range(len(names)), yticklabels=names[::-1], xlabel="test log density above the best printed GP, nats"
    )
    fig.savefig(path, dpi=120)
    plt.close(fig)
