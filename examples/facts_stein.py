"""Numbers in the words of the guide's page on Stein particles, from the rows: a part of `facts`."""

import functools
import math

import numpy as np

from examples import stein_air_quality, stein_regression, stein_space_time
from examples.tables import COUNTS, apart, means, of_mean, rows_of, with_error


def gaps(folder, other):
    """The leading particles less another method, paired by split, ``{set: (difference, error)}``.

    Of sets of which both have three splits or more: fewer have no verdict.
    """
    return stein_regression.paired(rows_of(folder, "stein_regression"), stein_regression.ENOUGH)[other]


def over_sets(folder, other):
    return with_error(*of_mean([gap for gap, _ in gaps(folder, other).values()]))


def beyond(folder, other):
    found = [(gap, error) for gap, error in gaps(folder, other).values() if error > 0]
    better, worse = (sum(sign * gap > 2 * error for gap, error in found) for sign in (1, -1))
    return f"Ahead beyond two errors on {better} of {len(found)} sets, behind on {COUNTS[worse]}"


def span(values, digits=2):
    """The least and the greatest."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def days_apart(folder):
    """Particles less a chain on air quality, paired by the day held out."""
    found = stein_air_quality.over_days(rows_of(folder, "stein_air_quality")).values()
    return with_error(*of_mean([first - second for first, second in found]))


def days_spread(folder, column):
    """Least and greatest of a column of `stein_auto` over hyper-parameters and days."""
    rows = rows_of(folder, "stein_air_quality_spread")
    found = [abs(float(row[column])) for row in rows if row["engine"] == "stein_auto"]
    return span(found)


def months_apart(folder):
    """Particles less chains at the paper's number of rows, paired by the month held out."""
    rows = rows_of(folder, "stein_space_time")
    found = stein_air_quality.over_days(rows, dict.fromkeys(stein_space_time.PAIR)).values()
    return with_error(*of_mean([first - second for first, second in found]), 4)


def months_spread(folder, column):
    """Least and greatest over hyper-parameters and months: of means apart (0), without sign, or ratios of sd (1)."""
    found = [
        abs(one)
        for both in stein_space_time.apart(rows_of(folder, "stein_space_time")).values()
        for one in both[column]
    ]
    return span(found)


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


def near_nuts(folder):
    found = gaps(folder, "NUTS")
    return f"Within 0.01 nats on {sum(abs(gap) <= 0.01 for gap, _ in found.values())} of {len(found)} sets"


def behind_nuts(folder):
    found = {name: gap for name, (gap, error) in gaps(folder, "NUTS").items() if error > 0 and gap < -2 * error}
    said = (f"{name} ({-gap:.{3 if -gap >= 0.001 else 4}f})" for name, gap in found.items())
    return "Behind beyond two errors on " + ", ".join(said)


def few_particles(folder):
    kind = stein_regression.leading(rows_of(folder, "stein_regression")).split(",")[0]
    found = gaps(folder, f"{kind}, 2 particles")
    gained = [f"{name} ({gap:.3f})" for name, (gap, error) in found.items() if gap > 2 * error > 0]
    said = f": {', '.join(gained)}" if gained else ""
    return f"Gains from 2 to 20 particles are beyond two errors on {len(gained)} of {len(found)} sets{said}"


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
    return f"Within {gap:.3f} nats of NUTS on {len(found)} sets, with errors of at most {error:.3f}"


def calibration(folder):
    """Of particles less that of variational inference, over sets."""
    rows, most = on_labels(folder)
    found = means(rows, "dataset", "engine", "calibration_error")
    own = apart(found[most], found["variational"])
    return f"{with_error(*of_mean(list(own.values())))} over {len(own)} sets"


FACTS = {
    "beyond, maximum likelihood": functools.partial(beyond, other="maximum likelihood"),
    "beyond, one kernel": functools.partial(beyond, other="stein, 20 particles"),
    "over sets, maximum likelihood": functools.partial(over_sets, other="maximum likelihood"),
    "over sets, variational": functools.partial(over_sets, other="variational"),
    "beyond, variational": functools.partial(beyond, other="variational"),
    "beyond, 2 starts": functools.partial(beyond, other="variational, 2 starts"),
    "near NUTS": near_nuts,
    "days, density": days_apart,
    "days, means": functools.partial(days_spread, column="apart"),
    "days, spread": functools.partial(days_spread, column="ratio"),
    "months, density": months_apart,
    "months, means": functools.partial(months_spread, column=0),
    "months, spread": functools.partial(months_spread, column=1),
    "months, chains": functools.partial(most, column="r_hat"),
    "months, moved": functools.partial(most, column="moved"),
    "masses, weights": functools.partial(masses, method="weights of particles"),
    "masses, shares": functools.partial(masses, method="share of particles"),
    "spreads": spreads,
    "behind NUTS": behind_nuts,
    "few particles": few_particles,
    "longer than NUTS, labels": times_nuts,
    "faster than NUTS, regression": faster_than_nuts,
    "labels and NUTS": labels_and_nuts,
    "calibration": calibration,
}
