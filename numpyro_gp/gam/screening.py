"""Which interactions are worth a term: scores of all pairs from the residuals of a fit, a few of them tried on rows
that are held out.
"""

import dataclasses
from itertools import combinations
from typing import Any, NamedTuple

import jax
import numpy as np

from numpyro_gp.additive.columns import column_values, is_category, is_missing, keys_of
from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.gam.model.family import as_family, explained
from numpyro_gp.gam.result import Fit, fit
from numpyro_gp.gam.table.layout import as_response, lay_out, missing_values
from numpyro_gp.gam.table.terms import Term, Terms, s, ti

# Cells on each axis, and the score from which a pair is tried: two deviations of what noise alone would have.
CELLS, PROMISING = 5, 2.0


class Tried(NamedTuple):
    """A pair that was fitted: its score then, and what it gained on the rows held out, in nats per row.

    Attributes
    ----------
    term : Term
    score : float
    gain, error : float
        Mean difference of the log densities, and its standard error.
    kept : bool
        Whether the gain is more than its error.
    """

    term: Term
    score: float
    gain: float
    error: float
    kept: bool


@dataclasses.dataclass(frozen=True)
class Screening:
    """What `screen` found.

    Attributes
    ----------
    terms : Terms
        The terms that were given, and the interactions that were kept: for `ngp.gam`.
    scores : dict
        By pair of columns, largest first: how far the residuals of the given terms vary jointly, in standard deviations
        of noise.
    tried : tuple of Tried

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> kept = ngp.gam.s("a") + ngp.gam.s("b") + ngp.gam.ti("a", "b")
    >>> print(ngp.gam.Screening(kept, {("a", "b"): 9.5}, ()))
    s(a) + s(b) + ti(a, b)
    a, b: score 9.5
    """

    terms: Terms
    scores: dict[tuple[str, str], float]
    tried: tuple[Tried, ...]

    def __str__(self) -> str:
        lines = [str(self.terms), *(f"{', '.join(pair)}: score {value:.1f}" for pair, value in self.scores.items())]
        for one in self.tried:
            word = "kept" if one.kept else "left out"
            lines.append(f"{one.term}: {one.gain:+.4f} ± {one.error:.4f} nats per row held out, {word}")
        return "\n".join(lines)


def screen(
    terms: object,
    data: object,
    family: object = "gaussian",
    *,
    response: str | None = None,
    most: int = 3,
    held_out: float = 0.2,
    key: Array | None = None,
    **options: Any,
) -> Screening:
    """Which interactions are worth a term, without a fit of all pairs.

    The terms that are given are fitted to four fifths of the rows. Each pair of their columns gets a score from the
    residuals of that fit. The pair with the best one is fitted, and kept where it raises the log density of the other
    rows by more than its standard error; then the next. After a pair that is kept all scores are taken anew, as what it
    explains was noise to the others.

    Parameters
    ----------
    terms, data, family, response
        As of `ngp.gam.model`: main effects. Rows with a missing value in a column that is read are left out.
    most : int
        Pairs to fit, at most.
    held_out : float
        Share of the rows that judge, between 0 and 1. Rows of levels that no other row has are fitted.
    key : PRNG key, optional
    **options
        Of `fit`, without weights.

    Returns
    -------
    Screening
        ``ngp.gam(found.terms, data)`` fits what was kept to all rows.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> rng = np.random.default_rng(0)
    >>> data = {"a": rng.normal(size=40), "b": np.arange(40) % 2, "y": rng.normal(size=40)}
    >>> found = ngp.gam.screen("y ~ a + b", data, num_steps=20, most=1)
    >>> list(found.scores)
    [('a', 'b')]
    """
    check_count("most", most)
    is_number = isinstance(held_out, (int, float, np.number)) and not isinstance(held_out, bool)
    if not is_number or not 0 < held_out < 1:
        cure = "Pass 0.2: a fifth of the rows judges what the others say."
        fail("held_out", "a share between 0 and 1", f"{held_out!r:.60}", cure, ValueError if is_number else TypeError)
    wanted, name = explained(terms, response)
    has_labels = as_family(family).has_labels
    if family == "categorical":
        cure = 'Screen the labels of one class against all others, by the family "bernoulli".'
        fail("family", "one of one function in a screening", repr(family), cure)
    own_key = jax.random.key(0) if key is None else check_key("key", key)
    if options.get("weights") is not None:
        cure = "Leave them out: rows that are held out judge with one voice each."
        fail("weights", "None in a screening", f"a {type(options['weights']).__name__}", cure)
    wanted, train, test = _split(wanted, data, name, has_labels, held_out, own_key)
    best = fit(wanted, train, family, key=own_key, **options)
    density = _log_densities(best, test)
    pairs = ranked_pairs(best)
    first: dict[tuple[str, str], float] = {}
    for pair in pairs:  # largest first, where a column is read in two ways
        first.setdefault(pair.names, pair.score)
    tried: list[Tried] = []
    while len(tried) < most:
        if tried and tried[-1].kept:
            pairs = ranked_pairs(best)
        seen = [one.term.name for one in tried]
        left = [pair for pair in pairs if pair.term.name not in seen]
        if not left or left[0].score < PROMISING:
            break
        term, score = left[0].term, left[0].score
        new = fit(wanted + term, train, family, key=own_key, **options)
        gain = _log_densities(new, test) - density
        # Of one row no error is known, and it judges nothing.
        error = float(gain.std() / np.sqrt(len(gain))) if len(gain) > 1 else np.inf
        kept = float(gain.mean()) > error
        tried.append(Tried(term, score, float(gain.mean()), error, kept))
        if kept:
            wanted, density, best = wanted + term, density + gain, new
    return Screening(wanted, first, tuple(tried))


def _split(
    wanted: Terms, data: object, response: str, has_labels: bool, held_out: float, key: Array
) -> tuple[Terms, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The terms, rows to fit, and rows that judge: a fit must have seen their levels, and no row misses a value.

    Columns are arrays, which do not say that numbers are levels, as a table of pandas does: here the terms say it.
    """
    table = {column: column_values(data, column) for column in keys_of(data)}
    if is_category(data, response):
        missing = is_missing(table[response])
        codes = as_response(response, table[response][~missing], data, has_labels).encode(table[response])
        table[response] = np.where(missing, np.nan, codes)
    items = [
        dataclasses.replace(term, kind="factor")
        if term.kind == "column" and is_category(data, term.columns[0])
        else term
        for term in wanted.items
    ]
    wanted = dataclasses.replace(wanted, items=tuple(items))
    read = [column for term in wanted.items for column in (*term.columns, term.by) if column is not None]
    lost = missing_values({column: column_values(table, column) for column in (*read, response)})
    missing = np.any([*lost.values()], axis=0)
    table = {column: values[~missing] for column, values in table.items()}
    layout, rows = lay_out(wanted, table, response, None, has_labels=has_labels)
    count = len(rows.y)
    is_held = np.zeros(count, bool)
    some = min(max(1, round(held_out * count)), count - 1)
    is_held[np.asarray(jax.random.permutation(key, count))[:some]] = True
    for _, at in layout.of_known_levels:
        is_held &= np.isin(rows.X[:, at], rows.X[~is_held, at])
    if not is_held.any():
        cure = "Take a larger share, or re(...) for a category of which most levels have one row."
        fail("held_out", "a share with rows of levels that others have too", f"{held_out} of {count} rows", cure)
    train, test = ({name: column[rows] for name, column in table.items()} for rows in (~is_held, is_held))
    return wanted, train, test


def _log_densities(fitted: Fit, data: object) -> np.ndarray:
    """Log density of each row of a table."""
    y = fitted.model.layout.response_column.encode(column_values(data, str(fitted.model.terms.response)))
    return np.asarray(fitted._predicted(fitted.model.layout.encode(data)).log_density(y))


class Pair(NamedTuple):
    """Two columns by their names, the term of their interaction, and how far residuals vary jointly."""

    names: tuple[str, str]
    term: Term
    score: float


def ranked_pairs(fitted: Fit) -> list[Pair]:
    """All pairs of the columns of main effects, but of two categories and of what is a term, largest score first.

    A column may be read both as numbers and as a category: these are two, with pairs of their own.
    """
    layout = fitted.model.layout
    singles = ("s", "linear", "factor")
    read = sorted({p.columns[0] for p in layout.read_terms if p.term.kind in singles and not p.term.by})
    residuals, weights = fitted._residuals()
    cells: dict[int, np.ndarray] = {}  # numbers of those that values lie in: levels, or quantiles
    for at in read:
        x = fitted.model.rows.X[:, at]
        edges = np.unique(np.quantile(x, np.linspace(0, 1, CELLS + 1)[1:-1]))
        cells[at] = x.astype(int) if layout.columns[at].is_category else np.searchsorted(edges, x, side="right")
    there: set[frozenset[str]] = set()  # pairs of columns whose interaction a term is or has
    for term in (part.term for part in layout.read_terms):
        if term.kind == "s" and term.by:
            there.add(frozenset((term.columns[0], term.by)))
        elif term.kind == "te" or (term.kind == "ti" and len(term.columns) == 2):
            there |= set(map(frozenset, combinations(term.columns, 2)))
    result = []
    for first, second in combinations(read, 2):
        one, other = layout.columns[first], layout.columns[second]
        names = one.name, other.name
        if (one.is_category and other.is_category) or frozenset(names) in there or one.name == other.name:
            continue
        number, levels = sorted((one, other), key=lambda column: column.is_category)
        term = s(number.name, by=levels.name) if levels.is_category else ti(one.name, other.name)
        result.append(Pair(names, term, score(cells[first], cells[second], residuals, weights)))
    return sorted(result, key=lambda pair: -pair.score)


def score(first: np.ndarray, second: np.ndarray, residuals: np.ndarray, weights: np.ndarray) -> float:
    """Standard deviations of noise by which the cells of two columns vary beyond the sum of both.

    The weighted sum of squares of the cell means around the best sum of a row and a column effect, over the variance of
    the residuals in the cells, is chi-squared where there is no interaction.
    """
    width = second.max() + 1
    place, cell = np.unique(first * width + second, return_inverse=True)
    mass = np.bincount(cell, weights)
    mean = np.bincount(cell, weights * residuals) / mass
    rows, columns = place // width, place % width
    design = np.concatenate([rows[:, None] == np.unique(rows), columns[:, None] == np.unique(columns)], axis=1)
    root = np.sqrt(mass)
    fitted, _, rank, _ = np.linalg.lstsq(design * root[:, None], mean * root, rcond=None)
    beyond = float(np.sum(mass * (mean - design @ fitted) ** 2))
    degrees, left = len(place) - rank, len(residuals) - len(place)
    if degrees < 1 or left < 1:
        return 0.0
    variance = float(np.sum(weights * (residuals - mean[cell]) ** 2)) / left
    return float((beyond / max(variance, 1e-300) - degrees) / np.sqrt(2 * degrees))
