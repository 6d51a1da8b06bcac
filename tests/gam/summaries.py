"""Summaries and forecasts of models composed at random, of one table in several forms: all must say the same.

    python -m tests.gam.summaries 100 --start 0
    python -m tests.gam.summaries 200 --notes trend

A seed makes a formula, a table and a family, one of three a series. Its rows are fitted in single precision, and once
more in another form: permuted, sorted by the response, sorted by a group, or with weights as repeated rows. What is
predicted, the table of the summary and its notes must not change.
"""

import argparse
import re
import sys
import time
import traceback
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.gam.model.model import offset_at
from tests.gam.formulas import Case, are_two_modes, case_of, distance, used_rows, without
from tests.precision import x64

FORMS = ("permuted", "by response", "by group", "repeated")
SERIES = (
    "y ~ trend(t)",
    "y ~ trend(t) + season(t, period=12)",
    "y ~ trend(t) + re(g)",
    "y ~ trend(t) + cycle(t)",
    "y ~ trend(t) + s(x)",
)
# Differences of moments in standard deviations of f, of shares and of nats per row: of fits whose bounds are flat to a
# hundredth, and of one set of draws.
MOMENTS, SHARES, NATS = 0.15, 0.05, 0.1
CHECK = re.compile("neighbouring|unreliable|normal posterior")


def series_of(seed: int) -> Case:
    """A series of 30 to 90 times, of which some have two rows."""
    rng = np.random.default_rng([seed, 2])
    count = int(rng.integers(30, 91))
    times = np.arange(float(count))
    level = np.cumsum(float(rng.choice([0.0, 0.2, 1.0])) * rng.normal(size=count)) + 0.02 * times
    level = level + float(rng.choice([0.0, 1.0])) * np.sin(2 * np.pi * times / 12)
    rows = np.sort(np.append(np.arange(count), rng.integers(0, count, count // 5)))
    g, x = rng.integers(0, 4, len(rows)), rng.uniform(size=len(rows))
    y = level[rows] + float(rng.choice([0.05, 0.3, 1.0])) * rng.normal(size=len(rows)) + 0.2 * g
    weights = rng.integers(1, 4, len(rows)).astype(float) if rng.uniform() < 0.4 else None
    return Case(str(rng.choice(SERIES)), "gaussian", {"t": times[rows], "g": g, "x": x, "y": y}, weights)


def form_of(case: Case, form: str, rng: np.random.Generator) -> tuple[Case, np.ndarray]:
    """The same rows in another form, and which of its rows are those of the first."""
    size = len(case.data["y"])
    if form == "repeated":
        assert case.weights is not None
        order = np.repeat(np.arange(size), case.weights.astype(int))
        return case._replace(data=without(case.data, order), weights=None), np.searchsorted(order, np.arange(size))
    order = {
        "permuted": lambda: rng.permutation(size),
        "by response": lambda: np.argsort(case.data["y"], kind="stable"),
        "by group": lambda: np.argsort(case.data["g"], kind="stable"),
    }[form]()
    weights = None if case.weights is None else case.weights[order]
    return case._replace(data=without(case.data, order), weights=weights), np.argsort(order)


class Told(NamedTuple):
    """What a fit tells: moments of ``f (N,)`` at the rows, its table ``(C, 3)``, its numbers and its notes."""

    mean: np.ndarray
    sd: np.ndarray
    table: np.ndarray
    facts: dict[str, float]
    notes: set[str]
    fit: Any
    used: np.ndarray


def told(case: Case) -> Told:
    """What the default fit of a case tells."""
    used = used_rows(case) if "held" in case.data else np.ones(len(case.data["y"]), bool)
    fit = ngp.gam(case.formula, case.data, case.family, weights=case.weights)
    prediction, summary = fit.predict(without(case.data, used)), fit.summary()
    mean, variance = np.asarray(prediction.function_mean, float), np.asarray(prediction.function_variance, float)
    table = np.array([(row.share, row.low, row.high) for row in summary.rows])
    names = ("deviance explained", "log density, left out")
    facts = {name: float(str(summary.facts[name]).split()[0]) for name in names if name in summary.facts}
    notes = {re.sub(r"[-+.\de]*\d[-+.\de]*", "#", note).split(":")[0] for note in (*fit.notes, *summary.notes)}
    return Told(mean, np.sqrt(variance), table, facts, notes, fit, used)


def differences(one: Told, other: Told, rows: np.ndarray, of_copies: bool = False) -> list[str]:
    """In what two fits of one table differ, whose second has the rows of the first at these places.

    Of copies there are more rows that cannot be left out, and of counts neighbouring residuals are those of copies.
    """
    at = (np.cumsum(other.used) - 1)[rows][one.used]
    found = []
    far = distance(one.mean, one.sd, other.mean[at], other.sd[at])
    if not far < MOMENTS:
        found.append(f"moments by {far:.3g}")
    if not (away := float(np.abs(one.table - other.table).max(initial=0))) < SHARES:
        found.append(f"shares by {away:.3g}")
    if one.facts.keys() != other.facts.keys():
        found.append(f"facts {sorted(one.facts.keys() ^ other.facts.keys())}")
    found += [
        f"{name} {value:.4g} or {other.facts[name]:.4g}"
        for name, value in one.facts.items()
        if name in other.facts and not abs(value - other.facts[name]) < NATS
    ]
    return found + [
        f"note {note!r}" for note in sorted(one.notes ^ other.notes) if not (of_copies and CHECK.search(note))
    ]


def checked(seed: int) -> str:
    """What is wrong with two forms of a seed's table; nothing if all is right."""
    case, rng = series_of(seed) if seed % 3 == 0 else case_of(seed), np.random.default_rng([seed, 3])
    forms = [form for form in FORMS if form != "repeated" or case.weights is not None]
    form = str(rng.choice(forms))
    said = f"seed {seed}: {case.formula}, {case.family}, {len(case.data['y'])} rows, {form}"
    try:
        with x64(False):
            other, rows = form_of(case, form, rng)
            one, another = told(case), told(other)
        if (found := differences(one, another, rows, form == "repeated")) and not (
            "moments" in found[0] and two_modes(one, another)
        ):
            return f"{said}: {'; '.join(found)}"
    except Exception:
        return f"{said}: {traceback.format_exc(limit=-2)}"
    return ""


def again_of(fit: Any, rng: np.random.Generator, number: int) -> np.ndarray:
    """The response at all rows as a draw of a fit says it: of its hyper-parameters, terms and noise."""
    draws = fit._draws()
    number %= draws.size
    posterior, scaled = next(pair for at, pair in enumerate(draws.at(fit.model.rows.X)) if at == number)
    f = offset_at(fit.model, fit.model.rows.X) + (posterior.sample(rng, 1).T @ scaled.A)[0]
    of_draws = {name: value for name, value in vars(draws.likelihood).items() if not isinstance(value, str)}
    numbers = {name: float(np.ravel(value[number])[0]) for name, value in of_draws.items()}
    return {
        "gaussian": lambda: rng.normal(f, numbers.get("scale", 1.0)),
        "student_t": lambda: f + numbers["scale"] * rng.standard_t(numbers["df"], len(f)),
        "poisson": lambda: rng.poisson(np.exp(f)),
        "bernoulli": lambda: (rng.uniform(size=len(f)) < expit(f)).astype(float),
        "gamma": lambda: np.exp(f) / numbers["shape"] * rng.gamma(numbers["shape"], 1, len(f)),
    }[fit.model.family.name]()


def model_of(kind: str, rng: np.random.Generator) -> Case:
    """A formula and a family with data that it can explain."""
    x, z, g = rng.uniform(size=100), rng.uniform(size=100), rng.integers(0, 6, 100)
    data: dict[str, Any] = {"t": np.arange(100.0), "x": x, "z": z, "g": g}
    f = np.sin(6 * x) + 0.5 * rng.normal(size=6)[g]
    formula, family, y = {
        "trend": ("trend(t)", "gaussian", np.cumsum(0.5 * rng.normal(size=100)) + 0.5 * rng.normal(size=100)),
        "curve": ("s(x) + re(g)", "gaussian", f + 0.5 * rng.normal(size=100)),
        "surface": ("te(x, z, num_inducing=20)", "gaussian", np.sin(6 * x) * z + 0.3 * rng.normal(size=100)),
        "counts": ("s(x) + re(g)", "poisson", rng.poisson(2 * np.exp(f))),
        "labels": ("s(x) + re(g)", "bernoulli", rng.uniform(size=100) < expit(f)),
        "amounts": ("s(x) + re(g)", "gamma", np.exp(f) * rng.gamma(3, 1 / 3, 100)),
        "outliers": ("s(x) + re(g)", "student_t", f + 0.3 * rng.standard_t(4, 100)),
    }[kind]
    return Case(f"y ~ {formula}", family, data | {"y": y}, None)


KINDS = ("trend", "curve", "surface", "counts", "labels", "amounts", "outliers")


def noted(kind: str, count: int, start: int = 0) -> list[tuple[str, ...]]:
    """Notes of summaries of ``count`` tables that were drawn from the fit of one: there is nothing to say of them."""
    rng = np.random.default_rng([11, start])
    case, found = model_of(kind, rng), []
    with x64(False):
        fit = ngp.gam(case.formula, case.data, case.family)
        for number in range(start, start + count):
            data = case.data | {"y": again_of(fit, rng, number)}
            key = jax.random.key(number)  # else all tables have the draws of one
            found.append(ngp.gam(case.formula, data, case.family, key=key).summary().notes)
    return [notes for notes in found if notes]


def two_modes(one: Told, other: Told) -> bool:
    """Whether two fits ended at modes of one bound, of which rounding decides which is found."""
    return not one.fit.model.kernel_data.time_priors and are_two_modes(one, other)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--notes", choices=KINDS, help="of data drawn from a fit itself")
    options = parser.parse_args()
    if options.notes:
        notes = noted(options.notes, options.count, options.start)
        print(*notes, f"{options.notes}: {options.count} tables, {len(notes)} with notes", sep="\n")
        sys.exit(len(notes) > 0.05 * options.count)
    begin, failed = time.perf_counter(), 0
    for seed in range(options.start, options.start + options.count):
        if wrong := checked(seed):
            failed += 1
            print(wrong, flush=True)
    print(f"{options.count} tables, {failed} failed, {time.perf_counter() - begin:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
