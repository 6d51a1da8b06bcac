"""Simulations in which the truth is known: Gu and Wahba's four terms, of which one is zero, and a pair of columns.

Gu and Wahba's (1991) terms give coverage, and whether a dead term is called so. With the joint effect of two columns
beside them each method says which pair it is.
"""

import itertools
import time

import jax
import numpy as np
from scipy import stats

import numpyro_gp as ngp
from examples.studies.gam.peers.engines import by_mgcv, fitted, mgcv_formula, rival

__all__ = ["CURVES", "covered", "pairs", "simulated", "terms_of", "waves"]

NAMES = ["x0", "x1", "x2", "x3"]
CURVES = "y ~ s(x0) + s(x1) + s(x2) + s(x3)"
PAIRS = list(itertools.combinations(NAMES, 2))
TRUE = PAIRS[0]
# A p-value above the first, or fewer degrees of freedom than the second, calls a term negligible.
LEVEL, NO_EDF = 0.05, 0.1
# Draws of our posterior that moments and the table of a summary are averaged over.
DRAWS = 50
AT_ONCE = 30  # simulations of one process of R


def terms_of(x):
    """The four terms of Gu and Wahba (1991), the last of which is zero."""
    third = 0.2 * x[2] ** 11 * (10 * (1 - x[2])) ** 6 + 10 * (10 * x[2]) ** 3 * (1 - x[2]) ** 10
    return np.stack([2 * np.sin(np.pi * x[0]), np.exp(2 * x[1]), third, 0 * x[3]], axis=1)


def joint(x):
    """What the first two columns do together, without a curve of either: its standard deviation is 0.82."""
    return 2 * np.sin(2 * np.pi * x[0]) * (2 * x[1] - 1)


def simulated(seed, noise, rows, pair=False):
    """A table of the four terms (with the joint effect, if wanted), the terms, and the common columns of its rows."""
    rng = np.random.default_rng(1000 * seed + round(10 * noise))
    x = rng.uniform(size=(4, rows))
    truth = terms_of(x)
    f = truth.sum(1) + (joint(x) if pair else 0.0)
    table = {name: x[d] for d, name in enumerate(NAMES)} | {"y": f + noise * rng.normal(size=rows)}
    common = {"task": "pairs" if pair else "waves", "seed": seed, "noise": noise, "rows": rows}
    return table, truth, common


def covered(mean, scale, truth):
    """Share of the values of all terms but the dead one inside of their 90 % bands."""
    away = np.abs(mean[:, :3] - truth[:, :3]) / scale[:, :3]
    return float(np.mean(away < stats.norm.ppf(0.95)))


def of_terms(own, scale, truth):
    """Coverage of the true terms, and the share of the fourth one in the variance of all."""
    share = own.var(0)
    found = {"dead_term": float(share[3] / share.sum())}
    if scale is not None:
        found["coverage"] = covered(own - own.mean(0), scale, truth - truth.mean(0))
    return found


def off(mean, truth):
    return {"rmse": float(np.sqrt(np.mean((mean - truth.sum(1)) ** 2)))}


def called(negligible):
    """Whether the dead term is called negligible, and the share of the three others that is not."""
    *others, dead = (bool(value) for value in negligible)
    return {"called_dead": int(dead), "live_kept": 1 - sum(others) / len(others)}


def is_negligible(edf, p):
    return (p > LEVEL) | (edf < NO_EDF)


def named(order, kept):
    """Whether the true pair comes first and is kept, and how many others are kept; ``kept`` is None without a rule."""
    found = {"pair_first": int(tuple(order[0]) == TRUE)}
    if kept is not None:
        found |= {"pair_kept": int(TRUE in kept), "others_kept": sum(pair != TRUE for pair in kept)}
    return found


def runs_of(run, cases):
    """What ``run`` says of the tables of some cases at a time: a process is started for many."""
    for start in range(0, len(cases), AT_ONCE):
        yield from run([table for _, table, _ in cases[start : start + AT_ONCE]])


def runs_of_mgcv(formula, select, cases):
    """``select`` puts a penalty on the straight part of each term, too, so that a term can vanish."""
    how, more = ("bam", ", select = TRUE") if select else ("gam", "")
    call = mgcv_formula(formula, "gaussian", how, more)
    return runs_of(lambda tables: by_mgcv([(call, table, table) for table in tables]), cases)


def runs_of_rival(name, cases, options):
    job = {"smooth": NAMES, "family": "gaussian", "terms": True}
    return runs_of(lambda tables: rival(name, job, [(table, table) for table in tables], options), cases)


def waves(name, cases, options):
    """Of each case ``(seed, table, truth)`` of the four terms: error, coverage, and which terms are negligible."""
    if name == "ngp.gam":
        yield from (waves_here(*case) for case in cases)
    elif name in ("mgcv", "mgcv, select"):
        runs = runs_of_mgcv(CURVES, name == "mgcv, select", cases)
        for (_, _, truth), (link, terms, table) in zip(cases, runs, strict=True):
            found = of_terms(terms[:, :4], terms[:, 4:], truth) | called(is_negligible(*table.T))
            yield found | off(link[:, 0], truth) | {"seconds": float(link[0, 2])}
    else:
        for (_, table, truth), found in zip(cases, runs_of_rival(name, cases, options), strict=True):
            yield waves_there(found, table, truth)


def waves_there(found, table, truth):
    """The same from what a peer in Python says."""
    rest = {key: found[key] for key in ("seconds", "note") if found.get(key)}
    if not found.get("terms"):
        return rest
    own = np.array([mean for mean, _ in found["terms"]]).T
    half = np.array([half for _, half in found["terms"]]).T
    rest |= of_terms(own, half / stats.norm.ppf(0.95) if half.size else None, truth)
    rest |= off((own - own.mean(0)).sum(1) + table["y"].mean(), truth)
    return rest | (called(np.array(found["p_values"]) > LEVEL) if found.get("p_values") else {})


def waves_here(seed, table, truth):
    fit, seconds = fitted(CURVES, table, key=jax.random.key(seed))
    moments = fit.terms(num_draws=DRAWS)
    rows = fit.summary(density=False, check=False, num_draws=DRAWS).rows
    found = of_terms(moments.mean[:, :4], moments.scale[:, :4], truth) | called([row.negligible > 0.5 for row in rows])
    found |= off(moments.mean.sum(1), truth)
    return found | {"seconds": seconds, "note": f"{fit.steps} steps"}


def pairs(name, cases, options):
    """Of each case with a joint effect: which pair of columns comes first, and which are kept."""
    if name == "ngp.gam":
        yield from (pairs_here(*case) for case in cases)
    elif name == "mgcv, select":
        every = " + ".join([CURVES, *(f"ti({a}, {b})" for a, b in PAIRS)])
        for link, _, table in runs_of_mgcv(every, True, cases):
            edf, p = table[len(NAMES) :].T
            left = is_negligible(edf, p)
            kept = [pair for pair, is_out in zip(PAIRS, left, strict=True) if not is_out]
            order = [PAIRS[at] for at in np.lexsort((-edf, p))]
            yield named(order, kept) | {"seconds": float(link[0, 2])}
    elif name == "ebm":
        for found in runs_of_rival("ebm pairs", cases, options):
            order = found.pop("pairs", None)
            yield found | (named(order, None) if order else {})


def pairs_here(seed, table, _):
    start = time.process_time()
    found = ngp.gam.screen(CURVES, table, key=jax.random.key(seed))
    kept = [pair for pair, one in zip(found.scores, found.tried, strict=False) if one.kept]
    return named(list(found.scores), kept) | {"seconds": time.process_time() - start}
