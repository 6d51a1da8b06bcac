"""Panels of terms: what is drawn, where the bands lie, and on which scale."""

import dataclasses
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import dates
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
POINTS = {name: Points(tuple(X[[0, -1]] for _ in one.columns), np.zeros(2)) for name, one in EFFECTS.items()}


def drawn(*names, points=POINTS, label="effect", effects=EFFECTS, is_open=False, **options):
    """The panels of these terms, without bands of whole curves on the scale of the link unless asked for."""
    options = {"level": 0.9, "simultaneous": False, "link": "identity", "constant": 0.0, **options}
    some = {name: effects[name] for name in names or effects}
    made = draw_terms(some, points, labels=dict.fromkeys(some, label), **options)
    if not is_open:
        plt.close(made)
    return made


def entries_of(figure):
    legend = figure.legends[0]
    return list(zip(legend.get_texts(), legend.legend_handles, strict=True))


def words_of(figure):
    return {text.get_text() for text, _ in entries_of(figure)}


@pytest.fixture
def figure():
    label = "effect (mean 0 over the data)"
    return drawn(*EFFECTS, label=label, simultaneous=True, link="log", constant=1.0)


def test_every_kind_of_term_has_its_panel(figure):
    panels = {axis.get_title(loc="left"): axis for axis in figure.axes if axis.get_title(loc="left")}
    assert list(panels) == ["curve", "surface", "sd of surface", "levels", "by", "slopes"]
    assert [text.get_text() for text in panels["by"].get_legend().get_texts()] == ["a", "b"]
    assert [tick.get_text() for tick in panels["levels"].get_xticklabels()] == ["a", "b"]
    assert panels["surface"].get_ylabel() == "z"
    shown = {name: panels[name].get_ylabel() for name in ("curve", "levels", "by", "slopes")}
    assert shown == dict.fromkeys(shown, "effect (mean 0 over the data)") | {"slopes": ""}  # "by" says it, left of it
    boxes = panels["levels"].patches  # two of each level, wide enough that no mark hides a short one
    assert len(boxes) == 4
    assert all(box.get_width() > 0.3 and box.get_height() > 0 for box in boxes)


def test_a_surface_has_its_deviations_beside_it_and_words_of_its_own(figure):
    panels = {axis.get_title(loc="left"): axis for axis in figure.axes}
    scale = panels["sd of surface"].collections[0]
    np.testing.assert_array_equal(scale.get_array().reshape(5, 5), np.ones((5, 5)))
    mean = panels["surface"].collections[0].get_array().reshape(5, 5)
    np.testing.assert_allclose(mean, np.exp(1 + EFFECTS["surface"].mean.T))
    for name in ("surface", "sd of surface"):
        np.testing.assert_array_equal(panels[name].lines[-1].get_xdata(), POINTS["surface"].values[0])
    assert {"one sd from zero", "rows of the data"} <= words_of(figure)
    assert "on the scale of the link" in {axis.get_ylabel() for axis in figure.axes}
    alone = drawn("surface", simultaneous=True)
    assert words_of(alone) == {"one sd from zero", "partial residuals, in colour"}  # no band is drawn
    image, coloured = (alone.axes[0].collections[at] for at in (0, -1))
    np.testing.assert_array_equal(coloured.get_array(), POINTS["surface"].residuals)
    assert coloured.get_clim() == image.get_clim()
    assert alone.axes[3].get_ylabel() == "effect"


def line_of(figure):
    return next(line for line in figure.axes[0].lines if len(line.get_xdata()) == 5)


def test_lines_are_on_the_scale_of_the_response_with_two_bands(figure):
    """A probit is undone by the normal distribution function; a band for all values holds that many draws."""
    one = EFFECTS["curve"]
    np.testing.assert_allclose(line_of(figure).get_ydata(), np.exp(1 + one.mean))
    dark, light = (band.get_paths()[0].vertices[:, 1].max() for band in figure.axes[0].collections)
    np.testing.assert_allclose(dark, np.exp(1 + 4 + 1.6448536), rtol=1e-6)
    assert light > 1.5 * dark
    probit = drawn("curve", link="probit", constant=-2.0)
    np.testing.assert_allclose(line_of(probit).get_ydata(), stats.norm.cdf(one.mean - 2.0))
    inside = np.abs(one.draws - one.mean).max(axis=1) <= one.half_width(0.8, simultaneous=True)
    assert inside.mean() == 0.8


def test_the_legend_above_panels_is_not_cut_off():
    """In one line it is wider than one panel or two."""
    made = drawn("slopes", simultaneous=True, link="log", constant=1.0)
    made.canvas.draw()
    box = made.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= made.bbox.x1
    assert box.y1 <= made.bbox.y1


def test_what_is_drawn_is_in_the_legend_and_nothing_else():
    bare = {"curve": POINTS["curve"]._replace(residuals=None)}
    each, whole, rest = "50 %, each value", "50 %, whole curve", {"partial residuals", "values in the data"}
    for name, options, wanted in (
        ("curve", {"simultaneous": True}, {each, whole, *rest}),
        ("curve", {}, {each, *rest}),
        ("curve", {"simultaneous": True, "points": bare}, {each, whole, "values in the data"}),
        ("levels", {"simultaneous": True}, {"50 %, each level", "50 %, all levels"}),
    ):
        assert words_of(drawn(name, level=0.5, **options)) == wanted


def test_curves_and_levels_have_one_range_or_each_its_own():
    """That of all bands, as SciPy has their ends; a panel is as high as its own where ranges are not shared."""
    points = {name: one._replace(residuals=None) for name, one in POINTS.items()}
    made, apart = (drawn("curve", "levels", "by", points=points, **own) for own in ({}, {"sharey": False}))
    z = stats.norm.ppf(0.95)
    tall = 9 + 2 * z  # the highest mean is that of "by"
    (low, high) = made.axes[0].get_ylim()
    assert {axis.get_ylim() for axis in made.axes} == {(low, high)}
    assert -z - 0.1 * tall < low < -z < 9 + z < high < 9 + z + 0.1 * tall
    curve, levels, _ = (axis.get_ylim() for axis in apart.axes)
    assert curve[1] < 4 + z + 0.1 * (4 + 2 * z)
    assert levels[1] < 1 + z + 0.1 * (1 + 2 * z)
    assert all(axis.get_ylabel() == "effect" for axis in apart.axes)


def test_marks_stand_at_values_of_the_data():
    made = drawn("curve", points={"curve": Points((np.repeat(np.arange(12.0), 30),), None)})
    marks = next(line for line in made.axes[0].lines if line.get_marker() == "|")
    np.testing.assert_array_equal(marks.get_xdata(), np.arange(12.0))


def test_far_residuals_do_not_flatten_a_curve():
    """Working residuals of rare labels are tens of units away from curves of one unit."""
    made = drawn("curve", points={"curve": POINTS["curve"]._replace(residuals=np.array([0.0, 500.0]))})
    low, high = made.axes[0].get_ylim()
    bands = [EFFECTS["curve"].mean + side * 1.6448536 * EFFECTS["curve"].scale for side in (-1, 1)]
    assert low <= np.min(bands)
    assert np.max(bands) <= high < 100
    assert [text.get_text() for text in made.axes[0].texts] == ["residuals beyond: 1"]


def test_one_row_far_away_does_not_stretch_the_axis():
    """Between it and the others the band of a curve is as wide as its prior."""
    wide = dataclasses.replace(EFFECTS["curve"], scale=np.array([1.0, 1.0, 1.0, 40.0, 40.0]))
    points = Points((np.append(np.repeat(X[:3], 40), X[-1]),))
    made = drawn("curve", points={"curve": points}, effects={"curve": wide})
    low, high = made.axes[0].get_ylim()
    assert -2.5 < low < -1.6448536
    assert 4.0 < high < 4.5  # all of the mean is seen


def test_many_panels_have_fixed_margins_in_which_no_label_meets_another(monkeypatch):
    """Thirteen panels are four rows, the last of them with one."""
    monkeypatch.setattr(terms, "MOST_PANELS", 12)
    x, rng = np.linspace(0.0, 1.0, 20), np.random.default_rng(0)
    draws = rng.normal(size=(30, 20))
    names = [f"s(x{at})" for at in range(13)]
    effects = {n: Effect(n, "s", (Column(n[2:-1]),), (x,), np.sin(6 * x), np.full(20, 0.1), draws) for n in names}
    points, label = {name: Points((x,), None) for name in names}, "effect on log mean of y\n(mean 0 over the data)"
    figure = drawn(effects=effects, points=points, simultaneous=True, label=label, is_open=True)
    assert figure.get_layout_engine() is None
    renderer = figure.canvas.get_renderer()
    boxes = [axis.get_tightbbox(renderer) for axis in figure.axes if axis.axison]
    boxes.append(figure.legends[0].get_window_extent(renderer))
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
    figure = drawn(effects=found, points=points, simultaneous=True, is_open=True)
    by, levels, day = figure.axes
    curves = [line for line in by.lines if line.get_label() in names]
    assert len({(line.get_color(), str(line._unscaled_dash_pattern)) for line in curves}) == 20
    assert not by.get_legend().get_in_layout()
    assert [tick.get_text() for tick in levels.get_xticklabels()] == list(names[::2])
    assert isinstance(day.xaxis.get_major_locator(), dates.AutoDateLocator)
    assert isinstance(day.xaxis.get_major_formatter(), dates.ConciseDateFormatter)
    top = by.transData.inverted().transform(by.get_legend().get_window_extent().corners())[:, 1].min()
    assert max(line.get_ydata().max() for line in curves) < top  # names do not lie on the curves
    figure.canvas.draw()
    boxes = [tick.get_window_extent() for tick in day.get_xticklabels() if tick.get_text()]
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))
    assert by.get_window_extent().width > 0.6 * day.get_window_extent().width
    plt.close(figure)
