"""What the terms of a fit are: moments of each at rows of data, and curves, surfaces and levels to draw."""

from typing import NamedTuple

import numpy as np

from numpyro_gp.additive.columns import grid_points, size_of_axis
from numpyro_gp.additive.effects import Effect, MixtureMoments
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.gam.answers.draws import Draws, Normal
from numpyro_gp.gam.model.features import ScaledFeatures
from numpyro_gp.gam.model.model import CONSTANT, Model
from numpyro_gp.gam.table.layout import ReadTerm

# How much finer the grid of a cycle is, which may turn as often as the series has rows.
WAVES_TO_SEE = 4
# Draws of each function over which a band is simultaneous, in all.
FUNCTIONS = 1000


class TermMoments(NamedTuple):
    """Mean ``(N, C)`` and standard deviation ``(N, C)`` of each term at rows, "constant" last."""

    names: tuple[str, ...]
    mean: np.ndarray
    scale: np.ndarray


def grid_of(model: Model, part: ReadTerm, size: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Axes in encoded values, and rows ``(G, D)`` of their mesh; a third column of a surface is at its middle."""
    term, X = part.term, model.rows.X
    axes, middle = [], np.median(X, axis=0)
    is_surface = term.kind in ("te", "ti")
    for place, at in enumerate(part.columns):
        column = model.layout.columns[at]
        if column.levels is not None:
            axes.append(np.arange(len(column.levels), dtype=float))
        elif term.kind == "re":
            axes.append(np.ones(1))  # the slope for one standard deviation
        elif is_surface and place == 2:
            axes.append(np.full(1, middle[at]))
        else:
            low, high = X[:, at].min(), X[:, at].max()
            if term.kind == "season":  # as it is at the end
                start, end = model.kernel_data.periods[part.name]
                low = high - (end - start)
            count = WAVES_TO_SEE * size if term.kind == "cycle" else size_of_axis(size, 2 if is_surface else 1)
            axes.append(np.linspace(low, high, count))
    points = grid_points(axes)
    rows = np.zeros((len(points), X.shape[1]))
    rows[:, part.columns] = points
    return tuple(axes), rows


def side_by_side(grids: dict[str, tuple[np.ndarray, tuple[int, ...]]]) -> tuple[np.ndarray, dict[str, slice]]:
    """Rows that hold all grids, and where each stands. Terms that read no column in common share their rows.

    So two hundred curves are one grid; one that is shorter than its set of rows repeats its last row.
    """
    sets: list[list[str]] = []
    for name, (_, columns) in grids.items():
        free = (own for own in sets if all(set(columns).isdisjoint(grids[one][1]) for one in own))
        if (own := next(free, None)) is None:
            sets.append(own := [])
        own.append(name)
    parts: list[np.ndarray] = []
    places: dict[str, slice] = {}
    for names in sets:
        start, size = sum(map(len, parts)), max(len(grids[name][0]) for name in names)
        parts.append(np.zeros((size, grids[names[0]][0].shape[1])))
        for name in names:
            points, columns = grids[name]
            parts[-1][:, columns] = points[np.minimum(np.arange(size), len(points) - 1)][:, columns]
            places[name] = slice(start, start + len(points))
    return np.concatenate(parts), places


def components(term_posterior: Normal, scaled: ScaledFeatures, blocks: Stacks) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance ``(C, N)`` of each component at rows: ``A_c^T m_c`` and ``k_c - |A_c|^2 + a_c^T S_cc a_c``."""
    own, A = term_posterior.block_covariances(blocks), blocks.apart(scaled.A)
    means = [np.einsum("cm,cmn->cn", m, a) for m, a in zip(blocks.apart(term_posterior.mean), A, strict=True)]
    change = [np.sum(a * (S @ a - a), axis=1) for S, a in zip(own, A, strict=True)]
    least = 4 * np.finfo(float).eps * scaled.prior
    return blocks.in_order(means), np.maximum(scaled.prior + blocks.in_order(change), least)


def moments_at(draws: Draws, X: np.ndarray) -> TermMoments:
    """Mean and standard deviation of each term at encoded rows, over all draws of the posterior."""
    term_features, sums = draws.term_features, list[MixtureMoments]()
    for at in term_features.cuts(len(X)):
        sums.append(MixtureMoments())
        for term_posterior, scaled in draws.at(X[at]):
            sums[-1].add(*components(term_posterior, scaled, term_features.blocks))
    mean, scale = (np.concatenate([getattr(own, name) for own in sums], axis=1).T for name in ("mean", "scale"))
    names = (*(part.name for part in draws.model.layout.read_terms), CONSTANT)
    return TermMoments(names, mean, scale)


def effects_of(draws: Draws, size: int, rng: np.random.Generator) -> tuple[dict[str, Effect], float]:
    """Every term on its grid, and the posterior mean of the constant on the scale of the link."""
    model, blocks = draws.model, draws.term_features.blocks
    parts = model.layout.read_terms
    grids = {part.name: grid_of(model, part, size) for part in parts}
    points = {part.name: (grids[part.name][1], part.columns) for part in parts}
    X, places = side_by_side(points) if points else (np.zeros((1, model.rows.X.shape[1])), {})
    each, sums, functions = -(-FUNCTIONS // draws.size), MixtureMoments(), list[np.ndarray]()
    for term_posterior, scaled in draws.at(X):
        sums.add(*components(term_posterior, scaled, blocks))
        pairs = zip(blocks.apart(term_posterior.sample(rng, each)), blocks.apart(scaled.A), strict=True)
        functions.append(blocks.in_order([values.transpose(0, 2, 1) @ a for values, a in pairs]))
    result = {}
    for at, part in enumerate(parts):
        axes, columns = grids[part.name][0], tuple(model.layout.columns[one] for one in part.columns)
        shape = tuple(len(axis) for axis in axes)
        raw = tuple(column.decode(axis) for axis, column in zip(axes, columns, strict=True))
        mean, scale = (values[at][places[part.name]].reshape(shape) for values in (sums.mean, sums.scale))
        own = np.concatenate([drawn[at][:, places[part.name]] for drawn in functions]).reshape(-1, *shape)
        result[part.name] = Effect(part.name, part.term.kind, columns, raw, mean, scale, own)
    return result, float(sums.mean[-1, 0] + model.start.constant)


MEASURE_WORDS = {"empirical": "over the data", "uniform": "over the range", "gaussian": "over a normal"}
LINK_WORDS = {"identity": "effect on {}", "log": "effect on log mean of {}"}
LINK_WORDS |= {link: f"effect on {link} of {{}}" for link in ("logit", "probit")}


def labels_of(model: Model, effects: dict[str, Effect], scale: str) -> dict[str, str]:
    """What the vertical axes of a figure say, on the scale of the link or that of the response."""
    response, fixed = model.terms.response, {"re": "prior mean 0", "season": "its last period"}
    measures = MEASURE_WORDS[model.measure], "over each column"  # of a surface, or a curve for each level
    words = LINK_WORDS.get(model.family.link, "effect on f of {}").format(response)
    if scale == "response":
        words = f"{'share of ' * (model.layout.trials is not None)}mean of {response}, others at 0"
    return {
        name: f"{words}\n({fixed.get(effect.kind, f'mean 0 {measures[len(effect.columns) > 1]}')})"
        for name, effect in effects.items()
    }
