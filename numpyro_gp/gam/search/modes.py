"""The best mode of the hyper-parameters of an additive model that a search from few points finds.

The bound has more than one mode: a wiggly curve is noise to a long lengthscale, and a smooth one with more of itself to
a short one. A search ends at the mode that is uphill of its start, which is a long lengthscale. So from that mode each
curve and each surface is tried with shorter lengthscales, at least as large as it started, and the search goes on from
where that is better.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from numpyro_gp.gam.model.classes import contrasts
from numpyro_gp.gam.model.family import has_numbers
from numpyro_gp.gam.model.model import Model
from numpyro_gp.gam.search.bound import FLAT, WALL, Bound, BoundParts, Data
from numpyro_gp.gam.search.bound_formulas import tabulated

# Rows above which the mode is looked for with tables of them, or with some of them first.
MANY_ROWS = 10_000
# How much shorter lengthscales of a curve are tried than those of the mode, and those of a surface than at the start.
SHORTER = (4.0, 16.0)
SHORTER_OF_SURFACES = 8.0


class Collapsed(NamedTuple):
    """The mode of the hyper-parameters and what belongs to it.

    Attributes
    ----------
    location, root : array (d,), (d, d)
        Mean and lower root of the covariance of the unconstrained hyper-parameters, by name.
    shift, precision : array (M,), (M, M)
        Pseudo-data of `Conditional`.
    losses : array
        Negative bound at each evaluation, less the log density of the hyper-parameters.
    is_flat : bool
        Whether the bound rose no more at the last step.
    notes : tuple of str
        What else there is to say of it.
    model : Model, optional
        With inducing inputs that follow its terms at the mode, where these are other ones.
    """

    location: np.ndarray
    root: np.ndarray
    shift: np.ndarray
    precision: np.ndarray
    losses: np.ndarray
    is_flat: bool
    notes: tuple[str, ...] = ()
    model: Model | None = None


def collapsed(
    model: Model, most_steps: int, tables: bool = True, others: Sequence[np.ndarray] = (), is_start: bool = False
) -> Collapsed:
    """The mode of the hyper-parameters: of many rows first that of tables or of some of them, and from there of all.

    With other starts ``(d,)`` it is the better of two modes, of which one is uphill of the best of these. Where it is a
    start of other steps it ends with some rows, which stand for all.
    """
    data, parts = Data.of(model), BoundParts(model)
    # A likelihood with one number for each row is that of all of them.
    is_many = len(data.y) > MANY_ROWS and not has_numbers(model.family, len(data.y))
    is_counted = is_many and tables and parts.vector_layout.is_exact
    counted = tabulated(model, data.X, data.weights, data.weights * (data.y - data.offset)) if is_counted else None
    first = data
    if is_many and counted is None:
        first = data.part(np.sort(np.random.default_rng(0).permutation(len(data.y))[:MANY_ROWS]))
    bound = Bound(parts, first, counted)
    bound.fit_pseudo_data(bound.start)
    free, is_flat = bound.find_mode(bound.start, most_steps)
    if others:
        free, is_flat = uphill(bound, free, others, most_steps, np.inf) or (free, is_flat)
    while is_flat and (found := better(bound, free, most_steps)) is not None:
        free, is_flat = found
    losses, root = bound.losses[:], bound.covariance_root(free)
    if is_many and not is_start:
        bound = Bound(parts, data)
        bound.fit_pseudo_data(free)
        if counted is None or abs(bound(free)[0] - losses[-1]) > FLAT:
            free, is_flat = bound.find_mode(free, most_steps, root)
        losses = losses + bound.losses
    here = bound.at(free)
    assert here.found is not None
    assert here.inverse is not None
    gram, projected, inverse = here.found.precision, here.found.projected, here.inverse
    if bound.pseudo_data.has_doubt:
        # Where rows leave more doubt than the prior they say nothing: at other hyper-parameters such a belief might
        # have no covariance. The mean stays; in these directions its covariance is that of the prior, which is the
        # nearest one by the Fisher metric.
        whitened, vectors = np.linalg.eigh(gram)
        at = np.linalg.solve(np.eye(len(gram)) + gram, projected)
        gram = (vectors * np.maximum(whitened, 0)) @ vectors.T
        projected = at + gram @ at
    if (classes := model.family.classes) is not None:  # what contrasts say is said of all classes
        whole = np.kron(contrasts(classes), np.eye(len(inverse)))
        gram, projected, inverse = whole @ gram @ whole.T, whole @ projected, np.kron(np.eye(classes), inverse)
    precision, shift = inverse.T @ gram @ inverse, inverse.T @ projected
    return Collapsed(free, root, shift, 0.5 * (precision + precision.T), without_walls(losses), is_flat)


def better(bound: Bound, free: np.ndarray, most_steps: int) -> tuple[np.ndarray, bool] | None:
    """A better mode than this one, from shorter lengthscales.

    Each curve and surface is tried by itself, at least as large as it starts. A surface that was taken for noise may
    have any lengthscale along each column, so all are shortened together from those of the start.
    """
    values, slopes = bound.parts.evaluator(free)
    (C, P), starts = values.lengths.shape, []
    of_scales, of_lengths = slopes[:C] != 0, slopes[C : C + C * P].reshape(C, P, len(free)) != 0
    for of_scale, of_slots in zip(of_scales, of_lengths, strict=True):
        larger, is_length = np.where(of_scale, np.maximum(free, bound.start), free), of_slots.any(axis=0)
        if of_slots.any(axis=1).sum() == 1:
            starts += [larger - np.log(factor) * is_length for factor in SHORTER]
        elif is_length.any():
            starts.append(np.where(is_length, bound.start - np.log(SHORTER_OF_SURFACES), larger))
    return uphill(bound, free, starts, most_steps, bound(free)[0] - FLAT)


def uphill(
    bound: Bound, free: np.ndarray, starts: Sequence[np.ndarray], most_steps: int, most: float
) -> tuple[np.ndarray, bool] | None:
    """A better mode than this one uphill of the best start, if its loss is below the most.

    What was tried for nothing leaves no trace.
    """
    counted, kept, here = len(bound.losses), bound.pseudo_data, bound(free)[0]
    # Pseudo-data are those of the mode: to let them follow moves losses by less than one of ten nats.
    tried = [(bound.value(one), number, one) for number, one in enumerate(starts)]
    loss, _, start = min(tried, default=(np.inf, 0, free))
    bound.losses = bound.losses[:counted]
    if loss < most:
        found = bound.find_mode(start, counted + most_steps)
        if bound(found[0])[0] < here - FLAT:
            return found
    bound.pseudo_data, bound.losses = kept, bound.losses[:counted]
    return None


def without_walls(losses: list[float]) -> np.ndarray:
    """Losses but for those of steps far too long, from which the search came back; the last one stays."""
    found = np.asarray(losses)
    is_kept = np.isfinite(found) & (found < found[0] + WALL)
    is_kept[-1] = True
    return found[is_kept]
