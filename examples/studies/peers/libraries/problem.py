"""Data and starting points, the same for every party; NumPy and nothing else, as each runs in its own environment."""

from typing import NamedTuple

import numpy as np

from examples.studies.peers.libraries.jobs import Job
from examples.tools.datasets import load, split_mask, standardise

ROWS, COLUMNS, CHUNK = 36_000, 8, 4096
VARIANCE, NOISE_VARIANCE, ADAM, NATURAL = 1.0, 0.1, 0.01, 0.1


class Problem(NamedTuple):
    """Rows to train on and to test, standardised, the order in which inducing inputs are taken, and the jitter.

    Everyone starts with inducing inputs at the first rows of that order, lengthscales ``sqrt(D)``, variance 1, noise
    variance 0.1, mean zero, and the belief at the prior; all of them are trained. Batches are drawn with replacement,
    but for ours, whose plate draws without. Predictions follow ten natural steps.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    order: np.ndarray
    lengthscale: np.ndarray
    jitter: float


def problem_of(job: Job, folder: str) -> Problem:
    rng = np.random.default_rng(0)
    if job.table == "simulated":  # as large as kin40k
        X = rng.normal(size=(ROWS + 1000, COLUMNS))
        y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=len(X))
        test = np.arange(len(X)) >= ROWS
    else:
        X, y, masks = load(job.table, folder) if folder else load(job.table)
        test = split_mask(masks, 0)
    X, y = standardise(X, ~test).astype(job.dtype), standardise(y[:, None], ~test)[:, 0].astype(job.dtype)
    order = np.random.default_rng(0).permutation(int((~test).sum()))
    lengthscale = np.full(X.shape[1], X.shape[1] ** 0.5, job.dtype)
    jitter = 1e-6 if job.dtype == "float64" else 1e-4
    return Problem(X[~test], y[~test], X[test], y[test], order, lengthscale, jitter)


def new_rows(job: Job, columns: int = COLUMNS) -> np.ndarray:
    """The rows of a prediction."""
    return np.random.default_rng(1).normal(size=(job.rows, columns)).astype(job.dtype)


def parts(rows, size: int = CHUNK) -> list:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def log_density(mean, variance, y) -> float:
    """Mean Gaussian log density of test rows; ``variance`` has the noise in it."""
    mean, variance, y = (np.asarray(value, float).reshape(-1) for value in (mean, variance, y))
    return float(np.mean(-0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)))
