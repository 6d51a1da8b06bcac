"""Formulas: ``y ~ s(age) + te(lon, lat) + re(site)`` as the terms that they stand for.

Python's own parser reads both sides, and what is here walks over what it finds. A package for Wilkinson formulas
(formulaic, or formulae) is not used: to it a call such as ``s(hour, cyclic=True)`` is text to be evaluated, so that its
arguments would be parsed here all the same, and ``*`` and ``:``, which it is for, mean nothing between smooth terms.
"""

import ast
import inspect
import re
from typing import Any, NoReturn

from numpyro_gp.checks import fail
from numpyro_gp.gam import terms
from numpyro_gp.gam.terms import Term, Terms

NAMES = ("s", "te", "ti", "re", "linear", "factor", "offset", "trend", "season", "cycle")
FUNCTIONS = {name: getattr(terms, name) for name in NAMES}
EXAMPLE = "y ~ s(age) + s(hour, cyclic=True) + te(lon, lat) + re(site) + offset(log(exposure))"


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
    if not isinstance(text, str):
        fail("formula", "text", f"a {type(text).__name__}", f'Write "{EXAMPLE}".', TypeError)
    line = re.sub(r"\s", " ", text).strip()
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", lambda found: "_" * len(found[0]), line)  # names in quotes may have any sign
    if bare.count("~") != 1:
        _refuse(line, len(line) if "~" not in bare else bare.rfind("~"), f"{bare.count('~')} signs ~")
    split = bare.index("~")
    response = _column(line, _parsed(line[:split], line))
    # As many spaces as the left side had letters: places are those of the whole line.
    items: list[Term] = []
    for node in _summands(_parsed(" " * (split + 1) + line[split + 1 :], line)):
        if isinstance(node, ast.Constant) and node.value == 1:
            continue
        term = _term(line, node)
        if term.name in {one.name for one in items}:
            _refuse(line, node.col_offset - 1, f"{term.name} twice")
        items.append(term)
    return Terms(tuple(items), response)


def _refuse(line: str, place: int, got: str) -> NoReturn:
    """An error with the formula, and a mark under the place."""
    mark = f"\n    {line}\n    {' ' * place}^"
    fail("formula", "response ~ term + term", got, f"Write one like {EXAMPLE!r}.{mark}")


def _parsed(part: str, line: str) -> ast.expr:
    try:  # inside of a parenthesis, which allows spaces in front and moves all places by one
        return ast.parse(f"({part})", mode="eval").body
    except SyntaxError as error:
        _refuse(line, min(max((error.offset or 1) - 2, 0), len(line)), "what Python cannot read there")


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _term(line: str, node: ast.expr) -> Term:
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
    if called not in FUNCTIONS:  # the name of a column, or a function of one
        return Term("column", (_column(line, node),))
    assert isinstance(node, ast.Call)
    columns = [_column(line, argument) for argument in node.args]
    options = {word.arg: _option(line, word) for word in node.keywords if word.arg}
    known = [
        name for name, one in inspect.signature(FUNCTIONS[called]).parameters.items() if one.kind == one.KEYWORD_ONLY
    ]
    if unknown := [name for name in options if name not in known]:
        cure = f"num_inducing={options['k']}" if "k" in options and "num_inducing" in known else "one of these"
        mark = f"\n    {line}\n    {' ' * (node.col_offset - 1)}^"
        fail(f"options of {called}(...)", f"among {known}", f"{unknown}", f"Write {cure}.{mark}")
    try:
        term: Term = FUNCTIONS[called](*columns, **options)
    except (TypeError, ValueError) as error:
        error.args = (f"{error}\n    {line}\n    {' ' * (node.col_offset - 1)}^",)
        raise
    return term


def _column(line: str, node: ast.expr) -> str:
    """The name of a column, ``age`` or ``"age of onset"``, or a function of one, ``log(age)``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        return f"{node.func.id}({_column(line, node.args[0])})"
    got = f"{ast.unparse(node)!r}, which is no term"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        got += " (for an interaction write s(x, by=group), or te(a, b) of two numbers)"
    _refuse(line, max(node.col_offset - 1, 0), got)


def _option(line: str, word: ast.keyword) -> Any:
    if word.arg == "by":
        return _column(line, word.value)
    try:
        return ast.literal_eval(word.value)
    except ValueError:
        if isinstance(word.value, ast.Name):  # kernel=RBF
            return word.value.id
        _refuse(line, word.value.col_offset - 1, f"{ast.unparse(word.value)!r} for {word.arg}")
