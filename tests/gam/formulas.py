"""Additive models composed at random, against a dense computation in NumPy and SciPy with kernels of its own.

    python -m tests.gam.formulas 100 --start 0

A seed makes a formula, a table with columns of many kinds, a family and weights. The fit is looked at where its
hyper-parameters are most likely. There its belief is one that a natural step does not move: what the step makes of it
is computed from kernels by their definitions, densities by SciPy and quadrature, and dense matrices. A second fit of
the same rows in another form (`RELATIONS`) must say the same.
"""

import argparse
import sys
import time
import traceback
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.integrate import trapezoid
from scipy.linalg import solve_triangular
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.gam.result import Fit
from numpyro_gp.gam.search.bound import Bound, BoundParts, Data
from numpyro_gp.gam.search.engines import of_values
from numpyro_gp.gam.table.layout import is_difference
from tests.gam.known import log_density

FAMILIES = ("gaussian", "poisson", "bernoulli", "gamma", "negative_binomial", "student_t")
RELATIONS = ("order", "unit", "names", "copies")
NUMBERS, LEVELS = ("x", "z", "n", "day", "held"), ("g", "kind", "flag", "code")
# What two fits may differ by, in standard deviations of f: both stop where the bound is flat to a hundredth.
SAME, FIXED = 0.15, 0.05
# A belief that never knows less than the prior is no fixed point where rows leave more doubt than this.
DOUBT = -0.1
# Slopes of the bound at a mode, and by how many nats a mode is below another.
MODE, LOWER = 0.4, 0.5


class Case(NamedTuple):
    """A formula with its table of 60 to 120 rows."""

    formula: str
    family: str
    data: dict[str, Any]
    weights: np.ndarray | None


def table_of(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Columns as people bring them; some values of one are masked."""
    hidden = np.zeros(size, bool)
    hidden[rng.integers(0, size, 3)] = True
    columns = {
        "x": rng.uniform(size=size),
        "z": np.exp(rng.normal(size=size)) + 100,
        "n": rng.integers(0, 12, size),
        "day": np.datetime64("2020-01-01") + rng.integers(0, 400, size).astype("timedelta64[D]"),
        "held": np.ma.masked_array(rng.normal(size=size).astype(np.float32), hidden),
        "hour": rng.permutation(np.arange(size) % 24),
        "g": np.array(list("abc"))[rng.permutation(np.arange(size) % 3)],
        "kind": rng.permutation(np.arange(size) % 5).astype(str).astype(object),
        "flag": rng.permutation(np.arange(size) % 2 == 0),
        "code": rng.permutation(np.arange(size) % 4) * 10,
        "exposed": rng.uniform(0.2, 1.0, size),
    }
    try:
        import pandas as pd
    except ImportError:
        return columns
    return columns | {"kind": pd.Categorical(columns["kind"])}


def terms_of(rng: np.random.Generator) -> list[str]:
    """One to four terms that do not ask for the same."""
    a, b = (str(name) for name in rng.choice(NUMBERS, 2, replace=False))
    group, other = (str(name) for name in rng.choice(LEVELS, 2, replace=False))
    some = [
        f"s({a})",
        f"s({a}) + s({a}, by={group})",
        f"s({a}, by={group}) + factor({group})",
        f"te({a}, {b}, num_inducing={rng.integers(6, 20)})",
        f"s({a}) + s({b}) + ti({a}, {b}, num_inducing={rng.integers(6, 20)})",
        f"linear({a})",
        a,
    ]
    found = [str(rng.choice(some))]
    for term, chance in (
        (f"re({other})", 0.3),
        (f"re({other}, by={b})", 0.15),
        (f"factor({other})", 0.2),
        ("s(hour, cyclic=True)", 0.2),
        ("s(hour, cyclic=(0, 24))", 0.1),
        ("offset(log(exposed))", 0.25),
    ):
        taken = " + ".join(found)
        clashes = ("hour" in term and "hour" in taken) or ("factor" in term and f"re({other})" in taken)
        if rng.uniform() < chance and not clashes:
            found.append(term)
    return found


def case_of(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    size, family = int(rng.integers(60, 121)), str(rng.choice(FAMILIES))
    data, formula = table_of(rng, size), "y ~ " + " + ".join(terms_of(rng))
    f = 0.8 * np.sin(6 * data["x"]) + 0.4 * (data["g"] == "b") + 0.03 * data["n"] + 0.3 * data["flag"]
    f = f + 0.4 * np.sin(2 * np.pi * data["hour"] / 24)
    mean = np.exp(f)
    data["y"] = {
        "gaussian": lambda: 10.0 ** rng.integers(-3, 4) * (f + 0.3 * rng.normal(size=size)),
        "student_t": lambda: f + 0.3 * rng.standard_t(4, size),
        "poisson": lambda: rng.poisson(2 * mean),
        "negative_binomial": lambda: rng.poisson(3 * mean * rng.gamma(3, 1 / 3, size)),
        "bernoulli": lambda: rng.uniform(size=size) < expit(2 * f - 1),
        "gamma": lambda: mean * rng.gamma(3, 1 / 3, size) + 1e-3,
    }[family]()
    weights = rng.integers(1, 4, size).astype(float) if rng.uniform() < 0.4 else None
    return Case(formula, family, data, weights)


# ------------------------------------------------------------------------------------------- the dense computation


def encoded(values: Any, weights: np.ndarray, is_category: bool) -> np.ndarray:
    """Codes of sorted levels, or standard deviations from the mean."""
    values = np.asarray(values)
    if is_category:
        return np.unique(values, return_inverse=True)[1].astype(float)
    x = values.astype("datetime64[D]").astype(float) if values.dtype.kind == "M" else values.astype(float)
    mean = np.average(x, weights=weights)
    return (x - mean) / np.sqrt(np.average((x - mean) ** 2, weights=weights))


def matern52(length):
    def kernel(x, y):
        r = np.sqrt(5) * np.abs(x[:, None] - y) / length
        return (1 + r + r**2 / 3) * np.exp(-r)

    return kernel


def periodic(length, period):
    return lambda x, y: np.exp(-2 * np.sin(np.pi * (x[:, None] - y) / period) ** 2 / length**2)


def same(x, y):
    return (x[:, None] == y).astype(float)


def centred(kernel, rows, mass):
    """``k(x, y) - m(x) m(y) / M``: the kernel of functions that average to zero over a measure."""
    whole = mass @ kernel(rows, rows) @ mass
    return lambda x, y: kernel(x, y) - np.outer(kernel(x, rows) @ mass, mass @ kernel(rows, y)) / whole


def measure_of(x, weights, most=32):
    """Values and their shares of all rows; of more values than 32 the means of so many bins of equal shares."""
    values, place = np.unique(x, return_inverse=True)
    mass = np.bincount(place, weights) / weights.sum()
    if len(values) <= most:
        return values, mass
    of_bin = np.minimum((most * (np.cumsum(mass) - mass / 2)).astype(int), most - 1)
    total = np.bincount(of_bin, mass)
    return (np.bincount(of_bin, mass * values)[total > 0] / total[total > 0]), total[total > 0]


def term_kernel(part, layout, lengths, X, raw, weights):
    """The kernel of a term between rows of encoded columns, by its definition."""
    term, columns = part.term, part.columns
    measures = [measure_of(X[:, at], weights) for at in columns]
    if term.kind == "linear":
        return lambda A, B: np.outer(A[:, columns[0]], B[:, columns[0]])  # columns are centred by their encoding
    if term.kind == "factor":
        one = centred(same, *measures[0])
        return lambda A, B: one(A[:, columns[0]], B[:, columns[0]])
    if term.kind == "re":
        slope = columns[1] if term.by else None
        return lambda A, B: (
            same(A[:, columns[0]], B[:, columns[0]]) * (1.0 if slope is None else np.outer(A[:, slope], B[:, slope]))
        )
    curves = []
    for place, length in enumerate(lengths):
        kernel = matern52(length)
        if term.cyclic:
            hours = np.asarray(raw[term.columns[0]], float)
            low, high = (hours.min(), hours.max() + 1) if term.cyclic is True else term.cyclic
            spread = np.sqrt(np.average((hours - np.average(hours, weights=weights)) ** 2, weights=weights))
            kernel = periodic(length, (high - low) / spread)
        curves.append(centred(kernel, *measures[place]))
    levels = None
    if term.by:
        levels = centred(same, *measures[-1]) if is_difference(part, layout.read_terms) else same

    def value(A, B):
        each = [one(A[:, at], B[:, at]) for one, at in zip(curves, columns, strict=False)]
        found = np.prod([1 + one for one in each], axis=0) - 1 if term.kind == "te" else np.prod(each, axis=0)
        return found if levels is None else found * levels(A[:, columns[-1]], B[:, columns[-1]])

    return value


NUMBERS_OF = {"gaussian": ("scale",), "student_t": ("df", "scale"), "gamma": ("shape",), "negative_binomial": ("r",)}


def slopes(family, likelihood, y, mean, sd):
    """Slopes of ``E log p(y | f)`` in mean and (times -2) variance, by a trapezoid rule of the density alone.

    Its steps are fine beside ``y`` too, where Student's t may be far narrower than what is believed of ``f``.
    """
    near = np.sinh(np.linspace(-18, 18, 2001))[:, None] * 1e-6
    whole = mean + sd * np.linspace(-9, 9, 2001)[:, None]
    f = whole if family != "student_t" else np.concatenate([whole, np.clip(y + near, whole[0], whole[-1])])
    f = np.sort(f, axis=0)
    z = (f - mean) / sd
    numbers = [float(np.ravel(getattr(likelihood, name))[0]) for name in NUMBERS_OF.get(family, ())]
    value = log_density(family, y, f, *numbers) - log_density(family, y, mean, *numbers)
    mass = value * stats.norm.pdf(z)
    return trapezoid(z * mass, z, axis=0) / sd, -trapezoid((z**2 - 1) * mass, z, axis=0) / sd**2


class Seen(NamedTuple):
    """Moments of ``f (N,)`` at the rows of the fit, and its hyper-parameters."""

    mean: np.ndarray
    sd: np.ndarray
    draws: Any
    fit: Fit
    used: np.ndarray


def without(data: dict[str, Any], used: np.ndarray) -> dict[str, Any]:
    return {name: column[used] for name, column in data.items()}


def used_rows(case: Case) -> np.ndarray:
    """Rows that have all that the formula reads."""
    return ~np.ma.getmaskarray(case.data["held"]) if "held" in case.formula else np.ones(len(case.data["x"]), bool)


def fitted(case: Case) -> Seen:
    """A fit, with all draws of its hyper-parameters at their most likely values."""
    fit = ngp.gam(case.formula, case.data, case.family, weights=case.weights)
    params = fit._in_double | {"auto_scale_tril": 1e-12 * fit._in_double["auto_scale_tril"]}
    there = Fit._later(of_values(params, fit.result.losses, fit.steps, (), True), fit.model, "svi", fit.key)
    used = used_rows(case)
    prediction = there.predict(without(case.data, used), num_samples=1)
    mean, variance = np.asarray(prediction.function_mean, float), np.asarray(prediction.function_variance, float)
    return Seen(mean, np.sqrt(variance), there._draws(1), there, used)


def stepped(case: Case, seen: Seen) -> tuple[np.ndarray, np.ndarray, float]:
    """Moments of ``f`` after a natural step from those of the fit, by dense matrices.

    And what rows say in the direction of which they say least: below zero it is that the prior knows too much.
    """
    model, draws = seen.fit.model, seen.draws
    layout, raw = model.layout, without(case.data, seen.used)
    weights = np.ones(seen.used.sum()) if case.weights is None else case.weights[seen.used]
    X = np.zeros((len(weights), len(layout.columns)))
    level = np.full(len(weights), float(model.start.constant))
    for at, column in enumerate(layout.columns):
        if at in layout.offsets:
            X[:, at] = np.log(raw["exposed"])
            level += X[:, at]
        else:
            X[:, at] = encoded(raw[column.name], weights, column.is_category)
    features, prior, first = [], np.zeros(len(X)), 0
    for part, scale in zip(layout.read_terms, draws.scales[0], strict=False):
        count = len(part.term.columns) if part.term.kind in ("s", "te", "ti") else 0
        kernel = term_kernel(part, layout, draws.lengths[0][first : first + count], X, raw, weights)
        first, Z = first + count, model.kernel_data.inducing[part.name]
        gram = kernel(Z, Z)
        jitter = 1e-6 if count else 1e-10  # as curves have it, beside which narrow noise is no longer wide
        root = np.linalg.cholesky(gram + jitter * np.mean(np.diag(gram)) * np.eye(len(Z)))
        features.append(scale * solve_triangular(root, kernel(Z, X), lower=True))
        prior += scale**2 * np.diag(kernel(X, X))
    constant = draws.scales[0][-1]
    A = np.concatenate([*features, np.full((1, len(X)), constant)])
    prior += constant**2
    y = np.asarray(raw["y"], float)
    slope, bend = slopes(case.family, draws.likelihood, y, seen.mean, seen.sd)
    said, directions = np.linalg.eigh((A * (weights * bend)) @ A.T)
    seen_by = directions.T @ A
    mean = (seen_by @ (weights * (slope + bend * (seen.mean - level)))) / (1 + said)
    spread = 1 / (1 + np.maximum(said, 0))  # no less is known than the prior knows
    variance = prior - np.sum(A * A, axis=0) + spread @ seen_by**2
    return level + seen_by.T @ mean, np.sqrt(variance), said[0]


def distance(mean, sd, other_mean, other_sd) -> float:
    """The largest difference of means in standard deviations, or of the logarithms of these."""
    return float(max(np.abs((mean - other_mean) / sd).max(), np.abs(np.log(sd / other_sd)).max()))


# ------------------------------------------------------------------------------------------- relations


def related(case: Case, relation: str, rng: np.random.Generator) -> tuple[Case, np.ndarray]:
    """The same rows in another form, and which of its rows are those of the first."""
    data, size = dict(case.data), len(case.data["x"])
    if relation == "order":
        order = rng.permutation(size)
        weights = None if case.weights is None else case.weights[order]
        return Case(case.formula, case.family, without(data, order), weights), np.argsort(order)
    if relation == "copies" and case.weights is not None:
        rows = np.repeat(np.arange(size), case.weights.astype(int))
        return Case(case.formula, case.family, without(data, rows), None), np.searchsorted(rows, np.arange(size))
    if relation == "names":
        data["g"] = np.array(["zwei", "eins", "drei"])[np.searchsorted(list("abc"), data["g"])]
        data["flag"] = np.where(data["flag"], "no", "yes")
        return case._replace(data=data), np.arange(size)
    data |= {name: 1000 * data[name] for name in ("x", "z", "n", "held")}
    return case._replace(data=data), np.arange(size)


def are_two_modes(one: Seen, other: Seen) -> bool:
    """Whether two fits ended at modes of one bound, at different heights: rounding decides which of them is found."""
    heights = []
    for seen in (one, other):
        free = seen.fit._in_double["auto_loc"]
        bound = Bound(BoundParts(one.fit.model), Data.of(one.fit.model))
        bound.fit_pseudo_data(free)
        loss, slopes = bound.with_settled_pseudo_data(free)
        if not np.abs(slopes).max(initial=0) < MODE:
            return False
        heights.append(loss)
    return abs(heights[0] - heights[1]) > LOWER


def checked(seed: int) -> str:
    """What is wrong with the fits of a seed; nothing if all is right."""
    case, rng = case_of(seed), np.random.default_rng([seed, 1])
    said = f"seed {seed}: {case.formula}, {case.family}, weights {case.weights is not None}"
    try:
        seen = fitted(case)
        *moments, least = stepped(case, seen)
        far = distance(seen.mean, seen.sd, *moments)
        if not far < (FIXED if least > DOUBT else SAME):
            return f"{said}: {far:.3g} from the dense computation"
        offset = np.log(case.data["exposed"][seen.used]) if "offset" in case.formula else 0.0
        whole = seen.fit.terms(num_draws=1).mean.sum(axis=1) + offset
        if not np.abs((whole - seen.mean) / seen.sd).max() < FIXED:
            return f"{said}: terms do not add up to f"
        relation = str(rng.choice(RELATIONS))
        relation = "unit" if relation == "copies" and case.weights is None else relation
        other, rows = related(case, relation, rng)
        again = fitted(other)
        at = (np.cumsum(again.used) - 1)[rows][seen.used]
        far = distance(seen.mean, seen.sd, again.mean[at], again.sd[at])
        if not far < SAME and not are_two_modes(seen, again):
            return f"{said}: {far:.3g} between two forms of one table, by {relation}"
    except Exception:
        return f"{said}: {traceback.format_exc(limit=-2)}"
    return ""


def beside_chains(seed: int) -> tuple[float, float]:
    """The default fit beside NUTS of the same model: differences of the means of ``f`` at rows, and their spreads.

    The root of the mean square of the differences, in standard deviations of NUTS, and the median of the ratios.
    """
    case = case_of(seed)
    used = used_rows(case)
    moments = []
    for engine in ("svi", "nuts"):
        fit = ngp.gam(case.formula, case.data, case.family, weights=case.weights, engine=engine)
        prediction = fit.predict(without(case.data, used))
        moments.append((np.asarray(prediction.function_mean), np.sqrt(prediction.function_variance)))
    (mean, sd), (other, other_sd) = moments
    return float(np.sqrt(np.mean(((mean - other) / other_sd) ** 2))), float(np.median(sd / other_sd))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    begin, failed = time.perf_counter(), 0
    for seed in range(options.start, options.start + options.count):
        if wrong := checked(seed):
            failed += 1
            print(wrong, flush=True)
    print(f"{options.count} formulas, {failed} failed, {time.perf_counter() - begin:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
