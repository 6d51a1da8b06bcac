"""Numbers that stand in the words of the guide's pages of results, each from the rows that it is about.

In a page ``<!--=NAME-->WORDS<!--.-->`` is shown as WORDS, which ``python -m examples.rebuild`` replaces by what `FACTS`
says of NAME; a test compares them, so neither the words nor the rows change alone.
"""

import csv
import functools
import io
import math
import re

import numpy as np

from examples import gam_interactions_tables, stein_regression
from examples.tables import mean_and_error, of_mean, with_error

FACT = re.compile(r"(<!--=([\w, ]+)-->)(.*?)(<!--\.-->)", re.S)
COUNTS = ("none", "one", "two", "three", "four", "five", "six")
PARTICLES = "stein, 20 particles"


def read(folder, name):
    """Rows of the first table of a file, as text."""
    text = re.split(r"\n(?=component,)", (folder / f"{name}.csv").read_text())[0]
    return list(csv.DictReader(io.StringIO(text)))


def means(folder, name, line, column, metric):
    """Means of a metric, ``{column: {line: mean}}``."""
    found: dict[str, dict[str, float]] = {}
    for (one, other), own in mean_and_error(read(folder, name), (line, column), [metric]).items():
        found.setdefault(other, {})[one] = own[metric][0]
    return found


def apart(one, other):
    """Differences of two methods, on the sets that both have."""
    return {name: one[name] - other[name] for name in one if name in other}


# Stein: 20 particles less another method, paired by split, ``{set: (difference, error)}``.


def gaps(folder, other):
    rows = read(folder, "stein_regression")
    return stein_regression.paired([row | {"log_density": float(row["log_density"])} for row in rows])[other]


def above_and_below(folder):
    found = [gap for gap, _ in gaps(folder, "maximum likelihood").values()]
    return f"Above on {sum(g > 0 for g in found)} of {len(found)} sets and below on {sum(g < 0 for g in found)}"


def over_sets(folder, other):
    return with_error(*of_mean([gap for gap, _ in gaps(folder, other).values()]))


def beyond(folder, other):
    found = [(gap, error) for gap, error in gaps(folder, other).values() if error > 0]
    better, worse = (sum(sign * gap > 2 * error for gap, error in found) for sign in (1, -1))
    return f"Beyond two errors on {better} sets and on {COUNTS[worse]} worse"


def near_nuts(folder):
    found = gaps(folder, "NUTS")
    return f"Within 0.01 nats on {sum(abs(gap) <= 0.01 for gap, _ in found.values())} of {len(found)} sets"


def behind_nuts(folder):
    found = {name: gap for name, (gap, error) in gaps(folder, "NUTS").items() if error > 0 and gap < -2 * error}
    return "Behind beyond two errors on " + ", ".join(f"{name} ({-gap:.3f})" for name, gap in found.items())


def few_particles(folder):
    found = [gap for gap, _ in gaps(folder, "stein, 2 particles").values()]
    return f"from 2 to 20 particles {sum(gap < 0.04 for gap in found)} of {len(found)} sets gain less than 0.04 nats"


def seconds(folder, name, column, other):
    """Time of 20 particles over that of another method, the least and the most over sets."""
    found = means(folder, name, "dataset", column, "seconds")
    ratios = [found[PARTICLES][one] / found[other][one] for one in found[PARTICLES] if one in found[other]]
    return f"from {min(ratios):.2g} to {max(ratios):.2g} times"


def labels_and_nuts(folder):
    found = means(folder, "stein_classification", "dataset", "engine", "log_density")
    own = apart(found[PARTICLES], found["NUTS"])
    return f"Within {math.ceil(1000 * max(map(abs, own.values()))) / 1000:.3f} nats of NUTS on {len(own)} sets"


def calibration(folder):
    found = means(folder, "stein_classification", "dataset", "engine", "calibration_error")
    own = apart(found[PARTICLES], found["variational"])
    return f"{with_error(*of_mean(list(own.values())))} over {len(own)} sets"


# The other papers.


def ahead(folder, name, model):
    return with_error(*of_mean([float(row["ahead"]) for row in read(folder, name) if row["model"] == model]))


def airfoil(folder, model, other):
    """By how much a model is above another on the same splits of airfoil."""
    rows = gam_interactions_tables.read(folder / "gam_interactions.csv")
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row["model"], {})[row["split"]] = float(row["log_density"])
    return f"{np.mean(list(apart(found[model], found[other]).values())):.2f}"


def optima(folder, task):
    found = {
        row["method"]: float(row["optimum"]) for row in read(folder, "decoupled_convergence") if row["task"] == task
    }
    return f"{found['Orth']:.0f} against {found['Coupled']:.0f}"


def iterations(folder, method):
    rows = read(folder, "decoupled_convergence")
    return next(r["iterations_to_1_percent"] for r in rows if r["method"] == method and "Gaussian" in r["task"])


def letters(folder, model):
    found = {row["model"]: float(row["value"]) for row in read(folder, "dgp_letters") if row["metric"] == "log_density"}
    return f"{found[model] - found['GP']:.1f}"


def stations(folder):
    found = means(folder, "stations", "station", "pooling", "log_density")
    return f"{np.mean([gap > 0 for gap in apart(found['partial'], found['none']).values()]):.0%}".replace("%", " %")


def rates(folder):
    found = means(folder, "decoupled_rates", "depth", "method", "ms_per_step")
    ratios = [found["decoupled"][depth] / found["coupled"][depth] for depth in found["coupled"]]
    return f"{min(ratios):.1f} to {max(ratios):.1f} times the time"


FACTS = {
    "above and below": above_and_below,
    "over sets, maximum likelihood": functools.partial(over_sets, other="maximum likelihood"),
    "over sets, variational": functools.partial(over_sets, other="variational"),
    "beyond, variational": functools.partial(beyond, other="variational"),
    "beyond, 2 starts": functools.partial(beyond, other="variational, 2 starts"),
    "near NUTS": near_nuts,
    "behind NUTS": behind_nuts,
    "few particles": few_particles,
    "longer than maximum likelihood": functools.partial(
        seconds, name="stein_regression", column="method", other="maximum likelihood"
    ),
    "longer than NUTS, labels": functools.partial(seconds, name="stein_classification", column="engine", other="NUTS"),
    "labels and NUTS": labels_and_nuts,
    "calibration": calibration,
    "ahead, counts": functools.partial(ahead, name="gam_counts", model="statsmodels GLMGam"),
    "ahead, labels": functools.partial(ahead, name="gam_binary", model="pyGAM LogisticGAM"),
    "airfoil, pairs": functools.partial(airfoil, model="GP, chosen pairs", other="GP, main effects"),
    "airfoil, pyGAM": functools.partial(airfoil, model="pyGAM, the same pairs", other="GP, chosen pairs"),
    "airfoil, EBM": functools.partial(airfoil, model="EBM, as many pairs", other="GP, chosen pairs"),
    "optima, concrete": functools.partial(optima, task="concrete, Gaussian"),
    "optima, ringnorm": functools.partial(optima, task="ringnorm, Bernoulli"),
    "iterations, OrthNat": functools.partial(iterations, method="OrthNat"),
    "iterations, Orth": functools.partial(iterations, method="Orth"),
    "iterations, Coupled": functools.partial(iterations, method="Coupled"),
    "letters, two layers": functools.partial(letters, model="LV-GP"),
    "letters, three layers": functools.partial(letters, model="LV-GP-GP-GP"),
    "stations": stations,
    "rates": rates,
}


def restated(text, folder):
    """The text with its facts as the rows have them."""
    return FACT.sub(lambda match: f"{match[1]}{FACTS[match[2]](folder)}{match[4]}", text)
