"""Tidy tables of results, for the examples: a list of rows, written whole after each new one, so that none is lost."""

import csv
import io
import re

import numpy as np
from scipy import stats

__all__ = [
    "COUNTS", "apart", "bold", "direction", "half_width", "judged", "listed", "markdown", "mean_and_error", "means",
    "of_mean", "path_of", "read", "rows_of", "save", "seen", "told", "with_error",
]  # fmt: skip

COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def read(path, floats=()):
    """Rows of a table so far, none where there is no file: splits and columns ``floats`` as numbers, others as text."""
    rows = csv.DictReader(path.read_text().splitlines()) if path.exists() else []
    kinds = {"split": int, **dict.fromkeys(floats, float)}
    return [row | {key: kind(row[key]) for key, kind in kinds.items() if key in row} for row in rows]


def save(path, rows):
    """Write rows (dictionaries with the same keys) as comma-separated text with a header."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def mean_and_error(rows, by, metrics):
    """Means over rows and their standard errors (NaN for one row), ``{values of by: {metric: (mean, error)}}``."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    found = {}
    for place, own in groups.items():
        found[place] = {metric: of_mean([row[metric] for row in own]) for metric in metrics}
    return found


def of_mean(values):
    """Mean and its standard error, NaN for one value."""
    values = np.asarray(values, float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(error)


def half_width(error, count):
    """Half of a 95 % interval for the mean of so many values, of Student's t; NaN for one value."""
    return float(stats.t.ppf(0.975, count - 1)) * error if count > 1 else np.nan


def seen(mean, error, count):
    """1 or -1 where a mean of so many values is not zero by a t test at 5 %, 0 elsewhere.

    Two errors are too few for few values.
    """
    return int(np.sign(mean)) if error > 0 and abs(mean) > half_width(error, count) else 0


def direction(values):
    """`seen` of the mean of values."""
    return seen(*of_mean(values), len(values))


def bold(text, is_seen):
    """A text of markdown, bold where a difference is seen."""
    return f"**{text}**" if is_seen else text


def judged(values, digits=3):
    """``mean ± error (how many)`` of differences, the first two bold where a t test at 5 % sees that they are not 0."""
    values = list(values)
    return f"{bold(with_error(*of_mean(values), digits), direction(values))} ({len(values)})"


def listed(names):
    """``a, b and c``, or ``none``."""
    *first, last = names or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def told(directions):
    """Where a method is ahead and where behind, of ``{set: 1, -1 or 0}``."""
    signs = {sign: [name for name, own in directions.items() if own == sign] for sign in (1, -1, 0)}
    said = f"ahead on {listed(signs[1])}" + (f", behind on {listed(signs[-1])}" if signs[-1] else "")
    return said + (f", not seen on {listed(signs[0])}" if signs[0] else "")


def with_error(mean, error, digits=3):
    """``mean ± error``; the mean alone where there is no error."""
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def markdown(head, lines):
    """A table of markdown: the texts of its head, and of the lines below it."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def path_of(folder, name):
    """Where a file of rows is: in a folder, or, of the folder of all examples, beside the program that wrote it."""
    known = (folder / name, folder / "results" / name, *folder.glob(f"studies/*/{name}"))
    own = [path for path in known if path.exists()]
    if len(own) != 1:
        raise FileNotFoundError(f"{name} must be below {folder} once, but is {len(own)} times")
    return own[0]


def rows_of(folder, name):
    """Rows of the first table of a file in a folder, as text."""
    text = re.split(r"\n(?=component,)", path_of(folder, f"{name}.csv").read_text())[0]
    return list(csv.DictReader(io.StringIO(text)))


def means(rows, line, column, metric):
    """Means of a metric, ``{column: {line: mean}}``."""
    found: dict[str, dict[str, float]] = {}
    for (one, other), own in mean_and_error(rows, (line, column), [metric]).items():
        found.setdefault(other, {})[one] = own[metric][0]
    return found


def apart(one, other):
    """Differences of two methods, on the sets that both have."""
    return {name: one[name] - other[name] for name in one if name in other}
