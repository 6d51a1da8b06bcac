"""Survival curves: what is drawn, and what is refused."""

import matplotlib.pyplot as plt
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


# Weeks in remission under 6-MP (Freireich and others 1963), and the estimate of Klein & Moeschberger (2003), table 4.1A.
WEEKS = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
OPEN = [0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
PUBLISHED = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}


def test_the_estimate_of_kaplan_and_meier_and_the_numbers_at_risk(ax):
    times, draws = np.linspace(0.0, 40.0, 5), np.random.default_rng(0).uniform(size=(50, 5, 2))
    weeks, group = [*WEEKS, 1.0, 30.0], [1] * 21 + [0, 0]
    plots.survival(times, draws, names=["control", "drug"], data=(weeks, [*OPEN, 0, 0], group), ax=ax)
    control, drug = (line for line in ax.lines if line.get_label() == "_Kaplan-Meier")
    assert drug.get_xdata().tolist() == [0, *PUBLISHED, 35]  # up to the last patient
    assert_allclose(drug.get_ydata(), [1, *PUBLISHED.values(), 0.448], atol=5.1e-4)
    assert drug.get_drawstyle() == "steps-post"
    assert drug.get_color() == plots.COLOURS[1]
    assert control.get_ydata().tolist() == [1.0, 0.5, 0.0, 0.0]
    marks = [line for line in ax.lines if line.get_label() == "_censored"][1]
    assert marks.get_xdata().tolist() == [week for week, is_open in zip(WEEKS, OPEN, strict=True) if is_open]
    assert_allclose(marks.get_ydata()[[0, 1, -1]], [0.857, 0.807, 0.448], atol=5.1e-4)
    words = [text.get_text() for text in ax.texts]
    drawn = words[words.index("drug") + 1 :]
    assert drawn == [str(sum(week >= tick for week in WEEKS)) for tick in ax.get_xticks()]
    assert words[: words.index("drug")][-2:] == ["0", "0"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["control", "drug", "Kaplan-Meier", "censored"]


def test_the_numbers_at_risk_are_in_the_figure_and_below_the_label():
    axis = plots.survival([0.0, 1.0, 2.0], np.ones((4, 3, 1)), names=["all"], data=([1.0], None, None))
    axis.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axis.texts]
    whole, label = axis.figure.bbox, axis.xaxis.label.get_window_extent()
    assert all(box.x0 >= 0 and box.x1 <= whole.x1 and box.y0 >= 0 and box.y1 < label.y0 + 1 for box in boxes)
    plt.close(axis.figure)


def test_errors(ax):
    curve = np.ones((5, 2, 1))
    for times, draws, options, message in (
        (2, curve, {"data": ([1.0], None, [1])}, r"data\[2\] must be rows of the prediction, 0 to 0, but got 1"),
        (2, curve, {"data": ([1.0], [True])}, r"data must be \(observed, censored, rows\), but got 2 entries"),
        (3, curve, {}, "prediction must be of shape"),
        (2, curve, {"names": ["a", "b"]}, "names must be 1 names"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.survival(np.ones(times), draws, **options, ax=ax)
