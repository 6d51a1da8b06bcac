"""Functions and layers: what is drawn and labelled, and what is refused."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import dates

from numpyro_gp import plots
from tests.fits import KEY, NEW, fit


def test_function_draws_the_mean_in_order_and_the_data(ax):
    draws = np.array([[3.0, 1.0, 2.0], [5.0, 3.0, 4.0]])
    done = plots.function([2.0, 0.0, 1.0], draws, data=([0.5], [9.0]), title="T", ylabel="m [kg]", ax=ax)
    lines = {line.get_label(): line for line in done.lines}
    assert done is ax
    assert lines["mean"].get_xdata().tolist() == [0.0, 1.0, 2.0]
    assert lines["mean"].get_ydata().tolist() == [2.0, 3.0, 4.0]
    assert lines["data"].get_ydata().tolist() == [9.0]
    assert (ax.get_title(loc="left"), ax.get_ylabel()) == ("T", "m [kg]")


def test_dates_have_a_locator_of_dates(ax):
    """Matplotlib's own numbers of the same days; the data may be dates too."""
    days = np.arange(np.datetime64("2001-12-30"), np.datetime64("2002-01-03"))
    done = plots.function(days, np.zeros((3, 4)), data=(days[:1] + np.timedelta64(12, "h"), [1.0]), ax=ax)
    lines = {line.get_label(): line.get_xdata() for line in done.lines}
    np.testing.assert_array_equal(lines["mean"], dates.date2num(days))
    np.testing.assert_array_equal(lines["data"], dates.date2num(days[:1]) + 0.5)
    assert isinstance(ax.xaxis.get_major_locator(), dates.AutoDateLocator)
    assert isinstance(ax.xaxis.get_major_formatter(), dates.ConciseDateFormatter)


@pytest.mark.long
def test_the_mean_of_counts_is_on_the_scale_of_counts(ax):
    """That of new data, with their intervals, and not the latent mean beside counts."""
    prediction = fit("counts").predict(KEY, NEW)
    done = plots.function(NEW, prediction, ax=ax)
    line = next(line for line in done.lines if line.get_label() == "mean")
    np.testing.assert_allclose(line.get_ydata(), prediction.mean, rtol=1e-6)
    assert np.all(line.get_ydata() > np.exp(prediction.function_mean))
    assert [band.get_label() for band in done.collections] == ["new data, 90%"]


def test_layers_stack_upwards(rng):
    drawn = plots.layers(np.arange(4.0), [rng.normal(size=(6, 4)), rng.normal(size=(6, 4))], names=["a", "b"])
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["a", "b"]
    assert drawn.get_yticks()[0] < drawn.get_yticks()[1]
    plt.close(drawn.figure)
