"""What a fitted additive model says, in one table: shares of the variance over the data, degrees of freedom, checks.

All of it is found in one pass over draws of the hyper-parameters and over the rows of the fit.
"""

import dataclasses
import html
import math
from typing import NamedTuple

import numpy as np

from numpyro_gp.criticism.diagnose import findings
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.criticism.leave_one_out import psis_left_out
from numpyro_gp.gam.answers import row_densities
from numpyro_gp.gam.answers.advice import advice, on_normal_posterior
from numpyro_gp.gam.answers.draws import Dense, Draws
from numpyro_gp.gam.answers.effects import Row, Shares
from numpyro_gp.gam.model.family import Family, size_of_counts, start_of, trials_at
from numpyro_gp.gam.model.model import Model
from numpyro_gp.gam.model.term_kernels import CURVE, SMOOTH
from numpyro_gp.gam.table.layout import as_labels
from numpyro_gp.likelihoods.links import mean_of, slope_of
from numpyro_gp.posterior import Posterior
from numpyro_gp.rows.batches import some_rows

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
    >>> from numpyro_gp.gam.answers.effects import Row
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


# --------------------------------------------------------------------------------------
# One pass over draws and rows, and what it says of the whole fit.


# Rows that are looked at, at most, and numbers in their features at all draws: some seconds.
MOST_ROWS, MOST_NUMBERS = 5000, 60_000_000
# Draws of the whitened values, in all.
WHITENED = 1000
# Nats per row by which rows that cannot be left out may move the log density of all, unsaid.
WRONG = 0.05


class RowReport(NamedTuple):
    """What one pass found: numbers of the rows, the rows of the table, the intercept and its scale, and densities."""

    places: np.ndarray
    rows: tuple[Row, ...]
    constant: tuple[float, float]
    at: row_densities.RowDraws
    densities: row_densities.Densities


def looked_at(draws: Draws) -> tuple[int, int]:
    """Rows of the fit that are looked at, at most, and draws of the whitened values at each draw: of a point one."""
    most, first = MOST_NUMBERS // (draws.size * len(draws.term_features.repeats)), draws.term_posteriors[0]
    is_point = isinstance(first, Dense) and first.is_point
    return min(MOST_ROWS, most), 1 if is_point else -(-WHITENED // draws.size)


def report_on_rows(draws: Draws, level: float, rng: np.random.Generator) -> RowReport:
    """Look at the rows of the fit, or at some of them, at every draw."""
    model, term_features = draws.model, draws.term_features
    most, each = looked_at(draws)
    # What is drawn for a row does not depend on where it stands in the table; nor is it beside rows of near responses.
    order = np.lexsort((model.rows.mass, model.rows.y, *model.rows.X.T))
    places = np.random.default_rng(0).permutation(order)[some_rows(len(order), most)]
    shares = Shares(term_features, model.rows.mass[places])
    drawn = (term_posterior.sample(rng, each) for term_posterior in draws.term_posteriors)
    without = row_densities.GaussianLeftOut.of(draws, places)
    at = row_densities.row_draws(draws, model.rows.X[places], drawn, rng, shares, without)
    constant = float(shares.constant.mean + model.start.constant), float(shares.constant.scale)
    return RowReport(places, shares.rows(level), constant, at, row_densities.densities(draws, at, places))


def facts_of(draws: Draws, found: RowReport, density: bool) -> tuple[dict[str, object], list[str]]:
    """Deviance, log density of left-out rows and parameters of the likelihood; and what to look at."""
    model, count, notes = draws.model, len(found.places), []
    others = {name: np.asarray(value, float) for name, value in draws.values.items() if not name.startswith("f_")}
    r = size_of_counts(draws.likelihood, len(model.rows.y))[found.places]
    facts: dict[str, object] = {"family": model.family.name}
    explained = float(deviance_explained(model, found.densities.fitted, r, found.places))
    facts |= {"deviance explained": explained} if np.isfinite(explained) else {}
    if density and not row_densities.are_known(draws, found.at):
        own = psis_left_out(row_densities.to_leave_out(draws, found.at, found.densities, found.places))
        of_these = "" if count == len(model.rows.y) else f", of {count} of them"
        response = model.layout.response_column.name
        of_these += f", of {response}" * ("(" in response)  # of a logarithm it is no density of the data
        mean = float(np.average(own.pointwise, weights=model.rows.mass[found.places]))
        bad, wrong = int(own.is_bad.sum()), np.average(own.gap * own.is_bad, weights=model.rows.mass[found.places])
        of_them = "1 row" if bad == 1 else f"{bad} rows"
        if 2 * bad <= count:
            unsure = f" (unreliable for {of_them})" * bool(wrong > WRONG)
            facts["log density, left out"] = f"{mean:.4f} per row{of_these}{unsure}"
        else:
            has_curves = any(part.term.kind in SMOOTH for part in model.layout.read_terms)
            cure = f"Give curves more, as num_inducing={2 * CURVE}, or predict" if has_curves else "Predict"
            if model.family.named is None and others and draws.log_ratio is not None:
                cure = (
                    'Parameters of the likelihood may have no normal posterior: compare with engine="nuts", or predict'
                )
            notes.append(f"The log density left out is unreliable for {of_them}. {cure} rows of a test set.")
    if model.family.name == "student_t" and (no_mean := float(np.mean(others["df"] <= 1))):
        of_draws = f"New data have no mean in {100 * no_mean:.2g} % of the draws, whose df is 1 or less"
        notes.append(f"{of_draws}: `mean` of a prediction is NaN. Take its `quantiles`, or `function_mean`.")
    facts |= {name: f"{value.mean():.4g} ± {value.std():.2g}" for name, value in others.items() if value.ndim == 1}
    return facts, notes


def checked(
    draws: Draws,
    found: RowReport,
    posterior: Posterior | None,
    every: bool,
    rng: np.random.Generator,
    steps: int = 0,
) -> tuple[str, tuple[str, ...]]:
    """Which checks ran, and what `diagnose.verdict` has to say of what they saw.

    ``posterior`` is that of an engine which leaves draws. ``every``: importance weights also where not all rows were
    looked at. ``steps`` are those of the engine.
    """
    seen, model, count = len(found.places), draws.model, len(draws.model.rows.y)
    evidence = row_densities.evidence_of(draws, found.at, found.densities, found.places)
    weights, words = None, "noise, inducing inputs"
    words += ", residuals, calibration" if any(site.pit.size for site in evidence.sites.values()) else ""
    words += "" if seen == count else f" at {seen} rows"
    if draws.log_ratio is not None and draws.size > 1:
        if seen == count:
            weights = row_densities.weights_of(draws, found.at.log_ratio, found.densities.expected)
        elif every:
            weights = row_densities.weights_of(draws, *row_densities.expected_at_all(draws, rng))
        if weights is None:
            words += "; no importance weights at so many rows: pass check=True"
        else:
            words += f", importance weights (Pareto k {weights.pareto_k:.2f} of {len(weights.log_weights)})"
    words += "" if posterior is None or posterior.kind != "mcmc" else ", chains"
    pits = [site.pit for site in evidence.sites.values() if site.pit.size]
    inside = float(np.mean(np.abs(pits[0] - 0.5) < 0.45)) if pits else 0.9
    of_weights = [] if weights is None else on_normal_posterior(found.at, weights)
    is_stochastic, is_open = draws.term_features.is_of_programs, found.at.open.mean(axis=0)
    found_faults = [*findings(Case(evidence, posterior)), *of_weights]
    return words, advice(found_faults, model, is_open, steps, is_stochastic, inside)
