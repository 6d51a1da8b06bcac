"""Maps: the grid is put in order, the mean has the data's colours, and what is no grid is refused."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.plots.functions import aspect_of
from tests.gam.test_row_predictor import DATA, fit_of

X = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0)), -1).reshape(-1, 2)
ORDER = np.random.default_rng(0).permutation(20)


def test_a_grid_in_any_order_is_drawn_at_its_places():
    draws = np.stack([X[:, 0] + 10 * X[:, 1], X[:, 0] + 12 * X[:, 1]])[:, ORDER]
    data = np.array([[0.5, 1.0], [3.0, 4.0]]), np.array([-7.0, 20.0])
    first, second = ngp.plots.surface(
        X[ORDER], draws, data=data, label="zinc [ppm]", xlabel="east [km]", aspect="equal"
    )
    mean, scale = (axis.collections[0].get_array().reshape(5, 4) for axis in (first, second))
    east, north = np.arange(4.0), np.arange(5.0)[:, None]
    np.testing.assert_allclose(mean, east + 11 * north)
    np.testing.assert_allclose(scale, north + 0 * east)
    points = first.collections[1]
    np.testing.assert_array_equal(points.get_offsets(), data[0])
    assert points.get_clim() == first.collections[0].get_clim() == (-7.0, 47.0)
    np.testing.assert_array_equal(second.lines[0].get_xdata(), data[0][:, 0])
    assert [axis.get_title(loc="left") for axis in (first, second)] == ["mean", "standard deviation"]
    bars = [axis.get_ylabel() for axis in first.figure.axes[2:]]
    assert bars == ["zinc [ppm]"] * 2
    assert first.get_aspect() == 1.0
    first.figure.set_size_inches(7.2, 6.0)  # panels taller than the maps
    first.figure.draw_without_rendering()
    heights = [(box.y0, box.y1) for box in (axis.get_position() for axis in (first, first.figure.axes[2]))]
    np.testing.assert_allclose(heights[0], heights[1])
    plt.close(first.figure)


def test_predictions_say_whether_noise_is_in_the_deviation():
    table = {"x": X[:, 0] / 3, "z": X[:, 1] / 4}
    for likelihood, words, variance in (
        (ngp.likelihoods.Gaussian(0.3), "standard deviation", "function_variance"),
        (ngp.likelihoods.Poisson(), "standard deviation of new data", "variance"),
    ):
        prediction = fit_of(ngp.gam.model("y ~ te(x, z)", DATA | {"y": np.arange(45) % 4}), likelihood).predict(table)
        _, axis = figures = plt.subplots(1, 2)[1]
        ngp.plots.surface(X, prediction, axes=figures)
        assert axis.get_title(loc="left") == words
        found = axis.collections[0].get_array().reshape(5, 4)
        np.testing.assert_allclose(found.ravel(), np.sqrt(getattr(prediction, variance)), rtol=1e-6)
        plt.close(axis.figure)


def test_what_is_no_grid_is_refused():
    with pytest.raises(ValueError, match=r"X must be the points of a grid, each once, but got 19 points.*np\.meshgrid"):
        ngp.plots.surface(X[1:], np.zeros((2, 19)))
    with pytest.raises(ValueError, match=r"X must be of shape \(N, 2\), but got shape \(20,\)"):
        ngp.plots.surface(X[:, 0], np.zeros((2, 20)))


def test_degrees_have_the_length_that_they_have_on_the_ground():
    assert aspect_of("lon", "Latitude", np.array([59.0, 61.0])) == pytest.approx(2.0)
    assert aspect_of("easting", "northing", np.zeros(2)) == "equal"
    assert aspect_of("dose", "age", np.zeros(2)) == "auto"
