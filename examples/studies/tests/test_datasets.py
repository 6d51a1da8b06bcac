"""The loader of the examples: sizes as published, masks that partition, columns that are constant."""

import numpy as np
import pytest

from examples.tools import datasets

# N and D of the tables of the papers, and the number of splits (README of the data).
SIZES = {"yacht": (308, 6, 10), "energy": (768, 8, 10), "housing": (506, 13, 10), "concrete": (1030, 8, 10)}
SIZES |= {"challenger": (23, 4, 10), "autompg": (392, 7, 10), "blood": (748, 4, 5), "fertility": (100, 9, 5)}


def test_small_sets_have_their_published_sizes_and_every_row_is_tested_once_in_ten_folds():
    assert set(SIZES) <= set(datasets.available())
    for name, (rows, columns, count) in SIZES.items():
        X, y, splits = datasets.load(name)
        assert (X.shape, y.shape, splits.shape) == ((rows, columns), (rows,), (rows, count)), name
        assert splits.dtype == bool
        assert np.isfinite(X).all()
        assert np.isfinite(y).all()
        assert count != 10 or (splits.sum(1) == 1).all(), name
    assert np.bincount(datasets.load("blood")[1].astype(int)).tolist() == [570, 178]
    assert np.bincount(datasets.load("fertility")[1].astype(int)).tolist() == [88, 12]
    sizes = [file.stat().st_size for file in datasets.HERE.glob("*.csv.gz")]
    assert max(sizes) < 100_000
    assert sum(sizes) < 1_000_000


def test_what_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match=r"no nowhere.csv.gz in .*there are .*yacht"):
        datasets.load("nowhere")
    masks = datasets.load("blood")[2]
    for split in (-1, 5):
        with pytest.raises(ValueError, match=f"split must be 0 to 4, as the data set has 5, but got {split}"):
            datasets.split_mask(masks, split)


def test_standardise_guards_constant_columns_and_takes_the_training_rows():
    scaled = datasets.standardise(np.array([[1.0, 5.0, 0.1], [3.0, 5.0, 0.1], [8.0, 5.0, 0.1]]))
    np.testing.assert_allclose(scaled, np.outer((np.array([1, 3, 8]) - 4) / np.sqrt(26 / 3), [1, 0, 0]), atol=1e-12)
    assert datasets.standardise(np.array([0.0, 2.0, 10.0]), rows=[0, 1]).tolist() == [-1.0, 1.0, 9.0]
