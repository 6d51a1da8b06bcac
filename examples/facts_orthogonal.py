"""Numbers in the words of the guide's page on orthogonally decoupled posteriors, from the rows: a part of `facts`."""

import functools

import numpy as np

from examples import equal_seconds, run_tables
from examples.tables import of_mean, rows_of, with_error


def on_set(folder, method, key, name="concrete"):
    """Values of a method over seeds, None where it was not reached."""
    rows = [row for row in rows_of(folder, "decoupled_convergence") if row["task"].startswith(name)]
    return [float(row[key]) if row[key] else None for row in rows if row["method"] == method]


def optima(folder):
    """By how much the optimum with more points for the mean is above that without."""
    both = [on_set(folder, method, "optimum") for method in ("Orth", "Coupled")]
    return f"{with_error(*of_mean(np.subtract(*both)), 1)} nats"


def iterations(folder, methods, key, name="concrete"):
    found = {method: on_set(folder, method, key, name) for method in methods}
    steps = int(on_set(folder, "Orth", "steps", name)[0])
    words = {m: f"not in {steps}" if None in own else with_error(*of_mean(own), 0) for m, own in found.items()}
    return ", ".join(f"{method} {word}" for method, word in words.items())


def fewer_iterations(folder, first, second, key):
    """By how many iterations a method arrives before another, paired by seed."""
    both = [on_set(folder, method, key) for method in (second, first)]
    return with_error(*of_mean(np.subtract(*both)), 0)


def mean_ranks(folder, methods):
    """Mean ranks of test log density at the paper's sizes: over splits of a set, then over sets with its error.

    Fits of one set are of one version, and a set where a method has none does not count for it.
    """
    rows = run_tables.read(folder / "long_runs.csv")
    own = run_tables.at_paper_sizes(rows, "decoupled")
    fits: dict[tuple[str, int], dict[str, float]] = {}
    for row in run_tables.last_rounds(own):
        fits.setdefault((row["set"], row["split"]), {})[row["method"]] = row["log_density"]
    ranks: dict[str, dict[str, list[int]]] = {method: {} for method in methods}
    for (name, _), fit in fits.items():
        order = sorted(fit, key=fit.__getitem__, reverse=True)
        for method in (one for one in methods if one in fit):
            ranks[method].setdefault(name, []).append(order.index(method) + 1)
    found = {method: of_mean([np.mean(one) for one in own.values()]) for method, own in ranks.items()}
    return ", ".join(f"{method} {with_error(*own, 1)}" for method, own in found.items())


def equal_seconds_ahead(folder, name):
    rows = [row for row in equal_seconds.at_the_end(rows_of(folder, "equal_seconds")) if row["set"] == name]
    return with_error(*of_mean(equal_seconds.ahead(rows, name, equal_seconds.SECOND)))


def left(folder, methods, name):
    """Nats that methods are below their optimum after all steps, over seeds."""
    ends = [[on_set(folder, method, key, name) for key in ("optimum", "final_bound")] for method in methods]
    gaps = [of_mean(np.subtract(*own)) for own in ends]
    return ", ".join(f"{method} {with_error(*gap, 0)}" for method, gap in zip(methods, gaps, strict=True))


FACTS = {
    "optima": optima,
    "iterations, 10 nats": functools.partial(
        iterations, methods=("OrthNat", "CoupledNat", "Orth", "Coupled"), key="iterations_to_10_nats"
    ),
    "iterations, 1 percent": functools.partial(
        iterations, methods=("Orth", "Hybrid", "Decoupled"), key="iterations_to_1_percent"
    ),
    "iterations, labels": functools.partial(
        iterations, methods=("OrthNat", "CoupledNat", "Orth", "Coupled"), key="iterations_to_10_nats", name="ringnorm"
    ),
    "left, labels": functools.partial(left, methods=("Orth", "Hybrid", "Decoupled"), name="ringnorm"),
    "iterations, no divisor": functools.partial(
        fewer_iterations, first="Orth, no divisor", second="Hybrid", key="iterations_to_1_percent"
    ),
    "iterations, divisor": functools.partial(
        fewer_iterations, first="Orth", second="Orth, no divisor", key="iterations_to_1_percent"
    ),
    "mean ranks": functools.partial(mean_ranks, methods=("OrthNat", "CoupledNat", "Orth")),
    "equal seconds, kin40k": functools.partial(equal_seconds_ahead, name="kin40k"),
    "equal seconds, a quarter": functools.partial(equal_seconds_ahead, name="kin40k, points / 4"),
    "equal seconds, long": functools.partial(equal_seconds_ahead, name="kin40k, 860 seconds"),
}
