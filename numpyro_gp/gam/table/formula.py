"""Formulas: ``y ~ s(age) + te(lon, lat) + re(site)`` as the terms that they stand for.

Python's own parser reads both sides, and what is here walks over what it finds. A package for Wilkinson formulas
(formulaic, or formulae) is not used: to it a call such as ``s(hour, cyclic=True)`` is text to be evaluated, so that its
arguments would be parsed here all the same, and ``*`` and ``:``, which it is for, mean nothing between smooth terms.
"""

import ast
import inspect
import re
from typing import NoReturn

from numpyro_gp.checks import check_type, fail
from numpyro_gp.gam.table import terms
from numpyro_gp.gam.table.terms import Term, Terms

NAMES = ("s", "te", "ti", "re", "linear", "factor", "offset", "trend", "season", "cycle")
FUNCTIONS = {name: getattr(terms, name) for name in NAMES}
# All arguments but the columns, which are first.
OPTIONS = {name: list(inspect.signature(function).parameters)[1:] for name, function in FUNCTIONS.items()}
EXAMPLE = "y ~ s(age) + s(hour, cyclic=True) + te(lon, lat) + re(site) + offset(log(exposure))"
LIKE = f"Write one like {EXAMPLE!r}."


def formula(text: str) -> Terms:
    """The terms of a formula.

    Parameters
    ----------
    text : str
        ``response ~ term + term``, with the terms `s`, `te`, `ti`, `re`, `linear`, `factor` and `offset`, and of a
        series over time `trend`, `season` and `cycle`. The name of a column alone is a straight line, or a factor where
        it is a category. The constant is always there; ``y ~ 1`` has nothing else.

    Returns
    -------
    Terms

    Raises
    ------
    ValueError
        With a mark under the place where it is no formula any more.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> print(ngp.gam.formula("y ~ s(age) + re(site)"))
    y ~ s(age) + re(site)
    """
    check_type("formula", text, str, "text", f'Write "{EXAMPLE}".')
    line = re.sub(r"\s", " ", text).strip()
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", lambda found: "_" * len(found[0]), line)  # names in quotes may have any sign
    if bare.count("~") != 1:
        _refuse_formula(line, len(line) if "~" not in bare else bare.rfind("~"), f"{bare.count('~')} signs ~")
    split = bare.index("~")
    for side, name in ((line[:split], "left"), (line[split + 1 :], "right")):
        if not side.strip():
            _refuse_formula(line, split, f"nothing {name} of ~")
    response = _column_name(line, _parsed(line[:split], line))
    # As many spaces as the left side had letters: places are those of the whole line.
    items: list[Term] = []
    nodes = [_parsed(" " * (split + 1) + line[split + 1 :], line)]
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            nodes = [node.left, node.right, *nodes]
            continue
        if isinstance(node, ast.Constant) and node.value == 1:
            continue
        term = _read_term(line, node)
        if term.name in {one.name for one in items}:
            _refuse_formula(line, node.col_offset - 1, f"{term.name} twice", "Leave one of them out.")
        items.append(term)
    return Terms(tuple(items), response)


def _refuse_formula(
    line: str, place: int, got: str, cure: str = LIKE, what: str = "formula", must: str = "response ~ term + term"
) -> NoReturn:
    """An error with the formula, and a mark under the place."""
    fail(what, must, got, cure + _mark(line, place))


def _mark(line: str, place: int) -> str:
    return f"\n    {line}\n    {' ' * place}^"


def _parsed(part: str, line: str) -> ast.expr:
    try:  # inside of a parenthesis, which allows spaces in front and moves all places by one
        return ast.parse(f"({part})", mode="eval").body
    except SyntaxError as error:
        place = min(max((error.offset or 1) - 2, 0), len(line))
        cure = f"Write one like {EXAMPLE!r}; names with spaces, signs or words of Python are in quotes."
        if line[place : place + 1] == ":":
            cure = _joint_terms("a", "b")
        elif line[place:].strip() == ".":
            cure = "Write every column out, as s(age) + s(dose): which of them are curves is yours to say."
        elif "never closed" in str(error.msg):
            cure, place = "Close the bracket.", max(line.rfind("("), 0)
        _refuse_formula(line, place, "what Python cannot read there", cure)


def _read_term(line: str, node: ast.expr) -> Term:
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
    if called not in FUNCTIONS:  # the name of a column, or a function of one
        return Term("column", (_column_name(line, node),))
    assert isinstance(node, ast.Call)
    columns = [_column_name(line, argument) for argument in node.args]
    options = {word.arg: _option(line, word) for word in node.keywords if word.arg}
    known, place = OPTIONS[called], node.col_offset - 1
    if called == "season" and "period" not in options:
        cure = f"Write season({', '.join(columns)}, period=12) of months, 365.25 of dates, which are days."
        _refuse_formula(line, place, "none", cure, "season(...)", "with a period")
    if unknown := [name for name in options if name not in known]:
        cure = f"Write num_inducing={options['k']}." if "k" in options and "num_inducing" in known else ""
        if options.get("bs") == "cc" and "cyclic" in known and columns:
            cure = f"Write {called}({columns[0]}, cyclic=True)."
        cure = cure or f"Leave {' and '.join(unknown)} out, or take one of these."
        _refuse_formula(line, place, f"{unknown}", cure, f"options of {called}(...)", f"among {known}")
    if called not in ("te", "ti") and len(columns) > 1:
        got = f"{len(columns)} of them, {columns}"
        _refuse_formula(line, place, got, _joint_terms(*columns[:2]), f"columns of {called}(...)", "one")
    try:
        term: Term = FUNCTIONS[called](*columns, **options)
    except (TypeError, ValueError) as error:
        error.args = (f"{error}{_mark(line, place)}",)
        raise
    return term


def _column_name(line: str, node: ast.expr) -> str:
    """The name of a column, ``age`` or ``"age of onset"``, or a function of one, ``log(age)``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        return f"{node.func.id}({_column_name(line, node.args[0])})"
    _refuse_formula(line, max(node.col_offset - 1, 0), f"{ast.unparse(node)!r}, which is no term", _habit(node))


def _joint_terms(a: str, b: str) -> str:
    """How two columns act together, whatever they are."""
    of_levels = f"s({a}, by={b}) for a curve of {a} at each level of {b}, s({b}, by={a}) the other way round"
    return f"Write {of_levels}, or te({a}, {b}) of two numbers."


def _habit(node: ast.expr) -> str:
    """What is written here for what formulas of other libraries write so."""
    names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and one.id not in FUNCTIONS]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and len(names) == 2:
        return _joint_terms(names[0], names[1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and names:
        slope = "" if len(names) == 1 else f", and re({names[-1]}, by={names[0]}) for slopes of {names[0]}"
        return f"Write re({names[-1]}) for an intercept of each level{slope}."
    is_zero = isinstance(node, ast.Constant) and node.value == 0
    if is_zero or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
        return "Leave it out: the constant is always there, and terms are only added."
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and names:
        return f"Write s({names[0]}): a curve needs no powers."
    if isinstance(node, ast.Attribute):
        return f'Write the name of a column with signs in quotes: "{ast.unparse(node)}".'
    if isinstance(node, ast.Call) and names[:1] == ["cbind"]:
        return 'Successes are the response, and the column of trials an option: family="binomial", trials="n".'
    if isinstance(node, ast.Call) and names[1:]:  # poly(age, 2), bs(age, df=5)
        return f"Write s({names[1]}) for a curve of {names[1]}."
    return LIKE


def _option(line: str, word: ast.keyword) -> object:
    if word.arg == "by":
        return _column_name(line, word.value)
    try:
        return ast.literal_eval(word.value)
    except ValueError:
        if isinstance(word.value, ast.Name):  # kernel=RBF
            return word.value.id
        _refuse_formula(line, word.value.col_offset - 1, f"{ast.unparse(word.value)!r} for {word.arg}")
