"""Looks at the shape of a posterior: beside a second fit, by importance weights, and beside its prior."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.beliefs import Conditional
from numpyro_gp.checks import is_known
from numpyro_gp.criticism.fit_checks import OPEN, Case, Finding, entries
from numpyro_gp.criticism.weights import POOR, Weights, importance_weights
from numpyro_gp.guides import AutoGP
from numpyro_gp.neighbours.search import twins_of
from numpyro_gp.neighbours.value import are_neighbours, neighbours_in
from numpyro_gp.posterior.near import gain_of_neighbours
from numpyro_gp.posterior.tracing import AskedProcess
from numpyro_gp.rows.batches import some_rows

# Two fits: means apart in standard deviations, spreads apart as a ratio; functions apart in those of the data.
APART, WIDER, SAME_FUNCTION = 0.75, 1.6, 0.1
# Standard deviations by which importance weights may move the mean of a parameter, beside their own `ERRORS`.
MOVED = 0.5
# Left-out data: nats a row that more neighbours may bring, in any case and in standard errors, and rows looked at.
BETTER, ERRORS, MOST_LEFT_OUT = 0.02, 3.0, 200
# Share of rows that may repeat another in inputs and data.
REPEATED = 0.05
# A posterior is its prior where both its median and its width are within these shares of the prior's width.
SAME_PLACE, SAME_WIDTH = 0.25, 0.8


def _function_apart(case: Case) -> float:
    """How far the predicted means of two fits are apart, in standard deviations of new data."""
    assert case.other is not None
    common = [name for name in case.evidence.sites if name in case.other.sites]
    pairs = [(case.evidence.sites[name], case.other.sites[name]) for name in common]
    gaps = [np.sqrt(np.mean(((a.level - b.level) / np.maximum(b.spread, 1e-300)) ** 2)) for a, b in pairs]
    return float(max(gaps, default=np.nan))


def fits_differ(case: Case) -> Iterator[Finding]:
    """Two fits whose predictions are apart."""
    if case.other is not None and (apart := _function_apart(case)) > SAME_FUNCTION:
        text = f"The two fits predict means that are {apart:.2f} standard deviations of the data apart"
        has_steps = case.posterior is None or case.posterior.kind == "svi"
        cure = "train longer, or " if has_steps else "run longer chains, or "
        cure += "start again from other values, for there may be two modes"
        facts = [*case.evidence.processes.values(), *case.other.processes.values()]
        if any(fact.left.mean() > OPEN * fact.prior.mean() for fact in facts):
            cure = "take more inducing inputs in both, as many as ngp.inducing.enough(kernel, X) says"
        yield Finding("fits differ", text, apart, SAME_FUNCTION, cure)


def more_neighbours(case: Case) -> Iterator[Finding]:
    """Data that are left out, and predicted better from four times the neighbours of the fit."""
    if case.posterior is None or case.call is None or case.key is None:
        return
    for near in neighbours_in(case.call.arguments):
        few, rows = near.count, some_rows(near.size, MOST_LEFT_OUT)
        asked = AskedProcess(case.posterior, case.call, frozenset(), None)
        if 4 * few < near.size and (gain := gain_of_neighbours(asked, case.key, near, rows, few, 4 * few)):
            mean, error = gain
            if mean > max(BETTER, ERRORS * error):
                text = f"Data that are left out are predicted {mean:.2g} nats a row better from {4 * few} neighbours "
                text += f"than from the {few} of the fit"
                cure = "predict from more, as predict_at(..., neighbours='auto') finds out, and fit with twice as many"
                yield Finding("neighbours", text, mean, BETTER, cure)


def repeated_rows(case: Case) -> Iterator[Finding]:
    """Rows with neighbours that repeat others in all that the model is given of them, so that their data are known."""
    if case.call is None:
        return
    for near in neighbours_in(case.call.arguments):
        given = jax.tree.leaves(list(case.call.arguments.values()), is_leaf=are_neighbours)
        others = (leaf for leaf in given if not are_neighbours(leaf))
        columns = [near.inputs, *(leaf for leaf in others if jnp.shape(leaf)[:1] == (near.size,))]
        if len(columns) == 1 or not all(map(is_known, columns)):
            continue
        twins = twins_of(np.concatenate([np.asarray(one, float).reshape(near.size, -1) for one in columns], axis=1))
        share = 0.0 if twins is None else float(np.mean(np.bincount(twins)[twins] > 1))
        if share > REPEATED:
            text = f"Of the rows {100 * share:.2g} % repeat another, data included, "
            text += "so that what is left out is seen again"
            cure = "keep one of each, by np.unique(np.column_stack([X, y]), axis=0), and cross-validate what is left"
            yield Finding("repeated rows", text, share, REPEATED, cure)


def _is_conditional(case: Case) -> bool:
    """Whether all beliefs of a fit follow the hyper-parameters already."""
    guide, source = None if case.posterior is None else case.posterior.guide, getattr(case.posterior, "source", None)
    if not isinstance(guide, AutoGP) or source is None:
        return False
    shapes = jax.eval_shape(lambda params: guide.beliefs(params), dict(source.params))
    return bool(shapes) and all(isinstance(belief, Conditional) for belief in shapes.values())


def pareto(case: Case) -> Iterator[Finding]:
    """Importance weights that say that a fit has a wrong shape."""
    fit, call = case.posterior, case.call
    if fit is None or call is None or case.key is None:
        return
    if fit.kind == "resampled":
        k = float(np.ravel(fit.extra_fields["pareto_k"])[0])
    elif fit.guide is not None and case.evidence.is_weighable and fit.source.is_random:
        bound = call.at(call.arrays)
        weights = importance_weights(fit, case.key, *bound.args, **bound.kwargs)
        k = weights.pareto_k
        yield from _moved(case, weights) if k <= POOR else ()
    else:
        return
    if k > POOR:
        text = f"Pareto k of the importance weights is {k:.2f}, above {POOR}, so the fit has a wrong shape"
        cure = "train longer, by natural steps, or take guides.conditional() for uncertain hyper-parameters, or NUTS"
        if _is_conditional(case):
            cure = "train longer, by natural steps, or sample it by NUTS where ngp.conditioned puts the chains"
        yield Finding("Pareto k", text, k, POOR, cure)


def _moved(case: Case, weights: Weights) -> Iterator[Finding]:
    """A parameter whose mean is another one under weights that can be relied on."""
    worst, own = ("", np.ones(1), 1.0, 0.0), weights.smoothed()
    threshold = max(MOVED, ERRORS * float(np.sqrt(own @ own)))
    for label, x in entries({name: x for name, x in weights.draws.items() if name in case.evidence.parameters}):
        if np.ptp(x) > 0:
            mean = float(own @ x)
            worst = max(worst, (label, x, mean, abs(mean - x.mean()) / float(x.std())), key=lambda one: one[3])
    label, x, mean, moved = worst
    if moved > threshold:
        text = f"{label} is {x.mean():.2f} ± {x.std():.2f} in the fit and {mean:.2f} by its importance weights"
        cure = "draw again by these, ngp.diagnose.importance_resample, or train longer"
        yield Finding("importance weights", text, moved, threshold, cure)


def parameters_differ(case: Case) -> Iterator[Finding]:
    """Parameters that are apart in two fits of one function."""
    if case.other is None or not _function_apart(case) <= SAME_FUNCTION:
        return
    worst = ("", 0.0, np.zeros(1), np.zeros(1))
    theirs = dict(entries(case.other.parameters))
    for label, a in entries(case.evidence.parameters):
        if label in theirs and (b := theirs[label]).std() > 0:
            ratio = max(a.std() / b.std(), b.std() / max(a.std(), 1e-300))
            score = max(abs(a.mean() - b.mean()) / b.std() / APART, np.log(ratio) / np.log(WIDER))
            worst = max(worst, (label, float(score), a, b), key=lambda one: one[1])
    label, score, a, b = worst
    if score > 1:
        text = f"{label} is {a.mean():.2f} ± {a.std():.2f} here and {b.mean():.2f} ± {b.std():.2f} in the other fit, "
        text += "and the functions agree"
        cure = "trust the predictions and not this parameter's spread"
        follows = ", or draw by importance weights: ngp.diagnose.importance_resample"
        cure += follows if _is_conditional(case) else ", or fit it by guides.conditional()"
        yield Finding("parameters differ", text, score, 1.0, cure)


def at_prior(case: Case) -> Iterator[Finding]:
    """Lengthscales about which the data say nothing."""
    prior = dict(entries(case.evidence.prior))
    scales = [fact.lengthscales for fact in case.evidence.processes.values() if fact.lengthscales is not None]
    for label, draws in entries(case.evidence.parameters):
        is_scale = any(np.isclose(draws[:, None], own, rtol=1e-4).all(axis=0).any() for own in scales)
        if label not in prior or not is_scale or np.ptp(draws) == 0:
            continue
        (low, middle, high), (prior_low, prior_middle, prior_high) = (
            np.quantile(np.log(own), [0.25, 0.5, 0.75]) for own in (draws, prior[label])
        )
        width = (high - low) / (prior_high - prior_low)
        if width > SAME_WIDTH and abs(middle - prior_middle) < SAME_PLACE * (prior_high - prior_low):
            text = f"The posterior of {label} is {100 * width:.0f} % as wide as its prior and in the same place"
            cure = "take its prior from what is known of the data, for they say nothing about it"
            yield Finding("lengthscale at its prior", text, float(width), SAME_WIDTH, cure)
