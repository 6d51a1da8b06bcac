"""Survival curves: what is drawn, and what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from numpyro_gp import plots


def test_curves_are_drawn_with_bands_of_their_draws(ax):
    times, draws = np.array([2.0, 1.0]), np.random.default_rng(0).uniform(size=(50, 2, 2))
    plots.survival(times, draws, names=["a", "b"], level=0.5, ax=ax)
    assert [line.get_label() for line in ax.lines] == ["a", "b"]
    assert_allclose(ax.lines[1].get_ydata()[0], draws[:, 1, 1].mean())  # times in order
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    low, high = np.quantile(draws[:, :, 0], [0.25, 0.75], axis=0)
    assert_allclose([edges.min(), edges.max()], [low.min(), high.max()])


def test_errors(ax):
    with pytest.raises(ValueError, match="prediction must be of shape"):
        plots.survival(np.ones(3), np.ones((5, 2, 1)), ax=ax)
    with pytest.raises(ValueError, match="names must be 1 names"):
        plots.survival(np.ones(2), np.ones((5, 2, 1)), names=["a", "b"], ax=ax)
