"""Figures: what is drawn and labelled, and what is refused."""

import matplotlib as mpl
import numpy as np
import numpyro.distributions as dist
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from numpyro_gp import plots


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_function_draws_the_mean_in_order_and_the_data(ax):
    draws = np.array([[3.0, 1.0, 2.0], [5.0, 3.0, 4.0]])
    done = plots.function([2.0, 0.0, 1.0], draws, data=([0.5], [9.0]), title="T", ylabel="m [kg]", ax=ax)
    lines = {line.get_label(): line for line in done.lines}
    assert done is ax
    assert lines["mean"].get_xdata().tolist() == [0.0, 1.0, 2.0]
    assert lines["mean"].get_ydata().tolist() == [2.0, 3.0, 4.0]
    assert lines["data"].get_ydata().tolist() == [9.0]
    assert (ax.get_title(loc="left"), ax.get_ylabel()) == ("T", "m [kg]")


def test_calibration_draws_the_share_below(ax):
    plots.calibration({"a": np.array([0.1, 0.2, 0.9, 0.95])}, ax=ax)
    line = next(line for line in ax.lines if line.get_label() == "a")
    assert line.get_ydata()[100] == 0.5


def test_hyperparameters_have_a_row_each(ax, rng):
    rows = {"SVI": rng.gamma(9.0, size=300), "SVGD": rng.gamma(9.0, size=20)}
    plots.hyperparameters(rows, "noise", truth=9.0, prior=dist.LogNormal(2.0, 1.0), ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["SVI", "SVGD", "prior"]
    assert ax.get_xlabel() == "noise"


def test_convergence_particles_and_layers(ax, rng):
    plots.convergence({"a": np.linspace(9.0, 1.0, 100)}, ax=ax)
    assert ax.get_xlabel() == "step"
    for drawn in (
        plots.particles({"noise": rng.normal(size=9)}, {"noise": rng.normal(size=99)}),
        plots.layers(np.arange(4.0), [rng.normal(size=(6, 4)), rng.normal(size=(6, 4))]),
    ):
        assert drawn.get_title(loc="left")
        plt.close(drawn.figure)


def test_errors(ax):
    with pytest.raises(ValueError, match=r"X must be of shape \(N, 1\) or \(N,\), but got shape \(3, 2\)"):
        plots.function(np.zeros((3, 2)), np.zeros(3), ax=ax)
    with pytest.raises(ValueError, match="PIT values between 0 and 1"):
        plots.calibration(np.array([0.5, 1.5]), ax=ax)
    with pytest.raises(TypeError, match="ax must be a matplotlib Axes"):
        plots.particles({"a": np.zeros(3)}, ax=7)
    with pytest.raises(ValueError, match="one number for each draw"):
        plots.hyperparameters({"SVI": np.zeros((3, 2))}, "lengthscale", ax=ax)
