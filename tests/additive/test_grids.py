"""Points of grids."""

import numpy as np

from numpyro_gp.additive.columns import grid_points, size_of_axis


def test_points_of_grids():
    found = grid_points([np.array([1.0, 2.0]), np.array([5.0, 6.0, 7.0])])
    np.testing.assert_array_equal(found, [[1, 5], [1, 6], [1, 7], [2, 5], [2, 6], [2, 7]])
    assert grid_points([]).shape == (1, 0)
    assert (size_of_axis(80, 1), size_of_axis(80, 2), size_of_axis(2, 2)) == (80, 32, 2)
