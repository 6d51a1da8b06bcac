"""Numbers in the words of the guide's page on orthogonally decoupled posteriors, from the rows: a part of `facts`."""

import functools

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


def equal_seconds_ahead(folder, name):
    rows = [row for row in equal_seconds.at_the_end(rows_of(folder, "equal_seconds")) if row["set"] == name]
    return judged(equal_seconds.ahead(rows, name, equal_seconds.SECOND))


def long_ahead(folder, mark, name="kin40k, 860 seconds"):
    """By how much the orthogonal basis is ahead at a fifth of the long race or more, and after how many seconds."""
    rows = [row for row in rows_of(folder, "equal_seconds") if (row["set"], row["mark"]) == (name, str(mark))]
    seconds = np.mean([float(row["seconds"]) for row in rows])
    return f"{judged(equal_seconds.ahead(rows, name, equal_seconds.SECOND))} after {seconds:.0f}"


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


def long_told(folder, first, second):
    """On which sets one of the small bases of the long runs, 64 and 128 points, is ahead of another after all steps."""
    rows = run_tables.read(path_of(folder, "long_runs.csv"))
    own = [row for row in rows if row["experiment"] == "decoupled" and row["settings"].startswith("beta=64 gamma=128 ")]
    found = run_tables.paired(own, first, second, "log_density")
    return told({name: seen(*one[:3]) for name, one in found.items()})


FACTS = {
    "long bases, Orth over Coupled": functools.partial(long_told, first="Orth", second="Coupled"),
    "larger bases, errors": larger_errors,
    **{
        f"larger bases, {first} over {second}": functools.partial(larger_told, first=first, second=second)
        for first, second in (
            ("CoupledNat(400)", "Coupled(400)"),
            ("OrthNat", "Orth"),
            ("Orth", "Coupled(400)"),
        )
    },
    "optima": functools.partial(bounds_apart, first="Orth", second="Coupled", key="optimum"),
    "optima, labels": functools.partial(bounds_apart, first="Orth", second="Coupled", name="ringnorm", key="optimum"),
    "iterations, 10 nats": functools.partial(
        iterations, methods=("OrthNat", "CoupledNat", "Orth", "Coupled"), key="iterations_to_10_nats"
    ),
    "iterations of the paper": functools.partial(
        iterations, methods=decoupled_convergence.OF_PAPER, key="iterations_to_10_nats"
    ),
    **{
        f"{first} over {second}, {name}": functools.partial(bounds_apart, first=first, second=second, name=name)
        for first, second in (
            ("Hybrid", "Decoupled"),
            ("Orth, no divisor", "Hybrid"),
            ("Orth", "Orth, no divisor"),
        )
        for name in ("concrete", "ringnorm")
    },
    "equal seconds, kin40k": functools.partial(equal_seconds_ahead, name="kin40k"),
    "equal seconds, a fifth": functools.partial(long_ahead, mark=1),
    "equal seconds, two fifths": functools.partial(long_ahead, mark=2),
    "equal seconds, long": functools.partial(equal_seconds_ahead, name="kin40k, 860 seconds"),
}
