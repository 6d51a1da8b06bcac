"""What a fitted additive model says, in one table: shares of the variance over the data, degrees of freedom, checks."""

import dataclasses
import html
import math

import numpy as np

from numpyro_gp.gam.answers.effects import Row
from numpyro_gp.gam.model.family import Family, start_of, trials_at
from numpyro_gp.gam.model.model import Model
from numpyro_gp.gam.table.layout import as_labels
from numpyro_gp.likelihoods.links import mean_of, slope_of

__all__ = ["Row", "Summary", "deviance_explained"]

# Of Fisher's scoring for one number.
MOST_STEPS = 50


@dataclasses.dataclass(frozen=True)
class Summary:
    """The table of a fit, as text, as HTML in a notebook, and as values.

    Attributes
    ----------
    title : str
    rows : tuple of Row
        One for each term.
    facts : dict
        What concerns the whole fit: deviance explained, leave-one-out density, parameters of the likelihood, rows.
    notes : tuple of str
        What to look at.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> from numpyro_gp.gam.answers.summary import Row
    >>> row = Row("s(age)", 1.0, 0.9, 1.0, 3.2, 0.0, -0.1, "s(dose)")
    >>> for line in ngp.gam.Summary("y ~ s(age)", (row,), {"rows": 9}, ()).cells():
    ...     print(line)
    ['term', 'share of variance', 'edf', 'P(negligible)', 'correlation']
    ['s(age)', '1.00 (0.90 to 1.00)', '3.2', '0.00', '-0.10 s(dose)']
    """

    title: str
    rows: tuple[Row, ...]
    facts: dict[str, object]
    notes: tuple[str, ...]

    def cells(self) -> list[list[str]]:
        """The table, its head first."""
        head = ["term", "share of variance", "edf", "P(negligible)", "correlation"]
        rows = [
            [
                row.term,
                f"{row.share:.2f} ({row.low:.2f} to {row.high:.2f})",
                f"{row.edf:.1f}",
                f"{row.negligible:.2f}",
                f"{row.correlation:.2f} {row.partner}" if row.partner else "-",
            ]
            for row in self.rows
        ]
        return [head, *rows]

    def __str__(self) -> str:
        lines = [self.title, "", *aligned(self.cells()), ""] if self.rows else [self.title, ""]
        lines += aligned([[name, _text(value)] for name, value in self.facts.items()])
        return "\n".join(lines + [""] * bool(self.notes) + [f"note: {note}" for note in self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def table(rows: list[list[str]], first: str) -> str:
            body = [
                "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
                for row, tag in ((row, first if not at else "td") for at, row in enumerate(rows))
            ]
            return f"<table>{''.join(body)}</table>"

        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        facts = table([[name, _text(value)] for name, value in self.facts.items()], "td")
        return f"<p><code>{html.escape(self.title)}</code></p>{table(self.cells(), 'th')}{facts}{notes}"


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def aligned(rows: list[list[str]]) -> list[str]:
    """Lines of cells, each column as wide as its widest one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def deviance_explained(model: Model, fitted: np.ndarray, r: object, some: slice | np.ndarray = slice(None)) -> float:
    """``1 - D(y, fitted) / D(y, constant + offsets)`` of some rows; NaN where the deviance is not known.

    ``r`` is that of the negative binomial, () or one for each of these rows.
    """
    y, weights = (one[some] for one in as_labels(model.layout, model.rows))
    X = model.rows.X[some]
    offset, trials = X[:, list(model.layout.offsets)].sum(axis=1), trials_at(model.layout, X)
    fitted = fitted if trials is None else fitted / trials
    null = null_mean(model.family, y, offset, weights, r)
    if (row := model.family.row) is None or (deviance := row.deviance) is None or model.layout.censored is not None:
        return math.nan
    first, second = (float(np.sum(weights * deviance(y, mean, r))) for mean in (fitted, null))
    return 1 - first / second if second > 0 else math.nan


def null_mean(family: Family, y: np.ndarray, offset: np.ndarray, weights: np.ndarray, r: object) -> np.ndarray:
    """Means ``(N,)`` by the likeliest constant beside offsets: the average where there are none.

    With offsets a constant of labels has no closed form: steps of Fisher's scoring, none longer than one.
    """
    mean, link = float(np.average(y, weights=weights)), family.link
    is_edge = (link != "identity" and mean == 0) or (link in ("logit", "probit") and mean == 1)
    if link == "none" or is_edge or not offset.any():
        return np.full(len(y), mean)
    if link == "identity":
        return offset + float(np.average(y - offset, weights=weights))
    constant = start_of(link, y, offset, weights)
    for _ in range(MOST_STEPS):
        eta = constant + offset
        mass = weights * family.weights(eta, r)
        slope = np.maximum(slope_of(link, eta), np.finfo(float).tiny)
        step = float(np.sum(mass * ((y - mean_of(link, eta)) / slope)) / np.sum(mass))
        constant += min(max(step, -1.0), 1.0)
        if abs(step) < 1e-10:
            break
    return mean_of(link, constant + offset)
