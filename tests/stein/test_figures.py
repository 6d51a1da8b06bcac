"""Figures of particles: what is drawn, and what is refused."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from numpyro_gp.stein import Paths, plot_paths, plot_spread


def test_paths_have_a_line_for_each_particle(rng):
    values = rng.normal(size=(4, 3))
    ax = plot_paths(Paths(np.arange(4), {"a": values}, np.zeros(3), None), "a")
    np.testing.assert_array_equal(np.stack([line.get_ydata() for line in ax.lines], 1), values)
    assert "3 particles" in ax.get_title(loc="left")
    plt.close(ax.figure)


def test_spread_shows_particles_and_references(rng):
    particles, draws = {"a": rng.normal(size=5)}, {"a": rng.normal(size=100)}
    ax = plot_spread(particles, "a", {"NUTS": draws})
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), particles["a"])
    np.testing.assert_allclose(ax.lines[1].get_xdata(), np.quantile(draws["a"], [0.05, 0.95]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["5 particles", "NUTS"]
    plt.close(ax.figure)
    with pytest.raises(ValueError, match=r"site must be a scalar site, but got values of shape \(3, 2\)"):
        plot_spread({"a": np.zeros((3, 2))}, "a")
