"""What the terms of a fit are: moments of each at rows of data, and curves, surfaces and levels to draw."""

import dataclasses
from typing import NamedTuple

import numpy as np

from numpyro_gp.gam.columns import Column
from numpyro_gp.gam.draws import Draws
from numpyro_gp.gam.model import CONSTANT, Model
from numpyro_gp.gam.table_layout import ReadTerm
from numpyro_gp.gam.term_features import ScaledFeatures, TermFeatures
from numpyro_gp.gam.term_posteriors import Blocks, Normal

# How much finer the grid of a cycle is, which may turn as often as the series has rows.
WAVES_TO_SEE = 4
# Draws of each function over which a band is simultaneous, in all.
FUNCTIONS = 1000


class Moments(NamedTuple):
    """Mean ``(N, C)`` and standard deviation ``(N, C)`` of each term at rows, "constant" last."""

    names: tuple[str, ...]
    mean: np.ndarray
    scale: np.ndarray


@dataclasses.dataclass(frozen=True)
class Effect:
    """One term on a grid of what it reads, in the units of the data.

    Attributes
    ----------
    name : str
    kind : str
    columns : tuple of Column
    axes : tuple of array
        Grid of each column in the units of the data; of a category the codes of its levels.
    mean, scale : array
        One axis for each column, on the scale of the link.
    draws : array (S, ...)
        Of the term, without what inducing inputs leave open.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> effect = ngp.gam.Effect("s(a)", "s", (), (), np.zeros(2), np.ones(2), np.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> [float(half) for half in (effect.half_width(0.9), effect.half_width(0.5, simultaneous=True))]
    [1.6448536269514722, 1.5]
    """

    name: str
    kind: str
    columns: tuple[Column, ...]
    axes: tuple[np.ndarray, ...]
    mean: np.ndarray
    scale: np.ndarray
    draws: np.ndarray

    def half_width(self, level: float, simultaneous: bool = False) -> float:
        """Standard deviations from the mean to the edge of a band: of each value, or of all at once."""
        if not simultaneous:
            from statistics import NormalDist

            return NormalDist().inv_cdf(0.5 + level / 2)
        scale = np.maximum(self.scale, 1e-12 * max(float(self.scale.max()), 1e-300))
        away = np.abs(self.draws - self.mean) / scale
        return float(np.quantile(away.reshape(len(away), -1).max(axis=1), level))


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
            count = max(2, round(size / 2.5)) if is_surface else WAVES_TO_SEE * size if term.kind == "cycle" else size
            axes.append(np.linspace(low, high, count))
    mesh = np.meshgrid(*axes, indexing="ij")
    rows = np.zeros((mesh[0].size, X.shape[1]))
    rows[:, part.columns] = np.stack([axis.ravel() for axis in mesh], axis=1)
    return tuple(axes), rows


def side_by_side(grids: dict[str, tuple[np.ndarray, tuple[int, ...]]]) -> list[tuple[np.ndarray, list[str]]]:
    """Sets of rows, each with the grids of terms that read no column in common: two hundred curves are one grid.

    A grid shorter than the rows of its set repeats its last row.
    """
    sets: list[tuple[set[int], list[str]]] = []
    for name, (_, columns) in grids.items():
        free = next((one for one in sets if one[0].isdisjoint(columns)), None)
        if free is None:
            sets.append((set(columns), [name]))
        else:
            free[0].update(columns)
            free[1].append(name)
    found = []
    for _, names in sets:
        size = max(len(grids[name][0]) for name in names)
        rows = np.zeros((size, grids[names[0]][0].shape[1]))
        for name in names:
            own, columns = grids[name]
            rows[:, columns] = own[np.minimum(np.arange(size), len(own) - 1)][:, columns]
        found.append((rows, names))
    return found


def components(term_posterior: Normal, scaled: ScaledFeatures, blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance ``(C, N)`` of each component at rows: ``A_c^T m_c`` and ``k_c - |A_c|^2 + a_c^T S_cc a_c``."""
    own, A = term_posterior.block_covariances(blocks), blocks.split(scaled.A)
    means = [np.einsum("cm,cmn->cn", m, a) for m, a in zip(blocks.split(term_posterior.mean), A, strict=True)]
    change = [np.sum(a * (S @ a - a), axis=1) for S, a in zip(own, A, strict=True)]
    least = 4 * np.finfo(float).eps * scaled.prior
    return blocks.joined(means), np.maximum(scaled.prior + blocks.joined(change), least)


class _RunningMoments:
    """Moments of each component ``(C, N)`` over draws, as they come."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.count, self.mean, self.squares, self.variance = 0, *np.zeros((3, *shape))

    def add(self, mean: np.ndarray, variance: np.ndarray) -> None:
        """Those of one more draw."""
        self.count += 1
        away = mean - self.mean
        self.mean += away / self.count
        self.squares += away * (mean - self.mean)
        self.variance += variance

    @property
    def scale(self) -> np.ndarray:
        """Standard deviations over all."""
        found: np.ndarray = np.sqrt((self.variance + self.squares) / self.count)
        return found


def moments_at(draws: Draws, term_features: TermFeatures, X: np.ndarray) -> Moments:
    """Mean and standard deviation of each term at encoded rows, over all draws of the posterior."""
    names = (*(part.name for part in term_features.model.layout.read_terms), CONSTANT)
    sums = []
    for at in term_features.cuts(len(X)):
        sums.append(_RunningMoments((len(names), at.stop - at.start)))
        features_at = term_features.at(X[at])
        for scales, lengths, term_posterior in draws.each():
            sums[-1].add(*components(term_posterior, features_at(scales, lengths), term_features.blocks))
    mean, scale = (np.concatenate([getattr(own, name) for own in sums], axis=1).T for name in ("mean", "scale"))
    return Moments(names, mean, scale)


def effects_of(
    draws: Draws, term_features: TermFeatures, size: int, rng: np.random.Generator
) -> tuple[dict[str, Effect], float]:
    """Every term on its grid, and the posterior mean of the constant on the scale of the link."""
    model, blocks = term_features.model, term_features.blocks
    parts = model.layout.read_terms
    grids = {part.name: grid_of(model, part, size) for part in parts}
    sets = side_by_side({part.name: (grids[part.name][1], part.columns) for part in parts})
    places: dict[str, slice] = {}
    start = 0
    for rows, names in sets:
        places |= {name: slice(start, start + len(grids[name][1])) for name in names}
        start += len(rows)
    X = np.concatenate([rows for rows, _ in sets]) if sets else np.zeros((1, model.rows.X.shape[1]))
    each, sums = -(-FUNCTIONS // draws.size), _RunningMoments((len(parts) + 1, len(X)))
    functions: dict[str, list[np.ndarray]] = {part.name: [] for part in parts}
    features_at = term_features.at(X)
    for scales, lengths, term_posterior in draws.each():
        scaled = features_at(scales, lengths)
        sums.add(*components(term_posterior, scaled, blocks))
        pairs = zip(blocks.split(term_posterior.sample(rng, each)), blocks.split(scaled.A), strict=True)
        drawn = blocks.joined([values.transpose(0, 2, 1) @ a for values, a in pairs])
        for at, part in enumerate(parts):
            functions[part.name].append(drawn[at][:, places[part.name]])
    result = {}
    for at, part in enumerate(parts):
        axes, columns = grids[part.name][0], tuple(model.layout.columns[one] for one in part.columns)
        shape = tuple(len(axis) for axis in axes)
        raw = tuple(
            axis if column.is_category else column.decode(axis) for axis, column in zip(axes, columns, strict=True)
        )
        mean, scale = (values[at][places[part.name]].reshape(shape) for values in (sums.mean, sums.scale))
        own = np.concatenate(functions[part.name]).reshape(-1, *shape)
        result[part.name] = Effect(part.name, part.term.kind, columns, raw, mean, scale, own)
    return result, float(sums.mean[-1, 0]) + model.start.constant
