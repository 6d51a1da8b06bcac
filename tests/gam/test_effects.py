"""Grids of terms, and bands; moments against dense formulas are in test_summary."""

import dataclasses

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.answers.effects import grid_of, side_by_side

RNG = np.random.default_rng(0)
DATA = {name: RNG.uniform(2, 5, 30) for name in "xyz"} | {"g": np.array(list("abc") * 10)}


def test_grids_hold_the_range_the_levels_and_the_middle():
    model = ngp.gam.model("y ~ s(x) + s(x, by=g) + te(x, z) + re(g, by=z)", DATA)
    curve, levels, surface, slopes = (grid_of(model, part, 20) for part in model.layout.read_terms)
    X = model.rows.X
    assert curve[1].shape == (20, X.shape[1])
    np.testing.assert_allclose(curve[0][0][[0, -1]], [X[:, 0].min(), X[:, 0].max()])
    assert [len(axis) for axis in levels[0]] == [20, 3]
    assert len(levels[1]) == 60
    assert [len(axis) for axis in surface[0]] == [8, 8]
    assert [axis.tolist() for axis in slopes[0]] == [[0.0, 1.0, 2.0], [1.0]]


def test_a_band_of_one_value_is_that_of_each():
    one = ngp.gam.Effect("a", "re", (), (), np.zeros(1), np.ones(1), np.random.default_rng(0).normal(size=(4000, 1)))
    np.testing.assert_allclose(one.half_width(0.9, simultaneous=True), one.half_width(0.9), rtol=0.05)
    two = ngp.gam.Effect("a", "re", (), (), np.zeros(2), np.ones(2), np.random.default_rng(0).normal(size=(4000, 2)))
    wanted = 1.9488  # (2 Phi(z) - 1)^2 = 0.9
    np.testing.assert_allclose(two.half_width(0.9, simultaneous=True), wanted, rtol=0.03)
    with pytest.raises(ValueError, match="draws of an effect must be given for a band that is simultaneous"):
        dataclasses.replace(two, draws=None).half_width(0.9, simultaneous=True)


def test_grids_that_share_no_column_stand_side_by_side():
    """A curve, a surface of other columns, and a curve of a column that the surface reads: two sets of rows."""
    line, plane = np.zeros((3, 3)), np.zeros((4, 3))
    line[:, 0], plane[:, 1:] = [1.0, 2.0, 3.0], [[5, 7], [5, 8], [6, 7], [6, 8]]
    second = np.array([[0.0, 9.0, 0.0]])
    rows, places = side_by_side({"a": (line, (0,)), "b": (plane, (1, 2)), "c": (second, (1,))})
    assert places == {"a": slice(0, 3), "b": slice(0, 4), "c": slice(4, 5)}
    np.testing.assert_array_equal(rows[:4], [[1, 5, 7], [2, 5, 8], [3, 6, 7], [3, 6, 8]])
    np.testing.assert_array_equal(rows[4:], second)
