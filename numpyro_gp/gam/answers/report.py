"""The summary of a fit, from one pass over draws of the hyper-parameters and over its rows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from numpyro_gp.criticism.diagnose import findings
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.criticism.leave_one_out import psis_left_out
from numpyro_gp.gam.answers import row_densities
from numpyro_gp.gam.answers.advice import advice, on_normal_posterior
from numpyro_gp.gam.answers.draws import Dense, Draws
from numpyro_gp.gam.answers.effects import Row, Shares
from numpyro_gp.gam.answers.summary import deviance_explained
from numpyro_gp.gam.model.family import size_of_counts
from numpyro_gp.gam.model.term_kernels import CURVE, SMOOTH
from numpyro_gp.posterior import Posterior
from numpyro_gp.rows.batches import some_rows

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


def report_on_rows(draws: Draws, level: float, rng: np.random.Generator) -> RowReport:
    """Look at the rows of the fit, or at some of them, at every draw."""
    model, term_features = draws.model, draws.term_features
    most = min(MOST_ROWS, MOST_NUMBERS // (draws.size * len(term_features.repeats)))
    # What is drawn for a row does not depend on where it stands in the table; nor is it beside rows of near responses.
    order = np.lexsort((model.rows.mass, model.rows.y, *model.rows.X.T))
    places = np.random.default_rng(0).permutation(order)[some_rows(len(order), most)]
    first = draws.term_posteriors[0]
    each = 1 if isinstance(first, Dense) and first.is_point else -(-WHITENED // draws.size)
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
        mean = float(np.average(own.pointwise, weights=model.rows.mass[found.places]))
        bad, wrong = int(own.is_bad.sum()), np.average(own.gap * own.is_bad, weights=model.rows.mass[found.places])
        of_them = "1 row" if bad == 1 else f"{bad} rows"
        if 2 * bad <= count:
            unsure = f" (unreliable for {of_them})" * bool(wrong > WRONG)
            facts["log density, left out"] = f"{mean:.4f} per row{of_these}{unsure}"
        else:
            has_curves = any(part.term.kind in SMOOTH for part in model.layout.read_terms)
            cure = f"Give curves more, as num_inducing={2 * CURVE}, or predict" if has_curves else "Predict"
            notes.append(f"The log density left out is unreliable for {of_them}. {cure} rows of a test set.")
    facts |= {name: f"{value.mean():.4g} ± {value.std():.2g}" for name, value in others.items() if value.ndim == 1}
    return facts, notes


def checked(
    draws: Draws,
    found: RowReport,
    posterior: Callable[[], Posterior] | None,
    every: bool,
    rng: np.random.Generator,
    steps: int = 0,
) -> tuple[str, tuple[str, ...]]:
    """Which checks ran, and what `diagnose.verdict` has to say of what they saw.

    ``posterior`` makes that of an engine which leaves draws. ``every``: importance weights also where not all rows were
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
    own = None if posterior is None else posterior()
    words += "" if own is None or own.kind != "mcmc" else ", chains"
    pits = [site.pit for site in evidence.sites.values() if site.pit.size]
    inside = float(np.mean(np.abs(pits[0] - 0.5) < 0.45)) if pits else 0.9
    of_weights = [] if weights is None else on_normal_posterior(found.at, weights)
    is_stochastic, is_open = draws.term_features.is_of_programs, found.at.open.mean(axis=0)
    found_faults = [*findings(Case(evidence, own)), *of_weights]
    return words, advice(found_faults, model, is_open, steps, is_stochastic, inside)
