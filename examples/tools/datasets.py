"""Data for the examples: ``NAME.csv.gz`` with its fixed test masks ``NAME_splits.csv.gz``.

Files are numeric, comma separated, without header; the last column is the target (a whole label for
classification). The masks have a row for each datum and a column for each split, 1 = test. A few small sets lie in
``examples/data``; a folder with more of them is given by ``--data``.
"""

from pathlib import Path

import numpy as np

__all__ = ["available", "load", "split_mask", "standardise"]

HERE = Path(__file__).parents[1] / "data"
KINDS = ("regression", "classification")


def load(name, path=HERE):
    """Inputs ``(N, D)``, targets ``(N,)`` and boolean test masks ``(N, splits)`` of one data set.

    The file is looked for in ``path``, in its folders ``regression`` and ``classification``, and at last in
    ``examples/data``. A name in two of them is told apart by its folder: ``classification/fertility``.
    """
    folders = [Path(path), *(Path(path) / kind for kind in KINDS), HERE]
    for folder in folders:
        file = folder / f"{name}.csv.gz"
        if file.exists():
            table = np.loadtxt(file, delimiter=",", ndmin=2)
            splits = np.loadtxt(folder / f"{name}_splits.csv.gz", delimiter=",", ndmin=2).astype(bool)
            if len(splits) != len(table):
                raise ValueError(f"the masks of {name} must have {len(table)} rows, but have {len(splits)}")
            return table[:, :-1], table[:, -1], splits
    raise FileNotFoundError(
        f"no {name}.csv.gz in {[str(f) for f in folders]}; in examples/data there are {available()}"
    )


def split_mask(masks, split):
    """Boolean mask of the test rows of one split."""
    if not 0 <= split < masks.shape[1]:
        count = masks.shape[1]
        raise ValueError(f"split must be 0 to {count - 1}, as the data set has {count}, but got {split}")
    return masks[:, split]


def available(path=HERE):
    """Names of the data sets in a folder."""
    return sorted(
        file.name.removesuffix(".csv.gz")
        for file in Path(path).glob("*.csv.gz")
        if (file.parent / f"{file.name.removesuffix('.csv.gz')}_splits.csv.gz").exists()
    )


def standardise(values, rows=None):
    """Shift and scale each column to mean 0 and standard deviation 1; a constant column becomes zeros.

    ``rows`` (a mask or indices) takes the mean and deviation from some rows only, such as the training
    rows; the papers take them from all.
    """
    values = np.asarray(values, float)
    known = values if rows is None else values[rows]
    center, scale = known.mean(axis=0, keepdims=True), known.std(axis=0, keepdims=True)
    constant = scale <= 1e-12 * np.maximum(1.0, np.abs(center))
    return (values - center) / np.where(constant, 1.0, scale)
