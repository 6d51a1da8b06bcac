"""Formulas are the terms that they stand for; what is none is refused with its place."""

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam import factor, linear, offset, re, s, te
from numpyro_gp.gam.table.terms import formula


def test_a_formula_is_its_terms():
    found = formula(
        "y ~ s(age, num_inducing=9) + s(hour, cyclic=True, kernel=RBF) + te(lon, lat)\n + re(site, by=dose) + linear(z)"
        " + factor(kind) + offset(log(exposure)) + 1"
    )
    wanted = s("age", num_inducing=9) + s("hour", cyclic=True, kernel="RBF") + te("lon", "lat") + re("site", by="dose")
    assert found.items == (wanted + linear("z") + factor("kind") + offset("log(exposure)")).items
    assert found.response == "y"
    assert formula(str(found)).items[2] == te("lon", "lat")


def test_names_alone_functions_and_quoted_names():
    found = formula("log(y) ~ age + log(dose) + s('age of onset')")
    assert [term.columns for term in found.items] == [("age",), ("log(dose)",), ("age of onset",)]
    assert [term.kind for term in found.items] == ["column", "column", "s"]
    assert found.response == "log(y)"
    assert formula("y ~ 1").items == ()


def test_a_name_is_found_in_the_form_that_python_gives_it():
    """The micro sign of a keyboard is another letter than the mu that Python makes of it."""
    micro, x = "\N{MICRO SIGN}g", np.linspace(0.0, 1.0, 12)
    fit, same = (ngp.gam(f"y ~ s({name})", {name: x, "y": np.sin(3 * x)}) for name in (micro, "a"))
    np.testing.assert_array_equal(fit.predict({micro: x}).mean, same.predict({"a": x}).mean)


def test_names_in_backticks_may_have_any_sign():
    """As in R: quotes inside of them, backticks inside of quotes, and the place of what is wrong behind them.

    And names in quotes: two spaces were made one.
    """
    found = formula("`log ~ y` ~ s(`air temp`, by=`the \"site\"`) + log(`it's`) + `a+b` + linear('`')")
    assert found.response == "log ~ y"
    columns = [("air temp", 'the "site"'), ("log(it's)", None), ("a+b", None), ("`", None)]
    assert [(term.columns[0], term.by) for term in found.items] == columns
    quoted = formula('"a  ~b" ~\n s("c  d") + s(e)')
    assert (quoted.response, quoted.items) == ("a  ~b", (s("c  d"), s("e")))
    with pytest.raises(ValueError, match=r"s\(a b\) twice") as error:
        formula("y ~ s(`a b`) + s(`a b`)")
    line, mark = str(error.value).splitlines()[-2:]
    assert line[mark.index("^") :] == "s(`a b`)"
    with pytest.raises(ValueError, match="what Python cannot read there"):
        formula("y ~ s(`a b)")


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("y ~ s(age) + s(hour cyclic=True)", "hour", "what Python cannot read there"),
        ("y ~ s(age) * s(dose)", "s(age)", "which is no term"),
        ("y ~ s(age) + 3", "3", "'3', which is no term"),
        ("y ~ s(age) - 1", "s(age)", "which is no term"),
        ("y ~ s(a) + s(b) + s(a)", "s(a)", r"s\(a\) twice\. Leave one of them out"),
        ("y ~ s(a, kernel=x+1)", "x+1", "'x [+] 1' for kernel"),
        ("y ~ s(a) + te(b)", "te(b)", "columns must be 2 or 3 different columns"),
        ("y ~ s(a, knots=3)", "s(a", r"options of s\(...\) must be among .*'num_inducing'.* but got \['knots'\]"),
        ("y ~ s(a, k=5)", "s(a", "Write num_inducing=5"),
        ("y ~ a * b", "a *", r"a curve of a at each level of b, s\(b, by=a\) the other way round, or te\(a, b\) of"),
        ("y ~ a:b", ":b", r"Write s\(a, by=b\) for a curve"),
        ("y ~ s(a, b)", "s(a", r"columns of s\(\.\.\.\) must be one, but got 2 of them.* Write s\(a, by=b\)"),
        ("y ~ s(a, bs='cc')", "s(a", r"Write s\(a, cyclic=True\)"),
        ("y ~ (x | g)", "x |", r"Write re\(g\) for an intercept of each level, and re\(g, by=x\) for slopes of x\."),
        ("y ~ 0 + a", "0", "Leave it out: the constant is always there"),
        ("y ~ I(a ** 2)", "a **", r"Write s\(a\): a curve needs no powers"),
        ("y ~ poly(a, 2)", "poly", r"Write s\(a\) for a curve of a\."),
        ("y ~ s(my.age)", "my.age", r"Write the name of a column with signs in backticks: `my\.age`\."),
        ("y ~ s(my age)", "my", "names with spaces, signs or words of Python are in `backticks`"),
        ("y ~ class", "class", "names with spaces, signs or words of Python are in `backticks`"),
        ("y ~", "~", "nothing right of ~"),
        ("~ s(a)", "~", "nothing left of ~"),
        ("y ~ .", ".", r"Write every column out, as s\(age\)"),
        ("y ~ s(a) + s(b, by=g", "(b", "Close the bracket"),
        ("y ~ season(t)", "season", r"must be with a period, but got none\. Write season\(t, period=12\)"),
        ("cbind(a, b) ~ s(x)", "cbind", r'Successes are the response.* trials="n"'),
        ("s(age)", "", "0 signs ~"),
        ("a ~ b ~ c", "~ c", "2 signs ~"),
    ],
)
def test_the_place_is_shown(text, at, message):
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        formula(text)
    line, mark = str(caught.value).splitlines()[-2:]
    assert line.strip() == text
    place = text.rfind(at) if at in ("s(a)", "~ c") or not at else text.find(at)
    assert mark.index("^") - 4 == (len(text) if not at else place)
