"""What each term reads, which rows are left out, and levels that a fit has not seen."""

import datetime

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.table.layout import lay_out
from numpyro_gp.gam.table.terms import formula

DATA = {
    "x": np.array([0.0, 1.0, 2.0, np.nan, 4.0]),
    "g": np.array(["a", "b", "a", "b", None], object),
    "e": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
    "y": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
}


def laid(text, data=DATA, weights=None, **options):
    return lay_out(formula(text), data, "y", weights, **options)


def test_rows_with_missing_values_are_left_out_and_counted():
    layout, rows = laid("y ~ s(x) + re(g) + offset(log(e))")
    assert (rows.left_out, rows.y.tolist()) == (2, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(rows.X[:, 0], np.array([-1.0, 0.0, 1.0]) * np.sqrt(1.5))
    assert rows.X[:, 1].tolist() == [0.0, 1.0, 0.0]
    np.testing.assert_allclose(rows.X[:, 2], np.log([1.0, 2.0, 3.0]))  # as it is
    assert [part.columns for part in layout.read_terms] == [(0,), (1,)]
    assert layout.offsets == (2,)
    assert rows.reasons == (("without x", 1), ("without g", 1))
    assert (laid("y ~ e")[1].left_out, laid("y ~ e")[1].reasons) == (0, ())
    both = laid("y ~ s(x) + re(g)", weights=[0.0, 1.0, 1.0, 0.0, 1.0])[1]
    assert (both.left_out, both.reasons[-1]) == (3, ("of weight 0", 2))  # one of them misses a value, too


def test_a_column_is_read_as_what_its_term_says():
    layout, rows = laid("y ~ s(e) + factor(e) + g")
    assert [column.is_category for column in layout.columns] == [False, True, True]
    assert rows.X[:, 1].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [part.name for part in layout.read_terms] == ["s(e)", "factor(e)", "factor(g)"]


def test_weights_of_zero_leave_rows_out_and_two_levels_of_a_response_are_0_and_1():
    rows = laid("y ~ e", weights=[1.0, 0.0, 2.0, 1.0, 0.0])[1]
    assert (rows.weights.tolist(), rows.left_out) == ([1.0, 2.0, 1.0], 2)
    labels = laid("y ~ e", DATA | {"y": np.array(["no", "yes", "no", "no", "yes"])}, has_labels=True)[1]
    assert labels.y.tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]


def test_new_levels_have_a_code():
    new = {"x": [1.0], "g": ["z"], "e": [1.0]}
    assert laid("y ~ re(g)")[0].encode(new).tolist() == [[2.0]]
    assert laid("y ~ 1")[0].encode({"other": np.zeros(3)}).shape == (3, 1)  # counted by any column
    assert laid("y ~ s(e, by=g)")[0].encode(new)[0, 1] == 2.0


def test_the_text_of_a_level_is_no_new_level():
    """As JSON or a form gives it: it would be predicted from the prior, without a word."""
    days = np.datetime64("2024-01-01") + np.arange(4)
    table = {"y": np.arange(4.0), "k": [1, 2, 1, 2], "d": days, "b": [True, False, True, False], "x": np.arange(4.0)}
    day = r"datetime.date\(2024, 1, 2\)"
    for name, wrong, right in [("k", "2", "2"), ("d", "2024-01-02", day), ("b", "True", "True")]:
        for term in (f"re({name})", f"s(x, by={name})"):
            layout, _ = laid(f"y ~ {term}", table)
            with pytest.raises(ValueError, match=rf"type of its levels, .*, but got '{wrong}'\. .* had it: {right}\."):
                layout.encode({name: [wrong], "x": [1.0]})
            unseen = {"k": 7, "d": "other", "b": "other"}[name]
            assert layout.encode({name: [unseen], "x": [1.0]})[0, -1] == len(layout.columns[-1].levels)


def read(text, data, **options):
    """The layout and the rows of a formula."""
    terms = formula(text)
    return lay_out(terms, data, terms.response, None, **options)


def test_categories_of_pandas_are_levels_whatever_their_values():
    pandas = pytest.importorskip("pandas")
    y, k = np.arange(6.0), [1, 2, 3, 1, 2, 3]
    of_values, of_gaps = pandas.Series(k, dtype="category"), pandas.Series([None, *k[1:]]).astype("category")
    for given in (pandas.Categorical(k), of_values, of_gaps):
        layout, rows = read("y ~ k", {"y": y, "k": given})
        assert [part.name for part in layout.read_terms] == ["factor(k)"]
        assert layout.columns[0].levels == (1, 2, 3)
        assert rows.left_out == sum(pandas.isna(given))
    binary = read("y ~ x", pandas.DataFrame({"y": pandas.Categorical([1, 2] * 3), "x": y}), has_labels=True)[1]
    assert binary.y.tolist() == [0, 1] * 3
    assert read('"0" ~ s("1")', pandas.DataFrame({0: y, 1: y}))[0].columns[0].name == "1"  # names that are numbers


@pytest.mark.parametrize(
    "values", [np.arange(6.0), np.arange(6), np.array(list("abcdef")), np.arange("2020", "2026", dtype="M8[Y]")]
)
def test_what_is_under_a_mask_is_missing(values):
    column = np.ma.MaskedArray(values, mask=[True, False, False, False, False, True])
    layout, rows = read("y ~ re(x)", {"y": np.arange(6.0), "x": column})
    assert rows.left_out == 2
    assert len(layout.columns[0].levels) == 4
    assert read("y ~ re(x)", {"y": np.ma.MaskedArray(np.arange(6.0), mask=column.mask), "x": values})[1].left_out == 2


def test_a_date_is_one_level_in_any_unit():
    pandas = pytest.importorskip("pandas")
    days = np.array(["2020-01-01", "2020-01-02T06:00", "2020-01-01"], "M8[ns]")
    layout, rows = read("y ~ re(day)", {"y": np.arange(3.0), "day": days})
    assert layout.columns[0].levels == (datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 2, 6))
    utc = pandas.Series(days).dt.tz_localize("UTC")
    tokyo = utc.dt.tz_convert("Asia/Tokyo")
    for same in (days.astype("M8[s]"), days.astype("M8[us]"), pandas.Series(days), utc, tokyo):
        np.testing.assert_array_equal(layout.encode({"day": same}), rows.X)
    assert layout.encode({"day": [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]}).tolist() == [[0.0], [2.0]]


def test_dates_are_no_numbers_in_the_rows_to_predict():
    """They are days since 1970, which a line of years or months would take for some."""
    days = np.datetime64("2020-01-01") + np.arange(5)
    rows = {"number": np.arange(5.0), "date": days, "python": days.astype(object)}
    for fitted, own in rows.items():
        layout = laid("y ~ x", DATA | {"x": own})[0]
        for new, values in rows.items():
            if (fitted == "number") == (new == "number"):
                assert layout.encode({"x": values}).shape == (5, 1)
                continue
            with pytest.raises(ValueError, match=r"column 'x' must be of (dates|numbers), as in the rows of the fit"):
                layout.encode({"x": values})


def test_columns_of_pandas_whose_labels_are_in_another_order_are_refused():
    """Weights of a table that was shuffled were those of other rows, without a word."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": np.arange(6.0), "y": np.arange(6.0) ** 2, "w": [1.0, 2.0, 1.0, 3.0, 1.0, 1.0]})
    shuffled = table.iloc[[3, 0, 5, 1, 4, 2]]
    match = r"weights must be in the order of 'data', whose labels it has, but got another order\. Pass weights\.loc\["
    with pytest.raises(ValueError, match=match):
        ngp.gam.model("y ~ x", shuffled, weights=table["w"])
    for weights in (shuffled["w"], table["w"].to_numpy(), pandas.Series(np.ones(6), index=list("abcdef"))):
        rows = ngp.gam.model("y ~ x", shuffled, weights=weights).rows
        np.testing.assert_array_equal(rows.weights, np.asarray(weights))
    with pytest.raises(ValueError, match=r"y must be in the order of 'x', whose labels it has, but got another order"):
        ngp.gam.model("y ~ x", {"x": table["x"], "y": shuffled["y"]})
    ngp.gam.model("y ~ x", {"x": table["x"], "y": table["y"].to_numpy()[::-1]})
    fit = ngp.gam("y ~ x + w", table)
    with pytest.raises(ValueError, match="w must be in the order of 'x'"):
        fit.predict({"x": table["x"], "w": shuffled["w"]})


def test_a_category_keeps_the_order_that_its_table_declares():
    """As in R the second level of a response is 1: sorted, "win" was, whatever its table said. Unused levels are none."""
    pandas = pytest.importorskip("pandas")
    text = ["win", "lose", "win", "lose", "win"]
    order = ["draw", "win", "lose"]
    table = DATA | {
        "y": pandas.Categorical(text, order, ordered=True),
        "k": pandas.Categorical(text, order, ordered=True),
    }
    layout, rows = laid("y ~ k", table, has_labels=True)
    assert rows.y.tolist() == [0, 1, 0, 1, 0]
    assert [own.levels for own in (layout.response_column, *layout.columns)] == [("win", "lose")] * 2
    table["y"] = pandas.Categorical(text, order)  # not ordered: of a table that was read the order is by chance
    assert laid("y ~ k", table, has_labels=True)[1].y.tolist() == [1, 0, 1, 0, 1]


def test_a_response_has_levels_in_a_family_of_labels_alone():
    """Text of 3 and 9 was 0 and 1 in every family. What the error says to do gives the numbers."""
    pandas = pytest.importorskip("pandas")
    counts = np.array([3, 9, 3, 9, 9])
    for y, cure in [
        (counts.astype(str), 'data["y"] = np.array(data["y"], float)'),
        (counts.astype(str).astype(object), 'data["y"] = np.array(data["y"], float)'),
        (pandas.Series(counts).astype("category"), 'data["y"] = data["y"].astype(float)'),
        (pandas.Categorical(counts.astype(str)), 'data["y"] = data["y"].astype(float)'),
        (np.array(list("abcba")), 'data["y"] = data["y"] == \'c\''),
    ]:
        data = DATA | {"y": y}
        with pytest.raises(ValueError, match=r"response 'y' must be numbers in this family, but got") as error:
            laid("y ~ e", data)
        assert cure in str(error.value)
        exec(cure, {"data": data, "np": np})
        wanted = counts if "float" in cure else [0, 0, 1, 0, 0]
        np.testing.assert_array_equal(laid("y ~ e", data)[1].y, wanted)
    with pytest.raises(ValueError, match=r'got text, \'no\' and others\. Take the family "bernoulli"'):
        laid("y ~ e", DATA | {"y": np.array(["no", "yes", "no", "no", "yes"])})
    with pytest.raises(
        ValueError, match=r"labels 0 and 1, or two levels, but got 3 levels\. Ask for one of them: .* == 'c'"
    ):
        laid("y ~ e", DATA | {"y": np.array(list("abcba"))}, has_labels=True)
    with pytest.raises(ValueError, match=r"one that varies, but got 'a' in every row\. Look at the column"):
        laid("y ~ e", DATA | {"y": np.array(list("aaaaa"))}, has_labels=True)


@pytest.mark.parametrize("y", [[True, False, True, True, False], np.array([True, False, True, True, False], object)])
def test_booleans_are_numbers_in_every_family(y):
    assert laid("y ~ e", DATA | {"y": y})[1].y.tolist() == [1, 0, 1, 1, 0]


def encodings():
    """One table, its response 0 and 1, in sixteen encodings: of the columns, and of the response."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    x, k, b, label = (
        rng.uniform(0, 10, 120),
        rng.integers(0, 4, 120),
        rng.uniform(size=120) < 0.5,
        rng.integers(0, 2, 120),
    )
    table = {"x": x, "g": np.array(list("abcd"))[k], "b": b, "y": label}
    frame, text = pandas.DataFrame(table), np.array(["no", "yes"])[label]
    ordered = pandas.Categorical(np.array(["won", "lost"])[label], ["drawn", "won", "lost"], ordered=True)
    return {
        "arrays": table,
        "pandas": frame.set_index(pandas.Index(np.arange(120)[::-1])),
        "categories": frame.assign(g=pandas.Categorical(frame.g), b=pandas.Categorical(frame.b)),
        "ordered": frame.assign(g=pandas.Categorical(frame.g, list("dcbaz"), ordered=True)),
        "nullable": frame.assign(x=frame.x.astype("Float64"), b=frame.b.astype("boolean"), g=frame.g.astype("string")),
        "records": np.rec.fromarrays(list(table.values()), names=list(table)),
        "bytes": table | {"g": table["g"].astype("S"), "b": b.astype(np.int8)},
        "lists": {name: list(values) for name, values in table.items()},
        "y bool": table | {"y": label == 1},
        "y float": table | {"y": label.astype(np.float32)},
        "y text": table | {"y": text},
        "y text of numbers": table | {"y": label.astype(str)},
        "y bytes": table | {"y": text.astype("S")},
        "y category": frame.assign(y=pandas.Categorical(text)),
        "y ordered": frame.assign(y=ordered),
        "y nullable": frame.assign(y=pandas.Series(label == 1).astype("boolean")),
    }


@pytest.mark.long
def test_a_table_in_sixteen_encodings_gives_the_same_predictions():
    every = encodings()
    assert len(every) == 16
    new, known = {"x": [1.0, 5.0, 9.0], "g": ["a", "c", "d"], "b": [True, False, True]}, None
    for name, table in every.items():
        fit = ngp.gam("y ~ s(x, num_inducing=8) + re(g) + factor(b)", table, "bernoulli")
        rows = new | ({"b": [1, 0, 1]} if name == "bytes" else {})
        found = fit.predictor()(rows).mean
        known = found if known is None else known
        np.testing.assert_allclose(found, known, rtol=0, atol=1e-6, err_msg=name)
