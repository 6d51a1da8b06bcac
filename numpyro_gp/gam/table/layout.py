"""From terms and a table to numbers: the encoded columns, what each term reads, and the rows that are left out."""

import dataclasses
import re
from typing import Any

import numpy as np

from numpyro_gp.additive import columns
from numpyro_gp.additive.columns import Column, column_values, is_category, is_missing, is_numeric, keys_of
from numpyro_gp.checks import fail
from numpyro_gp.gam.table.terms import Term, Terms, refuse_twice
from numpyro_gp.likelihoods.counts import are_trials

# What the columns of a term are read as, and what ``by`` is, where these are no numbers and no category.
ROLES = {"re": ("category", "number"), "factor": ("category", "number"), "offset": ("offset", "by")}


@dataclasses.dataclass(frozen=True)
class ReadTerm:
    """A term with the numbers of the encoded columns that it reads, ``by`` last."""

    term: Term
    columns: tuple[int, ...]

    @property
    def name(self) -> str:
        """That of the term."""
        return self.term.name


@dataclasses.dataclass(frozen=True)
class TableLayout:
    """How rows of a table become rows of numbers.

    Attributes
    ----------
    columns : tuple of Column
        Of the encoded inputs ``(N, D)``.
    read_terms : tuple of ReadTerm
        Terms with a kernel, in order.
    offsets : tuple of int
        Encoded columns that are added as they are.
    response_column : Column
        The response.
    trials : int, optional
        Encoded column of the trials among which the response counts successes, as they are.
    censored : int, optional
        Encoded column of sides, the last: 1 where the response is known to be greater, -1 where it is smaller.
    """

    columns: tuple[Column, ...]
    read_terms: tuple[ReadTerm, ...]
    offsets: tuple[int, ...]
    response_column: Column
    trials: int | None = None
    censored: int | None = None

    def encode(self, data: object, *, has_missing: bool = False) -> np.ndarray:
        """Inputs ``(N, D)`` of new rows; missing values, and levels that no prior describes, are refused by name.

        With ``has_missing`` a row with a missing value is NaN in all inputs.
        """
        columns.check_order(data)
        if self.trials is not None and (name := self.columns[self.trials].name) not in (given := list(keys_of(data))):
            cure = "Add it: predictions count successes among these trials, and of one trial are its probability."
            fail("data", f"a table with the column {name!r} of trials", f"the columns {given}", cure)
        readers = {at: part.name for part in reversed(self.read_terms) for at in part.columns}
        readers |= {at: f"offset({self.columns[at].name})" for at in self.offsets if at not in readers}
        readers |= {} if self.trials is None else {self.trials: "trials"}
        read = []
        for at, column in enumerate(self.columns):
            if at == self.censored and column.name not in (names := list(keys_of(data))):
                # All responses are observed, as one says of a column that is negated.
                first = [other.name for other in self.columns[:-1]] or names
                values = np.full(len(column_values(data, first[0])) if first else 0, column.shift)
            else:
                values = column_values(data, column.name, readers.get(at, ""))
            read.append((column, values))
        for column, values in read:
            if not has_missing and (missing := is_missing(values)).any():
                cure = "Leave these rows out of the new data."
                got = f"{missing.sum()} of {len(values)} missing"
                fail(f"column {column.name!r}", "known in the rows to predict", got, cure)
        if read and (lost := np.any([*missing_values({c.name: x for c, x in read}).values()], axis=0)).any():
            found = np.full((len(lost), len(read)), np.nan)
            if not lost.all():
                found[~lost] = self.encode({column.name: values[~lost] for column, values in read})
            return found
        every = [values for _, values in read] or [column_values(data, name) for name in keys_of(data)]
        encoded = self.encoded(read, len(every[0]) if every else 0)
        if not len(encoded):
            fail("the table of new rows", "of one row or more", "none", "Look at what selected its rows.")
        for at, (column, values) in enumerate(read):
            if (bad := ~np.isfinite(encoded[:, at])).any():
                got = f"{float(column.decode(encoded[bad, at][:1])[0])} in {bad.sum()} of {len(encoded)} rows"
                fail(f"column {column.name!r}", "finite in the rows to predict", got, "Leave these rows out.")
            if not column.is_category and columns.are_dates(values) != column.is_date:
                required, got = ("dates", "numbers") if column.is_date else ("numbers", "dates")
                cure = "Give it as the data of the fit had it: a number is no date, nor its days since 1970."
                fail(f"column {column.name!r}", f"of {required}, as in the rows of the fit", got, cure)
            known = {str(level): level for level in column.levels or ()}
            unknown = values[encoded[:, at] == len(known)] if column.is_category else values[:0]
            for value in map(columns.plain, columns.distinct(unknown)[0]):
                if (level := known.get(str(value))) is not None:  # "3" for 3 would be a level that no row had
                    required = f"of the type of its levels, {type(level).__name__}"
                    cure = f"Give it as the data of the fit had it: {level!r}."
                    fail(f"column {column.name!r}", required, f"{value!r}", cure)
        for part, at in self.of_known_levels:
            levels = self.columns[at].levels or ()
            if (new := encoded[:, at] == len(levels)).any():
                level = columns.plain(read[at][1][new][0])
                cure = "Take re(...) for levels that are draws from a population, or fit with rows of this one."
                fail(f"column {self.columns[at].name!r} of {part.name}", f"one of {list(levels)}", repr(level), cure)
        return encoded

    @property
    def of_known_levels(self) -> list[tuple[ReadTerm, int]]:
        """Terms whose prior says nothing about a new level, with the number of the category."""
        own = [part for part in self.read_terms if part.term.kind == "factor" or is_difference(part, self.read_terms)]
        return [(part, at) for part in own for at in part.columns if self.columns[at].is_category]

    def encoded(self, read: list[tuple[Column, np.ndarray]], count: int) -> np.ndarray:
        """Values of all columns as numbers, for so many rows; one column of zeros where no term reads any."""
        if not read:
            return np.zeros((count, 1))
        if self.censored is not None:  # sides as numbers; of a column that is negated they are true or false
            column, values = read[-1]
            known = {word: side for word, side in SIDES.items() if column.scale > 0 or side >= 0}
            sides = [known.get(columns.plain(value)) for value in values]
            if None in sides:
                # Of "no" and "yes", or "0" and "1", the last is more likely to be what is true.
                odd = (columns.plain(value) for value, side in zip(values, sides, strict=True) if side is None)
                bad = max(odd, key=str)
                required = "true, 1 or 'right' where the response is known to be greater"
                required += ", false, 0 or 'none' where it is observed"
                required += ", -1 or 'left' where it is known to be smaller" if column.scale > 0 else ""
                cure = f'Compare: data["{column.name}"] = data["{column.name}"] == {bad!r}, if {bad!r} says greater.'
                fail(f"censored, column {column.name!r}", required, repr(bad), cure)
            read = [*read[:-1], (column, np.array(sides, float))]
        encoded = np.stack([column.encode(values) for column, values in read], axis=1)
        for at in self.offsets:
            if not np.isfinite(encoded[:, at]).all():
                bad = encoded[~np.isfinite(encoded[:, at]), at][0]
                cure = "Leave rows without exposure out."
                fail(f"offset({self.columns[at].name})", "finite", f"{bad}", cure)
        if self.trials is not None and not (right := are_trials(encoded[:, self.trials])).all():
            got, name = f"{encoded[~right, self.trials][0]:.6g}", self.columns[self.trials].name
            fail(f"trials {name!r}", "whole numbers from 1 on", got, "Leave rows without trials out.")
        return encoded


def is_difference(part: ReadTerm, parts: tuple[ReadTerm, ...]) -> bool:
    """Whether a curve by levels stands beside the curve of all, so that it says how they differ."""
    own = part.term
    curves_of_all = [other.term.columns for other in parts if other.term.kind == "s" and not other.term.by]
    return own.kind == "s" and bool(own.by) and own.columns in curves_of_all


@dataclasses.dataclass(frozen=True)
class TableRows:
    """What a fit is given: inputs, response and weights of the rows without missing values, and how many had some.

    ``reasons`` has how many rows miss a value, by column, and how many have weight zero; one row may have two reasons.
    """

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    left_out: int
    reasons: tuple[tuple[str, int], ...] = ()

    @property
    def mass(self) -> np.ndarray:
        """How many rows each stands for ``(N,)``."""
        return np.ones(len(self.y)) if self.weights is None else self.weights


def lay_out(
    terms: Terms,
    data: object,
    response: str,
    weights: object,
    trials: str | None = None,
    has_labels: bool = False,
    has_classes: bool = False,
    censored: object = None,
) -> tuple[TableLayout, TableRows]:
    """Read a table: what each column is, and the rows of the fit. A response may be two levels, or classes.

    ``censored`` is the name of a column, "not" and a name, or an array with one value for each row.
    """
    columns.check_order(data, weights=weights, censored=censored)
    reader: dict[tuple[str, str], str] = {}  # of an expression and what it is read as the first term that does
    reads: list[tuple[Term, list[tuple[str, str]]]] = []
    for term in terms.items:
        if term.kind == "column":  # by its name alone: a straight line of numbers, the levels of a category
            is_line = is_numeric(column_values(data, term.columns[0])) and not is_category(data, term.columns[0])
            term = dataclasses.replace(term, kind="linear" if is_line else "factor")
        role, role_of_by = ROLES.get(term.kind, ("number", "by"))
        keys = [(name, role) for name in term.columns] + [(name, role_of_by) for name in (term.by,) if name is not None]
        reads.append((term, keys))
        for key in keys:
            reader.setdefault(key, term.name)
    refuse_twice([term for term, _ in reads])  # a line and the name of its column are one term
    if trials is not None:
        reader[trials, "trials"] = "trials"
    values = {key: column_values(data, key[0], name) for key, name in reader.items()}
    if censored is not None:
        of_sides, given = read_sides(censored, data)
        values[of_sides.name, "censored"] = given
    y = column_values(data, response)
    mass = np.ones(len(y)) if weights is None else _weights(weights, data, len(y))
    named = {name: column for (name, _), column in values.items()} | {response: y}
    lost = missing_values(named)
    each = [*((f"without {name}", some) for name, some in lost.items()), ("of weight 0", mass == 0)]
    missing = np.any([some for _, some in each], axis=0)
    reasons = tuple((reason, int(some.sum())) for reason, some in each if some.any())
    if missing.all():
        if not len(y):
            fail("data", "of one row or more", "none", "Look at what selected its rows.")
        empty = [name for name, some in lost.items() if some.all()]
        cure = f"Leave out {' and '.join(empty)}: no row has a value." if empty else "Leave a column out."
        fail("data", "rows without missing values", f"{len(y)} rows, none of which is complete", cure)
    y, mass, values = y[~missing], mass[~missing], {key: column[~missing] for key, column in values.items()}
    own_columns = []
    for (name, role), column in values.items():
        if role == "number":
            own_columns.append(columns.number_column(name, column, mass))
        elif role in ("offset", "trials", "censored"):  # as they are
            own_columns.append(of_sides if role == "censored" else Column(name))
        else:
            own_columns.append(columns.category_column(name, column, role, columns.order_of(data, name)))
    number = {key: at for at, key in enumerate(values)}
    parts = tuple(ReadTerm(term, tuple(number[key] for key in keys)) for term, keys in reads if term.kind != "offset")
    offsets = tuple(number[keys[0]] for term, keys in reads if term.kind == "offset")
    response_column = as_response(response, y, data, has_labels, has_classes)
    last = None if censored is None else len(number) - 1
    of_trials = number.get((trials or "", "trials"))
    layout = TableLayout(tuple(own_columns), parts, offsets, response_column, of_trials, last)
    X, y = layout.encoded(list(zip(own_columns, values.values(), strict=True)), len(y)), response_column.encode(y)
    return layout, TableRows(X, y, None if weights is None else mass, int(missing.sum()), reasons)


def as_labels(layout: TableLayout, rows: TableRows) -> tuple[np.ndarray, np.ndarray]:
    """Response and weights ``(N,)``; of successes among trials their share, with as many labels as trials."""
    if layout.trials is None:
        return rows.y, rows.mass
    trials = rows.X[:, layout.trials]
    return rows.y / trials, trials * rows.mass


# Words for sides: the response is known to be greater, is observed, or is known to be smaller.
SIDES = {"right": 1.0, "none": 0.0, "left": -1.0, True: 1.0, False: 0.0, -1: -1.0}
# The name of the column of an array of sides, which no table of new rows has.
ARRAY_OF_SIDES = "censored=[...]"


def read_sides(censored: Any, data: object) -> tuple[Column, np.ndarray]:
    """The column that says which responses are censored, and its values as they are.

    What is true of "not COLUMN" is one less the value of the column.
    """
    if not isinstance(censored, str):
        values = columns.as_array(censored)
        if values.ndim != 1:
            cure = 'Put it into the table, and name the column: censored="cens".'
            fail("censored", "the name of a column, or one value for each row", f"shape {values.shape}", cure)
        return Column(ARRAY_OF_SIDES), values
    negated = re.fullmatch(r"not\s+(.+?)\s*", censored)
    if negated is None or censored in keys_of(data):
        return Column(censored), column_values(data, censored, "censored")
    return Column(negated[1], shift=1.0, scale=-1.0), column_values(data, negated[1], "censored")


def other_sides(column: Column) -> str:
    """How to write the opposite of a column of sides."""
    if column.name == ARRAY_OF_SIDES:
        return "negate what is passed as censored"
    return f'write censored="{column.name if column.scale < 0 else f"not {column.name}"}"'


def missing_values(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Which rows miss a value, by column."""
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        fail("columns", "of one length", f"{lengths}", "Give each a value for every row.")
    return {name: is_missing(column) for name, column in values.items()}


def _weights(weights: object, data: object, size: int) -> np.ndarray:
    given = column_values(data, weights) if isinstance(weights, str) else columns.as_array(weights)
    values = columns.as_numbers("weights", given)
    if values.shape != (size,):
        fail("weights", f"of shape ({size},)", f"shape {values.shape}", "Pass a weight for each row, or a column.")
    if not np.isfinite(values).all() or (values < 0).any():
        bad = values[~np.isfinite(values) | (values < 0)][0]
        cure = "A weight is how many rows one row stands for: 0 leaves it out."
        fail("weights", "finite, and zero or positive", f"{bad:.6g}", cure)
    return values


def as_response(name: str, values: np.ndarray, data: object, has_labels: bool, has_classes: bool = False) -> Column:
    """Numbers as they are; of labels, and of booleans, two levels, the second of which is 1.

    Of classes the names of three or more: text, whole numbers, or a category of a table.
    """
    has_levels = is_category(data, name)
    if has_classes and is_numeric(values) and not has_levels:
        some = {columns.plain(value) for value in columns.distinct(values)[0]}
        if len(some) > columns.MOST_LEVELS or not all(isinstance(value, int) for value in some):
            got = f"{len(some)} numbers, {min(some)!r} to {max(some)!r}"
            cure = 'Numbers take the family "gaussian", counts "poisson". '
            cure += "Cut numbers into groups to make classes of them."
            fail(f"response {name!r}", f"names of at most {columns.MOST_LEVELS} classes", got, cure)
    elif not has_classes and not has_levels and (is_numeric(values) or values.dtype.kind == "b"):
        return Column(name)
    found = columns.category_column(name, values, "response", columns.order_of(data, name))
    levels, own = found.levels or (), f'data["{name}"]'
    if has_classes:
        if len(levels) == 2:
            cure = 'Take the family "bernoulli", which gives the probability of the second.'
            fail(f"response {name!r}", "of three classes or more", f"two, {levels[0]!r} and {levels[1]!r}", cure)
        return found
    if len(levels) == 2 and (has_labels or all(isinstance(level, bool) for level in levels)):
        return found
    cure = f'Ask for one of them: {own} = {own} == {levels[-1]!r}, of the family "bernoulli".'
    if has_labels:
        fail(f"response {name!r}", "labels 0 and 1, or two levels", f"{len(levels)} levels", cure)
    cure = 'Take the family "bernoulli", which has two levels.' if len(levels) == 2 else cure
    if all(map(columns.stands_for_number, levels)):
        cure = f"Make numbers of them: {own} = {own}.astype(float)."
        cure = cure if has_levels else f"Make numbers of the text: {own} = np.array({own}, float)."
    kind = "levels of a category" if has_levels else "text"
    fail(f"response {name!r}", "numbers in this family", f"{kind}, {levels[0]!r} and others", cure)
