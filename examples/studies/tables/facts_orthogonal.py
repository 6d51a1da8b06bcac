"""Numbers in the words of the guide's page on orthogonally decoupled posteriors, from the rows: a part of `facts`."""

import functools
import re

import numpy as np

from examples.studies.orthogonal import decoupled_convergence, equal_seconds, larger_bases
from examples.studies.tables import run_tables
from examples.tools.tables import direction, judged, of_mean, path_of, rows_of, seen, told, with_error


def on_set(folder, method, key, name="concrete"):
    """Values of a method over seeds, None where it was not reached."""
    rows = [row for row in rows_of(folder, "decoupled_convergence") if row["task"].startswith(name)]
    return [float(row[key]) if row[key] else None for row in rows if row["method"] == method]


def iterations(folder, methods, key, name="concrete"):
    found = {method: on_set(folder, method, key, name) for method in methods}
    steps = int(on_set(folder, "Orth", "steps", name)[0])
    words = {m: f"not in {steps}" if None in own else with_error(*of_mean(own), 0) for m, own in found.items()}
    return ", ".join(f"{method} {word}" for method, word in words.items())


def bounds_apart(folder, first, second, name="concrete", key="final_bound"):
    """By how many nats the bound of a method is above another's after all steps, or its optimum, paired by seed."""
    return judged(np.subtract(*(on_set(folder, method, key, name) for method in (first, second))), 1)


def pairs(folder, first, second, experiment, metric="log_density"):
    """Differences of two bases on sets at the paper's sizes, `run_tables.paired`: fits of a set have one version."""
    rows = run_tables.at_paper_sizes(run_tables.read(path_of(folder, "long_runs.csv")), experiment)
    return run_tables.paired(rows, first, second, metric)


def sets_told(folder, first, second, experiment="decoupled"):
    return told({name: seen(*own[:3]) for name, own in pairs(folder, first, second, experiment).items()})


def of_two_versions(folder, first, second, name="keggdirected"):
    """A difference on a set where the two bases were run by different versions."""
    rows = [row for row in run_tables.read(path_of(folder, "long_runs.csv")) if row["set"] == name]
    own = [row for row in rows if re.match(run_tables.SIZES["decoupled"], row["settings"])]
    return run_tables.difference(*run_tables.paired(own, first, second, "log_density")[name][:3])


def mean_ranks(folder, methods, metric="log_density"):
    """Mean ranks of test log density or RMSE at the paper's sizes: over splits of a set, then over sets with its error.

    Fits of one set are of one version, and a set where a method has none does not count for it.
    """
    rows = run_tables.read(path_of(folder, "long_runs.csv"))
    own = run_tables.at_paper_sizes(rows, "decoupled")
    fits: dict[tuple[str, int], dict[str, float]] = {}
    for row in run_tables.last_rounds(own):
        fits.setdefault((row["set"], row["split"]), {})[row["method"]] = (
            -row["rmse"] if metric == "rmse" else row["log_density"]
        )
    ranks: dict[str, dict[str, list[int]]] = {method: {} for method in methods}
    for (name, _), fit in fits.items():
        order = sorted(fit, key=fit.__getitem__, reverse=True)
        for method in (one for one in methods if one in fit):
            ranks[method].setdefault(name, []).append(order.index(method) + 1)
    found = {method: of_mean([np.mean(one) for one in own.values()]) for method, own in ranks.items()}
    return ", ".join(f"{method} {with_error(*own, 1)}" for method, own in found.items())


def equal_seconds_ahead(folder, name):
    rows = [row for row in equal_seconds.at_the_end(rows_of(folder, "equal_seconds")) if row["set"] == name]
    return judged(equal_seconds.ahead(rows, name, equal_seconds.SECOND))


def larger_ranks(folder):
    """Mean ranks of two orthogonal bases and two larger coupled ones, over sets."""
    found = larger_bases.ranks(rows_of(folder, "larger_bases"))
    return ", ".join(f"{method} {with_error(*of_mean(own), 1)}" for method, own in found.items())


def larger_told(folder, first, second):
    """On which sets one of these bases is ahead of another."""
    rows = rows_of(folder, "larger_bases")
    names = dict.fromkeys(row["set"] for row in rows)
    return told({name: direction(equal_seconds.ahead(rows, name, second, first)) for name in names})


def larger_errors(folder, first="OrthNat", second="CoupledNat(400)"):
    """Mean absolute errors of one of these bases over those of another, least and greatest over sets."""
    rows = rows_of(folder, "larger_bases")
    names = dict.fromkeys(row["set"] for row in rows)
    mean = lambda name, method: np.mean([*larger_bases.values(rows, name, method, "mae").values()])  # noqa: E731
    ratios = [mean(name, first) / mean(name, second) for name in names]
    return f"{min(ratios):.2f} to {max(ratios):.2f} times"


FACTS = {
    "larger bases, ranks": larger_ranks,
    "larger bases, errors": larger_errors,
    "larger bases, OrthNat over CoupledNat(400)": functools.partial(
        larger_told, first="OrthNat", second="CoupledNat(400)"
    ),
    "optima": functools.partial(bounds_apart, first="Orth", second="Coupled", key="optimum"),
    "optima, labels": functools.partial(bounds_apart, first="Orth", second="Coupled", name="ringnorm", key="optimum"),
    "iterations, 10 nats": functools.partial(
        iterations, methods=("OrthNat", "CoupledNat", "Orth", "Coupled"), key="iterations_to_10_nats"
    ),
    "iterations, labels": functools.partial(
        iterations, methods=("OrthNat", "CoupledNat", "Orth", "Coupled"), key="iterations_to_10_nats", name="ringnorm"
    ),
    "iterations of the paper": functools.partial(
        iterations, methods=decoupled_convergence.OF_PAPER, key="iterations_to_10_nats"
    ),
    "iterations of the paper, labels": functools.partial(
        iterations, methods=decoupled_convergence.OF_PAPER, key="iterations_to_10_nats", name="ringnorm"
    ),
    **{
        f"{first} over {second}, {name}": functools.partial(bounds_apart, first=first, second=second, name=name)
        for first, second in (
            ("Orth", "Hybrid"),
            ("Hybrid", "Decoupled"),
            ("Orth, no divisor", "Hybrid"),
            ("Orth", "Orth, no divisor"),
        )
        for name in ("concrete", "ringnorm")
    },
    "mean ranks": functools.partial(mean_ranks, methods=("OrthNat", "CoupledNat", "Orth")),
    "mean ranks, RMSE": functools.partial(mean_ranks, methods=("OrthNat", "CoupledNat", "Orth"), metric="rmse"),
    **{
        f"sets, {first} over {second}": functools.partial(sets_told, first=first, second=second)
        for first, second in (*run_tables.BASES[1:], *run_tables.OTHERS)
    },
    **{
        f"labels, {first} over {second}": functools.partial(sets_told, first=first, second=second, experiment="classes")
        for first, second in (run_tables.BASES[1], run_tables.BASES[3], *run_tables.OTHERS)
    },
    **{
        f"two versions, {first} over {second}": functools.partial(of_two_versions, first=first, second=second)
        for first, second in run_tables.OTHERS
    },
    "equal seconds, kin40k": functools.partial(equal_seconds_ahead, name="kin40k"),
    "equal seconds, a quarter": functools.partial(equal_seconds_ahead, name="kin40k, points / 4"),
    "equal seconds, long": functools.partial(equal_seconds_ahead, name="kin40k, 860 seconds"),
}
