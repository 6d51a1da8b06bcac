"""Numbers in the words of the guide's page on Stein particles, from the rows: a part of `facts`."""

import functools
import math

import numpy as np

from examples.studies.stein import stein_air_quality, stein_regression, stein_space_time
from examples.tools.tables import COUNTS, apart, direction, half_width, judged, means, of_mean, rows_of, told

PAPER_MODEL = "stein_paper_model"  # the rows with the kernel and priors of the paper


def gaps(folder, other, name="stein_regression"):
    """The leading particles less another method, within splits, ``{set: [difference of a split]}``.

    Of sets of which both have three splits or more: fewer have no verdict.
    """
    return stein_regression.within_splits(rows_of(folder, name), stein_regression.ENOUGH)[other]


def told_of_sets(folder, other, name=PAPER_MODEL):
    """On which sets particles are ahead of another method by a t test, and the mean over sets."""
    found = {one: direction(own) for one, own in gaps(folder, other, name).items()}
    return f"{told(found)}, mean over sets {over_sets(folder, other, name)}"


def over_sets(folder, other, name="stein_regression"):
    return judged([np.mean(own) for own in gaps(folder, other, name).values()])


def beyond(folder, other):
    found = [direction(own) for own in gaps(folder, other).values()]
    return f"Ahead by a t test on {found.count(1)} of {len(found)} sets, behind on {COUNTS[found.count(-1)]}"


def span(values, digits=2):
    """The least and the greatest."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def days_apart(folder):
    """Particles less a chain on air quality, paired by the day held out."""
    found = stein_air_quality.over_days(rows_of(folder, "stein_air_quality")).values()
    return judged([first - second for first, second in found])


def days_spread(folder, column):
    """Least and greatest of a column of `stein_auto` over hyper-parameters and days."""
    rows = rows_of(folder, "stein_air_quality_spread")
    found = [abs(float(row[column])) for row in rows if row["engine"] == "stein_auto"]
    return span(found)


def months_apart(folder, pair=stein_space_time.PAIR):
    """Particles less chains, or another pair, at the paper's number of rows, paired by the month held out."""
    rows = rows_of(folder, "stein_space_time")
    found = stein_air_quality.over_days(rows, dict.fromkeys(pair)).values()
    return judged([first - second for first, second in found], 4)


def joint_apart(folder):
    """Particles of hyper-parameters and whitened values on minibatches, less chains, paired by the month held out."""
    months = stein_air_quality.over_days(rows_of(folder, "stein_space_time"), dict.fromkeys(stein_space_time.PAIR))
    rows = {row["day"]: float(row["log_density"]) for row in joint_rows(folder)}
    return judged([rows[day] - chain for day, (_, chain) in months.items()])


def joint_rows(folder):
    """Rows of joint particles on the months, which lie among those of the days."""
    months = {row["day"] for row in rows_of(folder, "stein_space_time")}
    return [r for r in rows_of(folder, "stein_air_quality") if r["engine"] == "stein" and r["day"] in months]


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


def near_nuts(folder, name="stein_regression"):
    """Sets on which no more than the 0.02 nats of "as good as" can be missing: the lower end of a 95 % interval."""
    found = {one: lowest(own) for one, own in gaps(folder, "NUTS", name).items()}
    missing = [one for one, low in found.items() if low < -0.02]
    said = f", not decided on {', '.join(missing)}" if missing else ""
    near = f"{len(found) - len(missing)} of {len(found)}"
    return f"No more than 0.02 nats are missing, by 95 % intervals, on {near} sets{said}"


def lowest(values):
    """The lower end of a 95 % interval for the mean, of Student's t."""
    mean, error = of_mean(values)
    return mean - half_width(error, len(values))


def behind_nuts(folder, name="stein_regression"):
    found = {one: -np.mean(own) for one, own in gaps(folder, "NUTS", name).items() if direction(own) < 0}
    said = (f"{name} ({gap:.{3 if gap >= 0.001 else 4}f})" for name, gap in found.items())
    return "Behind by a t test on " + (", ".join(said) or "none")


def few_particles(folder):
    kind = stein_regression.leading(rows_of(folder, "stein_regression")).split(",")[0]
    found = gaps(folder, f"{kind}, 2 particles")
    gained = [f"{name} ({np.mean(own):.3f})" for name, own in found.items() if direction(own) > 0]
    said = f": {', '.join(gained)}" if gained else ""
    return f"Gains from 2 to 20 particles are seen by a t test on {len(gained)} of {len(found)} sets{said}"


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


def beside_labels(folder, metric, other):
    """Of particles less that of another engine: the mean over sets, and on how many it is not below."""
    rows, most = on_labels(folder)
    found = means(rows, "dataset", "engine", metric)
    own = [*apart(found[most], found[other]).values()]
    if metric != "accuracy":
        return judged(own)
    reached = COUNTS[sum(gap > -1e-9 for gap in own)]
    return f"not below on {reached} of {COUNTS[len(own)]} sets, in the mean {judged(own, 4)}"


def calibration_on(folder, name):
    """Of particles less that of variational inference, on one set, paired by split."""
    rows, most = on_labels(folder)
    found = {
        engine: {
            r["split"]: float(r["calibration_error"]) for r in rows if (r["dataset"], r["engine"]) == (name, engine)
        }
        for engine in (most, "variational")
    }
    return judged(apart(found[most], found["variational"]).values())


def times(folder, other):
    """Seconds of the leading particles over those of another method on the regression sets."""
    found = means(stein_regression.with_enough(rows_of(folder, "stein_regression")), "dataset", "method", "seconds")
    most = stein_regression.leading(rows_of(folder, "stein_regression"))
    ratios = [found[most][name] / found[other][name] for name in found[most] if name in found[other]]
    return f"{min(ratios):.2g} to {max(ratios):.2g} times on {len(ratios)} sets"


def times_nuts_on_air(folder, name, engines):
    """Seconds of particles over those of chains on air quality, by the days or months held out."""
    found = means(rows_of(folder, name), "day", "engine", "seconds")
    ratios = [found[engines[0]][day] / own for day, own in found[engines[1]].items()]
    return f"{min(ratios):.2f} to {max(ratios):.2f} times"


def fastest_few(folder):
    """On how many sets 2 particles of one kernel took the least time of all methods."""
    found = means(stein_regression.with_enough(rows_of(folder, "stein_regression")), "dataset", "method", "seconds")
    sets = found["stein, 2 particles"]
    first = sum(
        min((own[name], method) for method, own in found.items() if name in own)[1] == "stein, 2 particles"
        for name in sets
    )
    return f"{COUNTS[first]} of {len(sets)}"


def chains_in_one_mode(folder):
    """Chains with at least 0.9 of their draws in one of the two modes."""
    rows = [row for row in rows_of(folder, "two_modes") if row["method"].startswith("NUTS")]
    own = [float(mass) for row in rows for mass in row["rests_on"].split()]
    in_long, in_short = sum(mass > 0.9 for mass in own), sum(mass < 0.1 for mass in own)
    return f"{in_long} of {len(own)} chains are in the long mode, {in_short} in the short one"


FACTS = {
    "beyond, maximum likelihood": functools.partial(beyond, other="maximum likelihood"),
    "beyond, one kernel": functools.partial(beyond, other="stein, 20 particles"),
    "over sets, maximum likelihood": functools.partial(over_sets, other="maximum likelihood"),
    "over sets, variational": functools.partial(over_sets, other="variational"),
    "beyond, variational": functools.partial(beyond, other="variational"),
    "beyond, 2 starts": functools.partial(beyond, other="variational, 2 starts"),
    "near NUTS": near_nuts,
    **{
        f"model of the paper, {short}": functools.partial(told_of_sets, other=other)
        for short, other in (
            ("ML", "maximum likelihood"),
            ("VI", "variational"),
            ("its particles", "stein, 20 particles"),
        )
    },
    "model of the paper, NUTS over sets": functools.partial(over_sets, other="NUTS", name=PAPER_MODEL),
    "model of the paper, near NUTS": functools.partial(near_nuts, name=PAPER_MODEL),
    "model of the paper, behind NUTS": functools.partial(behind_nuts, name=PAPER_MODEL),
    "days, density": days_apart,
    "days, seconds": functools.partial(times_nuts_on_air, name="stein_air_quality", engines=("stein_auto", "NUTS")),
    "months, seconds": functools.partial(times_nuts_on_air, name="stein_space_time", engines=stein_space_time.PAIR),
    "days, means": functools.partial(days_spread, column="apart"),
    "days, spread": functools.partial(days_spread, column="ratio"),
    "months, density": months_apart,
    "months, joint": joint_apart,
    "months, joint densities": lambda folder: ", ".join(f"{float(r['log_density']):.3f}" for r in joint_rows(folder)),
    "months, joint hours": lambda folder: f"{sum(float(r['seconds']) for r in joint_rows(folder)) / 3600:.2f}",
    **{
        f"months, {name} over their start": functools.partial(months_apart, pair=(engine, stein_space_time.STARTS))
        for name, engine in zip(("particles", "chains"), stein_space_time.PAIR, strict=True)
    },
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
    "calibration": functools.partial(beside_labels, metric="calibration_error", other="variational"),
    "calibration, mammographic": functools.partial(calibration_on, name="mammographic"),
    "accuracy beside VI": functools.partial(beside_labels, metric="accuracy", other="variational"),
    "accuracy beside NUTS": functools.partial(beside_labels, metric="accuracy", other="NUTS"),
    "particles, times of ML": functools.partial(times, other="maximum likelihood"),
    "fastest, 2 particles": fastest_few,
    "chains in one mode": chains_in_one_mode,
}
