"""Panels of terms: what is drawn, where the bands lie, and on which scale."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from numpyro_gp.gam import Column, Effect
from numpyro_gp.plots import terms
from numpyro_gp.plots.terms import Points, draw_terms

X, CODES = np.linspace(0, 1, 5), np.arange(2.0)
COLUMN, LEVELS = Column("x"), Column("g", ("a", "b"))


def effect(name, columns, axes, shift=0.0):
    shape = tuple(len(axis) for axis in axes)
    mean = shift + np.arange(float(np.prod(shape))).reshape(shape)
    draws = mean + np.random.default_rng(0).normal(size=(200, *shape))
    return Effect(name, "s", columns, axes, mean, np.ones(shape), draws)


EFFECTS = {
    "curve": effect("curve", (COLUMN,), (X,)),
    "surface": effect("surface", (COLUMN, Column("z")), (X, X), -10.0),
    "levels": effect("levels", (LEVELS,), (CODES,)),
    "by": effect("by", (COLUMN, LEVELS), (X, CODES)),
    "slopes": effect("slopes", (LEVELS, COLUMN), (CODES, np.ones(1))),
}
POINTS = {name: Points(tuple(np.array([0.2, 0.4]) for _ in one.columns), np.zeros(2)) for name, one in EFFECTS.items()}


@pytest.fixture
def figure():
    labels = dict.fromkeys(EFFECTS, "effect (mean 0 over the data)")
    made = draw_terms(EFFECTS, POINTS, level=0.9, simultaneous=True, labels=labels, link="log", constant=1.0)
    yield made
    plt.close(made)


def test_every_kind_of_term_has_its_panel(figure):
    panels = {axis.get_title(loc="left"): axis for axis in figure.axes if axis.get_title(loc="left")}
    assert list(panels) == ["curve", "surface", "surface, standard deviation", "levels", "by", "slopes"]
    assert [text.get_text() for text in panels["by"].get_legend().get_texts()] == ["a", "b"]
    assert [tick.get_text() for tick in panels["levels"].get_xticklabels()] == ["a", "b"]
    assert panels["surface"].get_ylabel() == "z"
    assert all("over the data" in panels[name].get_ylabel() for name in ("curve", "levels", "by", "slopes"))


def test_a_surface_has_its_deviations_beside_it_and_words_of_its_own(figure):
    panels = {axis.get_title(loc="left"): axis for axis in figure.axes}
    scale = panels["surface, standard deviation"].collections[0]
    np.testing.assert_array_equal(scale.get_array().reshape(5, 5), np.ones((5, 5)))
    mean = panels["surface"].collections[0].get_array().reshape(5, 5)
    np.testing.assert_allclose(mean, np.exp(1 + EFFECTS["surface"].mean.T))
    for name in ("surface", "surface, standard deviation"):
        np.testing.assert_array_equal(panels[name].lines[-1].get_xdata(), POINTS["surface"].values[0])
    assert "dotted: one standard deviation from zero" in figure._suptitle.get_text()

    some, labels = {"surface": EFFECTS["surface"]}, {"surface": "effect"}
    made = draw_terms(some, POINTS, level=0.9, simultaneous=True, labels=labels, link="identity", constant=0.0)
    assert made._suptitle.get_text() == "dotted: one standard deviation from zero"  # no band is drawn
    assert made.axes[3].get_ylabel() == "effect"
    assert "on the scale of the link" in {axis.get_ylabel() for axis in figure.axes}
    plt.close(made)


def test_lines_are_on_the_scale_of_the_response_with_two_bands(figure):
    axis = figure.axes[0]
    line = next(line for line in axis.lines if len(line.get_xdata()) == 5)
    np.testing.assert_allclose(line.get_ydata(), np.exp(1 + EFFECTS["curve"].mean))
    dark, light = (one.get_paths()[0].vertices[:, 1].max() for one in axis.collections)
    np.testing.assert_allclose(dark, np.exp(1 + 4 + 1.6448536), rtol=1e-6)
    assert light > 1.5 * dark


def test_a_probit_is_undone_by_the_normal_distribution_function():
    one, labels = {"curve": EFFECTS["curve"]}, {"curve": "effect"}
    made = draw_terms(one, POINTS, level=0.9, simultaneous=False, labels=labels, link="probit", constant=-2.0)
    line = next(line for line in made.axes[0].lines if len(line.get_xdata()) == 5)
    np.testing.assert_allclose(line.get_ydata(), stats.norm.cdf(EFFECTS["curve"].mean - 2.0))
    plt.close(made)


@pytest.mark.parametrize("count", [1, 2])
def test_the_words_above_few_panels_are_not_cut_off(count):
    """In one line they are 1.2 times as wide as one panel."""
    some = dict(list(EFFECTS.items())[:count])
    labels = dict.fromkeys(some, "effect")
    made = draw_terms(some, POINTS, level=0.9, simultaneous=True, labels=labels, link="log", constant=1.0)
    made.canvas.draw()
    box = next(text for text in made.texts if "light" in text.get_text()).get_window_extent()
    assert 0 <= box.x0 < box.x1 <= made.bbox.x1
    plt.close(made)


def test_a_band_for_all_values_holds_that_many_draws():
    one = EFFECTS["curve"]
    inside = np.abs(one.draws - one.mean).max(axis=1) <= one.half_width(0.8, simultaneous=True)
    assert inside.mean() == 0.8


def test_far_residuals_do_not_flatten_a_curve():
    """Working residuals of rare labels are tens of units away from curves of one unit."""
    points = {"curve": POINTS["curve"]._replace(residuals=np.array([0.0, 500.0]))}
    one, labels = {"curve": EFFECTS["curve"]}, {"curve": "effect"}
    made = draw_terms(one, points, level=0.9, simultaneous=False, labels=labels, link="identity", constant=0.0)
    low, high = made.axes[0].get_ylim()
    bands = [EFFECTS["curve"].mean + side * 1.6448536 * EFFECTS["curve"].scale for side in (-1, 1)]
    assert low <= np.min(bands)
    assert np.max(bands) <= high < 100
    assert [text.get_text() for text in made.axes[0].texts] == ["residuals beyond: 1"]
    plt.close(made)


def test_many_panels_have_fixed_margins_in_which_no_label_meets_another(monkeypatch):
    """Thirteen panels are four rows, the last of them with one."""
    monkeypatch.setattr(terms, "MOST", 12)
    x, rng = np.linspace(0.0, 1.0, 20), np.random.default_rng(0)
    drawn = rng.normal(size=(30, 20))
    names = [f"s(x{at})" for at in range(13)]
    effects = {n: Effect(n, "s", (Column(n[2:-1]),), (x,), np.sin(6 * x), np.full(20, 0.1), drawn) for n in names}
    points = {name: Points((x,), None) for name in names}
    labels = dict.fromkeys(names, "effect on log mean of y\n(mean 0 over the data)")
    figure = draw_terms(effects, points, level=0.9, simultaneous=True, labels=labels, link="identity", constant=0.0)
    assert figure.get_layout_engine() is None
    renderer = figure.canvas.get_renderer()
    boxes = [axis.get_tightbbox(renderer) for axis in figure.axes if axis.axison]
    boxes.append(figure._suptitle.get_window_extent(renderer))
    whole = figure.bbox
    assert all(whole.x0 <= one.x0 and one.x1 <= whole.x1 and whole.y0 <= one.y0 and one.y1 <= whole.y1 for one in boxes)
    assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
    plt.close(figure)


def test_twenty_levels_differ_and_dates_do_not_overlap():
    names, codes = tuple(f"lake{at:02d}" for at in range(20)), np.arange(20.0)
    days = Column("day", is_date=True)
    found = {
        "by": effect("by", (COLUMN, Column("g", names)), (X, codes)),
        "levels": effect("levels", (Column("g", names),), (codes,)),
        "day": effect("day", (days,), (18000.0 + 100 * np.arange(5),)),
    }
    points = {name: Points(tuple(np.array([0.2, 0.4]) for _ in one.columns), None) for name, one in found.items()}
    labels = dict.fromkeys(found, "effect")
    figure = draw_terms(found, points, level=0.9, simultaneous=True, labels=labels, link="identity", constant=0.0)
    by, levels, day = figure.axes
    curves = [line for line in by.lines if line.get_label() in names]
    assert len({(line.get_color(), str(line._unscaled_dash_pattern)) for line in curves}) == 20
    assert not by.get_legend().get_in_layout()
    assert [tick.get_text() for tick in levels.get_xticklabels()] == list(names[::2])
    figure.canvas.draw()
    boxes = [tick.get_window_extent() for tick in day.get_xticklabels() if tick.get_text()]
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))
    assert by.get_window_extent().width > 0.6 * day.get_window_extent().width
    plt.close(figure)
