"""Numbers in the words of the guide's page on Stein particles, from the rows: a part of `facts`."""

import functools
import math

import numpy as np

from examples.studies.stein import stein_air_quality, stein_regression, stein_space_time
from examples.tools.tables import COUNTS, apart, direction, judged, listed, means, of_mean, rows_of, told

PAPER_MODEL = "stein_paper_model"  # the rows with the kernel and priors of the paper
NAMED = ("airfoil", "challenger", "concreteslump")  # of its table 2, with rows


def gaps(folder, other, name="stein_regression"):
    """The leading particles less another method, within splits, ``{set: [difference of a split]}``.

    Of sets of which both have three splits or more: fewer have no verdict.
    """
    return stein_regression.within_splits(rows_of(folder, name), stein_regression.ENOUGH)[other]


def over_sets(folder, other, name="stein_regression"):
    return judged([np.mean(own) for own in gaps(folder, other, name).values()])


def recipe_of_paper(folder, other):
    """The paper's recipe less another method, with its kernel and priors: over sets, and on which it is told apart."""
    rows = stein_regression.one_kernel(rows_of(folder, PAPER_MODEL))
    found = stein_regression.within_splits(rows, stein_regression.ENOUGH)[other]
    told_apart = [name for name, own in found.items() if direction(own)]
    return f"{judged([np.mean(own) for own in found.values()])}, by set seen on {listed(told_apart)}"


def on_named(folder, other):
    """Particles beside another method on those sets of which the paper says that methods differ, but parkinsons."""
    found = gaps(folder, other)
    return told({name: sign for name in NAMED if (sign := direction(found[name]))})


def beyond(folder, other):
    found = [direction(own) for own in gaps(folder, other).values()]
    return f"ahead on {found.count(1)} of {len(found)} sets, behind on {COUNTS[found.count(-1)]}"


def span(values, digits=2):
    """The least and the greatest."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def days_apart(folder):
    """Particles less a chain on air quality, paired by the day held out."""
    found = stein_air_quality.over_days(rows_of(folder, "stein_air_quality")).values()
    return judged([first - second for first, second in found])


def months_apart(folder, pair=stein_space_time.PAIR):
    """Particles less chains, or another pair, at the paper's number of rows, paired by the month held out."""
    rows = rows_of(folder, "stein_space_time")
    found = stein_air_quality.over_days(rows, dict.fromkeys(pair)).values()
    return judged([first - second for first, second in found], 4)


def months_errors(folder):
    """RMSE of particles less that of chains, at the paper's number of rows, paired by the month held out."""
    found = {(row["engine"], row["day"]): float(row["rmse"]) for row in rows_of(folder, "stein_space_time")}
    first, second = stein_space_time.PAIR
    return judged([found[first, day] - own for (engine, day), own in found.items() if engine == second], 5)


def joint_apart(folder):
    """Particles of hyper-parameters and whitened values on minibatches, less chains, paired by the month held out."""
    months = stein_air_quality.over_days(rows_of(folder, "stein_space_time"), dict.fromkeys(stein_space_time.PAIR))
    rows = {row["day"]: float(row["log_density"]) for row in joint_rows(folder)}
    return judged([rows[day] - chain for day, (_, chain) in months.items()])


def joint_rows(folder):
    """Rows of joint particles on the months, which lie among those of the days."""
    months = {row["day"] for row in rows_of(folder, "stein_space_time")}
    return [r for r in rows_of(folder, "stein_air_quality") if r["engine"] == "stein" and r["day"] in months]


def most(folder, column):
    """The largest value of a column over the months."""
    return f"{max(float(row[column]) for row in rows_of(folder, 'stein_space_time') if row[column]):.3f}"


def masses(folder, method):
    """Least and greatest distance of a method's mass of a mode from that of a grid, over seeds."""
    rows = rows_of(folder, "two_modes")
    grid = next(float(row["mass"]) for row in rows if row["method"] == "grid")
    found = [abs(float(row["mass"]) - grid) for row in rows if row["method"] == method]
    return span(found, 3)


def spreads(folder):
    found = [float(row["sd_over_nuts"]) for row in rows_of(folder, "conditioned_particles")]
    return span(found)


def few_particles(folder):
    kind = stein_regression.leading(rows_of(folder, "stein_regression")).split(",")[0]
    found = gaps(folder, f"{kind}, 2 particles")
    gained = [f"{name} ({np.mean(own):.3f})" for name, own in found.items() if direction(own) > 0]
    said = f": {', '.join(gained)}" if gained else ""
    return f"Gains from 2 to 20 particles are seen on {len(gained)} of {len(found)} sets{said}"


def on_labels(folder):
    """Rows of the labels, and the leading particles among their engines."""
    rows = rows_of(folder, "stein_classification")
    return rows, stein_regression.leading(rows, "engine")


def times_nuts(folder):
    """Time of 20 particles over that of NUTS on labels, the least and the most over sets."""
    rows, most = on_labels(folder)
    found = means(rows, "dataset", "engine", "seconds")
    ratios = [found[most][one] / found["NUTS"][one] for one in found[most]]
    return f"from {min(ratios):.2g} to {max(ratios):.2g} times"


def faster_than_nuts(folder):
    """On how many sets of the regression the leading particles took less time than NUTS."""
    rows = stein_regression.with_enough(rows_of(folder, "stein_regression"))
    found = means(rows, "dataset", "method", "seconds")
    both = apart(found[stein_regression.leading(rows)], found["NUTS"])
    return f"{COUNTS[sum(gap < 0 for gap in both.values())]} of {len(both)}"


def labels_and_nuts(folder):
    """The largest mean difference from NUTS over sets, and the largest of its errors over splits."""
    rows, most = on_labels(folder)
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        scores.setdefault(row["dataset"], {}).setdefault(row["engine"], []).append(float(row["log_density"]))
    found = [of_mean(np.subtract(own[most], own["NUTS"])) for own in scores.values()]
    gap, error = (math.ceil(1000 * max(abs(one[k]) for one in found)) / 1000 for k in (0, 1))
    return f"within {gap:.3f} nats of NUTS on {len(found)} sets, with errors of at most {error:.3f}"


def beside_labels(folder, metric, other):
    """Of particles less that of another engine: the mean over sets, and on how many it is not below."""
    rows, most = on_labels(folder)
    found = means(rows, "dataset", "engine", metric)
    own = [*apart(found[most], found[other]).values()]
    if metric != "accuracy":
        return judged(own)
    reached = COUNTS[sum(gap > -1e-9 for gap in own)]
    return f"not below on {reached} of {COUNTS[len(own)]} sets, in the mean {judged(own, 4)}"


def calibrations(folder, wanted=None):
    """Calibration error less that of variational inference, on a set, or on those where a t test sees a difference."""
    rows, most = on_labels(folder)
    found = {}
    for row in rows:
        found.setdefault(row["dataset"], {}).setdefault(row["engine"], []).append(float(row["calibration_error"]))
    gaps = {name: np.subtract(own[most], own["variational"]) for name, own in found.items()}
    shown = [name for name in gaps if name == wanted or (wanted is None and direction(gaps[name]))]
    return " and ".join(f"{judged(gaps[name])} on {name}" for name in shown)


def times(folder, other, own=stein_regression.with_enough, name="stein_regression"):
    """Seconds of the leading particles over those of another method, of ``own`` rows of a file."""
    rows = own(rows_of(folder, name))
    found, most = means(rows, "dataset", "method", "seconds"), stein_regression.leading(rows)
    ratios = [found[most][name] / found[other][name] for name in found[most] if name in found[other]]
    return f"{min(ratios):.2g} to {max(ratios):.2g} times on {len(ratios)} sets"


def times_nuts_on_air(folder, name, engines):
    """Seconds of particles over those of chains on air quality, by the days or months held out."""
    found = means(rows_of(folder, name), "day", "engine", "seconds")
    ratios = [found[engines[0]][day] / own for day, own in found[engines[1]].items()]
    return f"{min(ratios):.2f} to {max(ratios):.2f} times"


def chains_in_one_mode(folder):
    """Chains with at least 0.9 of their draws in one of the two modes."""
    rows = [row for row in rows_of(folder, "two_modes") if row["method"].startswith("NUTS")]
    own = [float(mass) for row in rows for mass in row["rests_on"].split()]
    in_long, in_short = sum(mass > 0.9 for mass in own), sum(mass < 0.1 for mass in own)
    return f"{in_long} of {len(own)} chains are in the long mode, {in_short} in the short one"


FACTS = {
    "beyond, maximum likelihood": functools.partial(beyond, other="maximum likelihood"),
    "beyond, one kernel": functools.partial(beyond, other="stein, 20 particles"),
    "beyond, variational": functools.partial(beyond, other="variational"),
    "beyond, 2 starts": functools.partial(beyond, other="variational, 2 starts"),
    "model of the paper, its particles over sets": functools.partial(
        over_sets, other="stein, 20 particles", name=PAPER_MODEL
    ),
    "model of the paper, NUTS over sets": functools.partial(over_sets, other="NUTS", name=PAPER_MODEL),
    "days, density": days_apart,
    "months, seconds": functools.partial(times_nuts_on_air, name="stein_space_time", engines=stein_space_time.PAIR),
    "months, density": months_apart,
    "months, joint": joint_apart,
    "months, joint densities": lambda folder: ", ".join(f"{float(r['log_density']):.3f}" for r in joint_rows(folder)),
    "months, joint hours": lambda folder: f"{sum(float(r['seconds']) for r in joint_rows(folder)) / 3600:.2f}",
    "months, chains": functools.partial(most, column="r_hat"),
    "months, moved": functools.partial(most, column="moved"),
    "masses, weights": functools.partial(masses, method="weights of particles"),
    "masses, shares": functools.partial(masses, method="share of particles"),
    "spreads": spreads,
    "few particles": few_particles,
    "longer than NUTS, labels": times_nuts,
    "faster than NUTS, regression": faster_than_nuts,
    "labels and NUTS": labels_and_nuts,
    "calibration": functools.partial(calibrations, wanted="mammographic"),
    "calibration, seen": calibrations,
    **{
        f"recipe of the paper, {short}": functools.partial(recipe_of_paper, other=other)
        for short, other in (("ML", "maximum likelihood"), ("VI", "variational"), ("NUTS", "NUTS"))
    },
    "named sets, ML": functools.partial(on_named, other="maximum likelihood"),
    "named sets, VI": functools.partial(on_named, other="variational"),
    "months, errors": months_errors,
    "accuracy beside VI": functools.partial(beside_labels, metric="accuracy", other="variational"),
    "accuracy beside NUTS": functools.partial(beside_labels, metric="accuracy", other="NUTS"),
    "particles, times of ML": functools.partial(times, other="maximum likelihood"),
    "recipe of the paper, times of ML": functools.partial(
        times, other="maximum likelihood", own=stein_regression.one_kernel, name=PAPER_MODEL
    ),
    "chains in one mode": chains_in_one_mode,
}
