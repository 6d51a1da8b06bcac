"""Terms of an additive model as immutable values, joined by ``+``: what a formula says, without a formula.

A column is named, ``"age"``, or named inside of a function, ``"log(age)"``: log, log1p, exp and sqrt.
"""

import ast
import dataclasses
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from re import finditer, sub
from typing import Any, NoReturn

import numpyro.distributions as dist

from numpyro_gp.checks import check_count, check_type, fail
from numpyro_gp.kernels import RBF, Matern12, Matern32, Matern52

# Terms of a series over time, which have a scale and two parameters.
TIME = ("trend", "season", "cycle")
KERNELS = {kind.__name__: kind for kind in (RBF, Matern12, Matern32, Matern52)}


@dataclasses.dataclass(frozen=True)
class Term:
    """One component of an additive model: what `s`, `te`, `trend`, `re`, `linear` and their like make.

    Attributes
    ----------
    kind : str
        The function that made it.
    columns : tuple of str
    by : str, optional
        A category with a curve for each level, or the column whose slope varies.
    cyclic : bool or pair of float
        Whether the ends of the column meet, and where they lie.
    kernel : type, optional
        Class of the kernels of one column.
    num_inducing : int, optional
    scale, lengthscale : distribution, optional
        Priors of the standard deviation of the term, on the scale of the link, and of the lengthscale in standard
        deviations of the column.
    period : float, optional
        Of a season, in the units of its column.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> str(ngp.gam.s("dose", by="sex") + ngp.gam.re("site"))
    's(dose, by=sex) + re(site)'
    """

    kind: str
    columns: tuple[str, ...]
    by: str | None = None
    cyclic: bool | tuple[float, float] = False
    kernel: type = Matern52
    num_inducing: int | None = None
    scale: dist.Distribution | None = None
    lengthscale: dist.Distribution | None = None
    period: float | None = None

    @functools.cached_property
    def name(self) -> str:
        """The term as it is written, without its options."""
        if self.kind == "column":
            return self.columns[0]
        inside = ", ".join(self.columns) + (f", by={self.by}" if self.by else "")
        inside += f", period={self.period:g}" if self.period else ""  # of two seasons it says which is which
        return f"{self.kind}({inside})"

    def __str__(self) -> str:
        return self.name

    def __add__(self, other: "Term | Terms") -> "Terms":
        return Terms((self,)) + other


@dataclasses.dataclass(frozen=True)
class Terms:
    """Terms joined by ``+``, and what they explain.

    Attributes
    ----------
    items : tuple of Term
    response : str, optional
        Column that a formula has on its left.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> [term.kind for term in (ngp.gam.s("age") + ngp.gam.linear("dose")).items]
    ['s', 'linear']
    """

    items: tuple[Term, ...]
    response: str | None = None

    def __add__(self, other: "Term | Terms") -> "Terms":
        check_type("the other side of +", other, (Term, Terms), "a term", 'Write a column as a term: ngp.gam.s("age").')
        added = other.items if isinstance(other, Terms) else (other,)
        refuse_twice(self.items + added)
        return Terms(self.items + added, self.response)

    def __str__(self) -> str:
        text = " + ".join(map(str, self.items)) or "1"
        return text if self.response is None else f"{self.response} ~ {text}"


def refuse_twice(terms: Sequence[Term]) -> None:
    """Refuse terms of one name."""
    names = Counter(term.name for term in terms)
    if twice := sorted(name for name, count in names.items() if count > 1):
        fail("terms", "different from each other", f"{twice} twice", "Write each of them once.")


# What its columns are called where a term is made, and how many there may be, where it is not one ``column``.
COLUMNS = {"te": ("columns", (2, 3)), "ti": ("columns", (2, 3)), "re": ("group", (1,))}


def _make_term(kind: str, columns: tuple[str, ...], **options: Any) -> Term:
    """Check the columns and options of a term, and make it; a kernel may be a class or its name."""
    argument, count = COLUMNS.get(kind, ("column", (1,)))
    by = () if options.get("by") is None else (options["by"],)
    for where, name in [*((argument, name) for name in columns), *(("by", name) for name in by)]:
        if not isinstance(name, str) or not name:
            fail(where, "names of columns", f"{name!r:.60}", 'Name it as a string: "age".', TypeError)
    if len(columns) not in count or len(set(columns)) < len(columns):
        required = f"{' or '.join(map(str, count))} different columns"
        fail(argument, required, f"{list(columns)}", "Name each column once.")
    kernel = options.get("kernel")
    kernel = KERNELS.get(kernel, kernel) if isinstance(kernel, str) else kernel
    if kernel is not None and kernel not in KERNELS.values():
        cure = "Pass a class, whose lengthscale is learnt: kernel=ngp.kernels.RBF."
        fail("kernel", f"one of {sorted(KERNELS)}", f"{kernel!r:.60}", cure, TypeError)
    if options.get("num_inducing") is not None:
        check_count("num_inducing", options["num_inducing"], 2)
    for name in ("scale", "lengthscale"):
        prior = options.get(name)
        if prior is None:
            continue
        if not isinstance(prior, dist.Distribution):
            cure = "Pass one such as numpyro.distributions.HalfNormal(1.0)."
            fail(name, "a prior, a NumPyro distribution", f"{prior!r:.60}", cure, TypeError)
        if isinstance(prior, dist.Delta) or prior.support.is_discrete:
            cure = "For a value that is almost known pass numpyro.distributions.LogNormal(jnp.log(value), 0.01)."
            fail(name, "a prior with a density", f"a {type(prior).__name__}", cure)
    return Term(kind, columns, **options | {"kernel": kernel or Matern52})


def s(
    column: str,
    *,
    by: str | None = None,
    cyclic: bool | tuple[float, float] = False,
    kernel: object = None,
    num_inducing: int | None = None,
    scale: object = None,
    lengthscale: object = None,
) -> Term:
    """A smooth curve of one column.

    Parameters
    ----------
    column : str
    by : str, optional
        A category: a curve for each of its levels. Beside ``s`` of the same column, how they differ from it.
    cyclic : bool or (low, high)
        Value and slope are the same at both ends. True takes the range of the column; of whole numbers one step more,
        so that the hours 0 to 23 have a period of 24, and degrees 0, 10, ... 350 one of 360.
    kernel : type, optional
        `Matern52`, or another of the stationary kernels.
    num_inducing : int, optional
        Inducing inputs; 24, or 16 with more than 16 curves, or 10 for each of more than four levels.
    scale, lengthscale : distribution, optional
        Priors.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.gam.s("hour", cyclic=(0, 24)).name
    's(hour)'
    """
    if not isinstance(cyclic, bool):
        if not isinstance(cyclic, (tuple, list)) or len(cyclic) != 2 or not cyclic[0] < cyclic[1]:
            fail("cyclic", "True or the two ends of a period", f"{cyclic!r:.60}", "Pass cyclic=(0, 24).")
        cyclic = (float(cyclic[0]), float(cyclic[1]))
    options = dict(kernel=kernel, num_inducing=num_inducing, scale=scale, lengthscale=lengthscale)
    return _make_term("s", (column,), by=by, cyclic=cyclic, **options)


def te(
    *columns: str,
    kernel: object = None,
    num_inducing: int | None = None,
    scale: object = None,
    lengthscale: object = None,
) -> Term:
    """A smooth surface of two or three columns together: their effects and their interactions.

    Beside `s` of its columns take `ti`, the interaction alone.

    Parameters
    ----------
    *columns : str
    kernel, num_inducing, scale, lengthscale
        As of `s`; inducing inputs are 200, or one for each different row where there are fewer, shared among surfaces.
        Of more than 1000 rows they are fewer, and of many 60, or 90 of three columns.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.gam.te("longitude", "latitude").name
    'te(longitude, latitude)'
    """
    return _make_term("te", columns, kernel=kernel, num_inducing=num_inducing, scale=scale, lengthscale=lengthscale)


def ti(
    *columns: str,
    kernel: object = None,
    num_inducing: int | None = None,
    scale: object = None,
    lengthscale: object = None,
) -> Term:
    """The interaction of two or three columns alone: it averages to zero over each of them.

    Parameters
    ----------
    *columns : str
    kernel, num_inducing, scale, lengthscale
        As of `te`.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> str(ngp.gam.s("a") + ngp.gam.s("b") + ngp.gam.ti("a", "b"))
    's(a) + s(b) + ti(a, b)'
    """
    return _make_term("ti", columns, kernel=kernel, num_inducing=num_inducing, scale=scale, lengthscale=lengthscale)


def re(group: str, *, by: str | None = None, scale: object = None) -> Term:
    """A random effect: an intercept for each level of a category, or a slope of another column.

    Levels are independent, with one standard deviation that is learnt. One that the fit has not seen is predicted
    from this prior.

    Parameters
    ----------
    group : str
    by : str, optional
        The column of a slope.
    scale : distribution, optional
        Prior of the standard deviation of the levels.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> str(ngp.gam.re("site") + ngp.gam.re("site", by="dose"))
    're(site) + re(site, by=dose)'
    """
    return _make_term("re", (group,), by=by, scale=scale)


def linear(column: str, *, scale: object = None) -> Term:
    """A straight line of one column.

    Parameters
    ----------
    column : str
    scale : distribution, optional
        Prior of the standard deviation of the slope, for a column of standard deviation 1.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.gam.linear("log(income)").name
    'linear(log(income))'
    """
    return _make_term("linear", (column,), scale=scale)


def factor(column: str, *, scale: object = None) -> Term:
    """The effect of a category around its average over the rows.

    Parameters
    ----------
    column : str
    scale : distribution, optional
        Prior of the standard deviation of the levels.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.gam.factor("kind").name
    'factor(kind)'
    """
    return _make_term("factor", (column,), scale=scale)


def offset(column: str) -> Term:
    """A column that is added as it is, on the scale of the link: ``offset("log(exposure)")`` of counts.

    Parameters
    ----------
    column : str

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.gam.offset("log(exposure)").name
    'offset(log(exposure))'
    """
    return _make_term("offset", (column,))


def trend(column: str, *, num_inducing: int | None = None) -> Term:
    """The trend of a series over time, which goes on in a forecast: a level and a slope, both of which may wander.

    A straight line, a random walk and an integrated one, around their average. Forecasts go on from the end of the
    rows, along the last slope, ever less certain; `s` would return to its mean there. How much level and slope wander
    is found from the rows, and may be nothing.

    Parameters
    ----------
    column : str
        Time, as numbers or dates.
    num_inducing : int, optional
        Inducing inputs; one for each different time, up to 500. With fewer the walk is taken for noise.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> str(ngp.gam.trend("month") + ngp.gam.season("month", period=12))
    'trend(month) + season(month, period=12)'
    """
    return _make_term("trend", (column,), num_inducing=num_inducing)


def season(column: str, *, period: float, num_inducing: int | None = None) -> Term:
    """A season of a series over time: it averages to zero over each period, and changes slowly from one to the next.

    Parameters
    ----------
    column : str
        Time, as numbers or dates.
    period : float
        In the units of the column, of dates in days: 365.25 for a year.
    num_inducing : int, optional
        Inducing inputs; up to 24 phases at some times, 150 at most.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.gam.season("day", period=7).name
    'season(day, period=7)'
    """
    is_number = isinstance(period, (int, float)) and not isinstance(period, bool)
    if not is_number or not 0 < period < float("inf"):
        cure = "Pass its length in the units of the column: period=12 for months, 7 for days."
        fail("period", "a positive number", f"{period!r:.60}", cure, ValueError if is_number else TypeError)
    return _make_term("season", (column,), period=float(period), num_inducing=num_inducing)


def cycle(column: str, *, num_inducing: int | None = None) -> Term:
    """Ups and downs of a series over time that have no fixed length: a wave that is forgotten, or just a memory.

    Beside `trend` it is what returns to a mean. Its period and how long it is remembered are found from the rows.

    Parameters
    ----------
    column : str
        Time, as numbers or dates.
    num_inducing : int, optional
        Inducing inputs; one for each different time, up to 150.

    Returns
    -------
    Term

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.gam.cycle("year").name
    'cycle(year)'
    """
    return _make_term("cycle", (column,), num_inducing=num_inducing)


# --------------------------------------------------------------------------------------
# Formulas: ``y ~ s(age) + te(lon, lat) + re(site)`` as the terms that they stand for.
#
# Python's own parser reads both sides, and what is here walks over what it finds. A package for Wilkinson formulas
# (formulaic, or formulae) is not used: to it a call such as ``s(hour, cyclic=True)`` is text to be evaluated, so that
# its arguments would be parsed here all the same, and ``*`` and ``:``, which it is for, mean nothing between smooth
# terms.


TERM_FUNCTIONS: dict[str, Callable[..., Term]] = {
    make.__name__: make for make in (s, te, ti, re, linear, factor, offset, trend, season, cycle)
}
# All arguments but the columns, which are first.
TERM_OPTIONS = {name: list(inspect.signature(function).parameters)[1:] for name, function in TERM_FUNCTIONS.items()}
EXAMPLE = "y ~ s(age) + s(hour, cyclic=True) + te(lon, lat) + re(site) + offset(log(exposure))"
LIKE = f"Write one like {EXAMPLE!r}."


def formula(text: str) -> Terms:
    """The terms of a formula.

    Parameters
    ----------
    text : str
        ``response ~ term + term``, with the terms `s`, `te`, `ti`, `re`, `linear`, `factor` and `offset`, and of a
        series over time `trend`, `season` and `cycle`. The name of a column alone is a straight line, or a factor where
        it is a category. A name with spaces or signs stands in backticks, or in quotes. The constant is always there;
        ``y ~ 1`` has nothing else.

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
    line = sub(r"\s", " ", text).strip()
    quoted = r"\"[^\"]*\"|'[^']*'|`[^`]*`"  # names in quotes or backticks may have any sign
    bare = code = line
    for found in finditer(quoted, line):
        (low, high), name = found.span(), found[0][1:-1]
        bare = bare[:low] + "_" * (high - low) + bare[high:]
        quote = found[0][0].replace("`", "'" if '"' in name else '"')  # as text of Python, which is as long
        code = code[:low] + quote + name + quote + code[high:]
    if bare.count("~") != 1:
        _refuse_formula(line, len(line) if "~" not in bare else bare.rfind("~"), f"{bare.count('~')} signs ~")
    split = bare.index("~")
    for side, name in ((line[:split], "left"), (line[split + 1 :], "right")):
        if not side.strip():
            _refuse_formula(line, split, f"nothing {name} of ~")
    response = _column_name(line, _parsed(code[:split], line))
    # As many spaces as the left side had letters: places are those of the whole line.
    items: list[Term] = []
    nodes = [_parsed(" " * (split + 1) + code[split + 1 :], line)]
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
        cure = f"Write one like {EXAMPLE!r}; names with spaces, signs or words of Python are in `backticks`."
        if line[place : place + 1] == ":":
            cure = _joint_terms("a", "b")
        elif line[place:].strip() == ".":
            cure = "Write every column out, as s(age) + s(dose): which of them are curves is yours to say."
        elif "never closed" in str(error.msg):
            cure, place = "Close the bracket.", max(line.rfind("("), 0)
        _refuse_formula(line, place, "what Python cannot read there", cure)


def _read_term(line: str, node: ast.expr) -> Term:
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
    if called not in TERM_FUNCTIONS:  # the name of a column, or a function of one
        return Term("column", (_column_name(line, node),))
    assert isinstance(node, ast.Call)
    columns = [_column_name(line, argument) for argument in node.args]
    options: dict[str, object] = {}
    for word in node.keywords:
        if word.arg == "by":
            options["by"] = _column_name(line, word.value)
        elif word.arg and isinstance(word.value, ast.Name):  # kernel=RBF
            options[word.arg] = word.value.id
        elif word.arg:
            try:
                options[word.arg] = ast.literal_eval(word.value)
            except ValueError:
                _refuse_formula(line, word.value.col_offset - 1, f"{ast.unparse(word.value)!r} for {word.arg}")
    known, place = TERM_OPTIONS[called], node.col_offset - 1
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
        term: Term = TERM_FUNCTIONS[called](*columns, **options)
    except (TypeError, ValueError) as error:
        error.args = (f"{error}{_mark(line, place)}",)
        raise
    return term


def _column_name(line: str, node: ast.expr) -> str:
    """The name of a column, ``age`` or of backticks "age of onset", or a function of one, ``log(age)``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        return f"{node.func.id}({_column_name(line, node.args[0])})"
    # What is written here for what formulas of other libraries write so.
    names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and one.id not in TERM_FUNCTIONS]
    operator = type(node.op) if isinstance(node, ast.BinOp) else None
    cure = LIKE
    if operator is ast.Mult and len(names) == 2:
        cure = _joint_terms(names[0], names[1])
    elif operator is ast.BitOr and names:
        slope = "" if len(names) == 1 else f", and re({names[-1]}, by={names[0]}) for slopes of {names[0]}"
        cure = f"Write re({names[-1]}) for an intercept of each level{slope}."
    elif operator is ast.Sub or (isinstance(node, ast.Constant) and node.value == 0):
        cure = "Leave it out: the constant is always there, and terms are only added."
    elif operator is ast.Pow and names:
        cure = f"Write s({names[0]}): a curve needs no powers."
    elif isinstance(node, ast.Attribute):
        cure = f"Write the name of a column with signs in backticks: `{ast.unparse(node)}`."
    elif isinstance(node, ast.Call) and names[:1] == ["cbind"]:
        cure = 'Successes are the response, and the column of trials an option: family="binomial", trials="n".'
    elif isinstance(node, ast.Call) and names[1:]:  # poly(age, 2), bs(age, df=5)
        cure = f"Write s({names[1]}) for a curve of {names[1]}."
    _refuse_formula(line, max(node.col_offset - 1, 0), f"{ast.unparse(node)!r}, which is no term", cure)


def _joint_terms(a: str, b: str) -> str:
    """How two columns act together, whatever they are."""
    of_levels = f"s({a}, by={b}) for a curve of {a} at each level of {b}, s({b}, by={a}) the other way round"
    return f"Write {of_levels}, or te({a}, {b}) of two numbers."
