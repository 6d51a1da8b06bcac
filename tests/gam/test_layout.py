"""What each term reads, which rows are left out, and levels that a fit has not seen."""

import numpy as np
import pytest

from numpyro_gp.gam import formula
from numpyro_gp.gam.layout import incomplete, lay_out

DATA = {
    "x": np.array([0.0, 1.0, 2.0, np.nan, 4.0]),
    "g": np.array(["a", "b", "a", "b", None], object),
    "e": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
    "y": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
}


def laid(text, data=DATA, weights=None):
    return lay_out(formula(text), data, "y", weights)


def test_rows_with_missing_values_are_left_out_and_counted():
    layout, rows = laid("y ~ s(x) + re(g) + offset(log(e))")
    assert (rows.left_out, rows.y.tolist()) == (2, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(rows.X[:, 0], np.array([-1.0, 0.0, 1.0]) * np.sqrt(1.5))
    assert rows.X[:, 1].tolist() == [0.0, 1.0, 0.0]
    np.testing.assert_allclose(rows.X[:, 2], np.log([1.0, 2.0, 3.0]))  # as it is
    assert [part.columns for part in layout.parts] == [(0,), (1,)]
    assert layout.offsets == (2,)
    assert laid("y ~ e")[1].left_out == 0


def test_incomplete_rows_are_those_that_a_fit_leaves_out():
    terms = formula("y ~ x + s(e, by=g)")
    assert incomplete(terms, DATA, "y").tolist() == [False, False, False, True, True]
    assert incomplete(formula("y ~ log(e)"), DATA | {"y": np.array([np.nan, 1, 2, 3, 4])}, "y").sum() == 1


def test_a_column_is_read_as_what_its_term_says():
    layout, rows = laid("y ~ s(e) + factor(e) + g")
    assert [column.is_category for column in layout.columns] == [False, True, True]
    assert rows.X[:, 1].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [part.name for part in layout.parts] == ["s(e)", "factor(e)", "factor(g)"]


def test_weights_of_zero_leave_rows_out():
    rows = laid("y ~ e", weights=[1.0, 0.0, 2.0, 1.0, 0.0])[1]
    assert (rows.weights.tolist(), rows.left_out) == ([1.0, 2.0, 1.0], 2)


def test_two_levels_of_a_response_are_0_and_1():
    data = DATA | {"y": np.array(["no", "yes", "no", "no", "yes"])}
    assert laid("y ~ e", data)[1].y.tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]


def test_new_levels_have_a_code_or_are_refused_by_name():
    new = {"x": [1.0], "g": ["z"], "e": [1.0]}
    assert laid("y ~ re(g)")[0].encode(new).tolist() == [[2.0]]
    assert laid("y ~ s(e, by=g)")[0].encode(new)[0, 1] == 2.0
    for text in ("y ~ factor(g)", "y ~ s(e) + s(e, by=g)"):
        with pytest.raises(ValueError, match=r"column 'g' of .* must be one of \['a', 'b'\], but got 'z'"):
            laid(text)[0].encode(new)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laid("y ~ w"), "a column must be one of"),
        (
            lambda: laid("y ~ e + linear(e)"),
            r"terms must be different from each other, but got \['linear\(e\)'\] twice. Write each of them once.",
        ),
        (lambda: laid("y ~ factor(g) + s(e) + g"), r"but got \['factor\(g\)'\] twice"),
        (lambda: laid("y ~ e", weights=[1, 1, 1, 1, -2]), "weights must be finite, and zero or positive, but got -2"),
        (lambda: laid("y ~ e", weights=[1]), r"weights must be of shape \(5,\)"),
        (lambda: laid("y ~ e", DATA | {"e": [1.0]}), "columns must be of one length"),
        (
            lambda: laid("y ~ offset(log(e))", DATA | {"e": np.arange(5.0)}),
            r"offset\(log\(e\)\) must be finite, but got -inf",
        ),
        (
            lambda: laid("y ~ e", DATA | {"y": list("abcde")}),
            "response 'y' must be numbers or two levels, but got 5 levels",
        ),
        (lambda: laid("y ~ e", DATA | {"e": [None] * 5}), "but got 5 rows, none of which is complete"),
        (lambda: laid("y ~ s(x)")[0].encode({"x": [np.nan]}), "column 'x' must be known in the rows to predict"),
    ],
)
def test_refusals(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_new_rows_of_a_model_without_terms_are_counted_by_any_column():
    layout, _ = laid("y ~ 1")
    assert layout.encode({"other": np.zeros(3)}).shape == (3, 1)


def test_a_table_without_rows_is_refused():
    layout, _ = laid("y ~ s(x)")
    with pytest.raises(ValueError, match="table of new rows must be of one row or more, but got none"):
        layout.encode({"x": np.zeros(0)})
