"""Tidy tables of results, for the examples: a list of rows, written whole after each new one, so that none is lost."""

import csv

import numpy as np

__all__ = ["markdown", "mean_and_error", "of_mean", "read", "save", "with_error"]


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


def with_error(mean, error, digits=3):
    """``mean ± error``; the mean alone where there is no error."""
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def markdown(head, lines):
    """A table of markdown: the texts of its head, and of the lines below it."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])
