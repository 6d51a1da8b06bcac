"""Warnings of rows to predict that lie outside of those of the fit: for which terms, and once for each call."""

import warnings

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.answers import predictions as own

RNG = np.random.default_rng(0)
DATA = {"t": np.arange(30.0), "x": RNG.uniform(size=30), "hour": np.arange(30) % 24, "g": np.array(["a", "b"] * 15)}
DATA |= {"day": np.datetime64("2020-01-01") + np.arange(30), "y": np.sin(np.arange(30.0))}


def message(formula, new):
    model = ngp.gam.model(formula, DATA)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own.warn_outside(model, model.layout.encode(new), 1)
    assert len(caught) <= 1
    return str(caught[0].message) if caught else None


def test_terms_that_return_to_their_mean_are_named_once():
    new = {"t": [30.0, 60.0, 10.0], "x": [0.5, 0.5, -3.0], "g": ["a", "b", "a"]}
    said = message("y ~ s(t) + s(t, by=g) + te(t, x)", new)
    names = "s(t), s(t, by=g), te(t, x). 1 of 3 rows have t up to 60, beyond 0 to 29; 1 of 3 rows have x up to -3, "
    assert said.startswith(f"Terms return to their mean outside of the rows of the fit, which is no forecast: {names}")
    assert said.count("te(t, x)") == 1
    assert said.endswith(". Write trend(t) for a series over time, or linear(t) beside the curve.")
    assert "day up to 2020-03-01, beyond 2020-01-01 to 2020-01-30" in message(
        "y ~ s(day)", {"day": [np.datetime64("2020-03-01")]}
    )


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ trend(t) + season(t, period=7) + cycle(t)",
        "y ~ linear(t)",
        "y ~ s(hour, cyclic=(0, 24)) + re(g)",
        "y ~ s(t) + linear(t)",  # the two cures of the warning, which would not end it
        "y ~ s(t, by=g) + trend(t)",
    ],
)
def test_terms_that_go_on_and_circles_are_not_warned_of(formula):
    assert message(formula, {"t": [90.0, 100.0], "hour": [3, 23], "g": ["a", "new"]}) is None


def test_beside_a_line_of_one_column_the_others_are_warned_of():
    said = message("y ~ te(t, x) + t", {"t": [90.0], "x": [3.0]})
    assert "te(t, x). 1 of 1 rows have x up to 3" in said
    assert " have t " not in said
    assert said.endswith(" or write linear(x) beside the surface, which goes on.")
    assert message("y ~ te(t, x) + t + linear(x)", {"t": [90.0], "x": [3.0]}) is None  # as advised


def test_rows_a_little_outside_are_not_warned_of():
    """Of a random split some rows always are."""
    assert message("y ~ s(t)", {"t": [-1.4, 30.4]}) is None
    assert message("y ~ s(t)", {"t": [30.5]}) is not None


def test_a_prediction_warns_where_it_is_called():
    fit = ngp.gam("y ~ s(t)", DATA)
    with pytest.warns(UserWarning, match=r"no forecast: s\(t\). 2 of 2 rows have t up to 60") as caught:
        fit.predict({"t": [50.0, 60.0]})
    assert [one.filename for one in caught] == [__file__]
    with pytest.warns(UserWarning, match=r"no forecast: s\(t\)") as caught:
        fit.quantiles({"t": [50.0, 60.0]})
    assert [one.filename for one in caught] == [__file__]
    fit.predict({"t": [5.0]})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Terms return to their mean")  # as `predict` says
        fit.predict({"t": [50.0, 60.0]})


def test_a_trend_is_for_times_alone():
    """Of a random split two rows lay beyond the range of a wind, and were told of a series over time."""
    said = message("y ~ s(x)", {"x": [3.0]})
    assert "trend" not in said
    assert said.endswith(
        " Take what is predicted there for a guess, as its variance says, or write linear(x) beside the "
        "curve, which goes on."
    )
    assert message("y ~ s(x) + linear(x)", {"x": [3.0]}) is None
    assert "Write trend(day) for a series" in message("y ~ s(day)", {"day": [np.datetime64("2020-03-01")]})
    assert "trend" not in message("y ~ s(hour)", {"hour": [90.0]})  # 0 to 23, and 0 again: in no order
