"""What the terms of a fit are: moments of each at rows of data, and curves, surfaces and levels to draw."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from numpyro_gp.additive.columns import grid_points, size_of_axis
from numpyro_gp.additive.component_kernels import Squares, shares_of
from numpyro_gp.additive.effects import Effect, Effects, MixtureMoments
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.gam.answers.draws import Draws, TermNormal
from numpyro_gp.gam.model.features import ScaledFeatures, TermFeatures
from numpyro_gp.gam.model.model import CONSTANT, Model
from numpyro_gp.gam.table.layout import ReadTerm
from numpyro_gp.rows.batches import some_rows

# How much finer the grid of a cycle is, which may turn as often as the series has rows.
WAVES_TO_SEE = 4
# Draws of each function over which a band is simultaneous, in all.
BAND_FUNCTIONS = 1000


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


def components(term_posterior: TermNormal, scaled: ScaledFeatures, blocks: Stacks) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance ``(C, N)`` of each component at rows: ``A_c^T m_c`` and ``k_c - |A_c|^2 + a_c^T S_cc a_c``."""
    own, A = term_posterior.block_covariances(blocks), blocks.apart(scaled.A)
    means = [np.einsum("cm,cmn->cn", m, a) for m, a in zip(blocks.apart(term_posterior.mean), A, strict=True)]
    change = [np.sum(a * (S @ a - a), axis=1) for S, a in zip(own, A, strict=True)]
    least = 4 * np.finfo(float).eps * scaled.prior
    return blocks.in_order(means), np.maximum(scaled.prior + blocks.in_order(change), least)


def components_at(draws: Draws, X: np.ndarray, less_first: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Mean and variance ``(C, N)`` of each component at encoded rows, at each draw; less at the first ``less_first``.

    The latter of components whose values there are those of inducing inputs, as of levels.
    """
    if (exact := draws.exact) is not None:
        yield from exact.at(X, is_split=True, less_first=less_first)
        return
    blocks = draws.term_features.blocks
    for term_posterior, scaled in draws.at(X):
        if less_first:
            A = scaled.A - scaled.A[:, :1]
            prior = blocks.in_order([np.sum(part**2, axis=1) for part in blocks.apart(A)])
            scaled = scaled._replace(A=A, prior=prior)
        yield components(term_posterior, scaled, blocks)


def moments_at(draws: Draws, X: np.ndarray) -> TermMoments:
    """Mean and standard deviation of each term at encoded rows, over all draws of the posterior."""
    sums = list[MixtureMoments]()
    for at in draws.cuts(len(X)):
        sums.append(MixtureMoments())
        for mean, variance in components_at(draws, X[at]):
            sums[-1].add(mean, variance)
    mean, scale = (np.concatenate([getattr(own, name) for own in sums], axis=1).T for name in ("mean", "scale"))
    names = (*(part.name for part in draws.model.layout.read_terms), CONSTANT)
    return TermMoments(names, mean, scale)


def effects_of(draws: Draws, size: int, rng: np.random.Generator) -> tuple[Effects, float]:
    """Every term on its grid, and the posterior mean of the constant on the scale of the link."""
    model, blocks = draws.model, draws.term_features.blocks
    parts = model.layout.read_terms
    grids = {part.name: grid_of(model, part, size) for part in parts}
    points = {part.name: (grids[part.name][1], part.columns) for part in parts}
    X, places = side_by_side(points) if points else (np.zeros((1, model.rows.X.shape[1])), {})
    each, sums, functions = -(-BAND_FUNCTIONS // draws.size), MixtureMoments(), list[np.ndarray]()
    exact = None if draws.exact is None else draws.exact.at(X, is_split=True)
    for term_posterior, scaled in draws.at(X):
        mean, variance = said = components(term_posterior, scaled, blocks)
        pairs = zip(blocks.apart(term_posterior.sample(rng, each)), blocks.apart(scaled.A), strict=True)
        drawn = blocks.in_order([values.transpose(0, 2, 1) @ a for values, a in pairs])
        if exact is not None:  # functions of pseudo-data, with the moments at each point that rows give
            mean, variance = next(exact)
            drawn = mean[:, None] + np.sqrt(variance / said[1])[:, None] * (drawn - said[0][:, None])
        sums.add(mean, variance)
        functions.append(drawn)
    result = Effects()
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


# --------------------------------------------------------------------------------------
# Shares of the variance over rows, degrees of freedom and concurvity of terms: sums over draws of a posterior.


# A term is negligible below this share of the variance over the data.
NEGLIGIBLE = 0.01
# Rows over which covariances between terms are averaged, and numbers in their sums.
MOST_ROWS, MOST_NUMBERS = 1000, 4_000_000


class Row(NamedTuple):
    """One term: share of the variance over the rows with its interval, edf, and what else the table has.

    Attributes
    ----------
    term : str
    share, low, high : float
        Expected share ``Var_n f_c(x_n) / sum_e Var_n f_e(x_n)``, and its central 90 % interval.
    edf : float
        ``tr(I - S_cc)`` of the whitened values: how many numbers the data determined.
    negligible : float
        Probability that the share is below 0.01.
    correlation : float
        Largest posterior correlation, in size, with another term, of covariances averaged over the rows.
    partner : str
        That other term.
    """

    term: str
    share: float
    low: float
    high: float
    edf: float
    negligible: float
    correlation: float
    partner: str


class Shares:
    """What the table says of terms, from draws that are added one by one, all at the same rows of mass ``(N,)``.

    A row of weight two is two rows, in every average.
    """

    def __init__(self, term_features: TermFeatures, mass: np.ndarray) -> None:
        self.term_features, self.blocks, count = term_features, term_features.blocks, len(mass)
        self.mass = mass / mass.sum()
        size, parts = len(term_features.repeats), len(term_features.sizes)
        few = min(count, MOST_ROWS, max(1, MOST_NUMBERS // max(parts**2, size)))
        self.few = some_rows(count, few) if few < count else slice(None)
        self.of_few = mass[self.few] / mass[self.few].mean()
        self.expected, self.shares, self.means, self.traces = (list[np.ndarray]() for _ in range(4))
        self.within, self.constant, self.at_few = np.zeros((parts, parts)), MixtureMoments(), list[np.ndarray]()

    def add(self, term_posterior: TermNormal, scaled: ScaledFeatures, left: np.ndarray, drawn: np.ndarray) -> None:
        """One draw: ``D_c = v_c^T G_c v_c + k_c - tr G_c`` with the covariance ``G_c`` of features over rows.

        ``left (C, N)`` is what inducing inputs leave open, ``drawn (M, K)`` are draws of the whitened values.
        """
        blocks, own = self.blocks, term_posterior.block_covariances(self.blocks)
        pairs = zip(blocks.apart(scaled.A), [scaled.prior[list(own)] for own in blocks.members], strict=True)
        squares = [Squares.over(A, prior, self.mass) for A, prior in pairs]
        of_means = zip(squares, blocks.apart(term_posterior.mean), own, strict=True)
        self.expected.append(blocks.in_order([one.expected(mean, S) for one, mean, S in of_means]))
        of_draws = zip(squares, blocks.apart(drawn), strict=True)
        self.shares.append(shares_of(blocks.in_order([one.drawn(values) for one, values in of_draws])[:-1]))
        self.traces.append(blocks.in_order([np.trace(one, axis1=1, axis2=2) for one in own]))
        self.means.append(term_posterior.mean)
        # The constant has one whitened value, and is the same at every row.
        change = scaled.A[-1, 0] ** 2 * self.traces[-1][-1]
        self.constant.add(term_posterior.mean[-1] * scaled.A[-1, 0], left[-1, 0] + change)
        # Covariances between components averaged over a few rows, and the means there.
        A = scaled.A[:, self.few] * np.sqrt(self.of_few)  # so that an average is one over weights
        stacks = self.blocks.apart(A)
        self.within += np.diag((left[:, self.few] * self.of_few).mean(axis=1))
        self.within += term_posterior.component_covariances(A, self.blocks)
        pairs = zip(self.blocks.apart(term_posterior.mean), stacks, strict=True)
        self.at_few.append(self.blocks.in_order([np.einsum("cm,cmn->cn", m, a) for m, a in pairs]))

    def rows(self, level: float) -> tuple[Row, ...]:
        """The rows of the table, with intervals that hold so much."""
        names = [part.name for part in self.term_features.model.layout.read_terms]
        if not names:
            return ()
        # Posterior correlation of the components over all draws and the few rows; the constant, which goes with every
        # level of a random effect, is no other term.
        away = np.array(self.at_few)
        away -= away.mean(axis=0)
        count, _, rows = away.shape
        covariance = (self.within + np.einsum("scn,sen->ce", away, away, optimize=True) / rows) / count
        scale = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
        others = (covariance / scale[:, None] / scale)[:-1, :-1] * (1 - np.eye(len(names)))
        expected = shares_of(np.mean(self.expected, axis=0)[:-1])
        shares, traces = np.concatenate(self.shares, axis=1), np.mean(self.traces, axis=0)
        # Where draws are points the spread of the whitened values is that between them.
        between = np.zeros(len(self.term_features.repeats)) if traces.any() else np.var(self.means, axis=0)
        edf = np.asarray(self.term_features.sizes) - traces - np.add.reduceat(between, self.blocks.first)
        low, high = np.quantile(shares, [0.5 - level / 2, 0.5 + level / 2], axis=1)
        result = []
        for at, name in enumerate(names):
            other = np.abs(others[at]).argmax()
            share, start, end, freedom, most = (float(one[at]) for one in (expected, low, high, edf, others[:, other]))
            negligible, partner = float(np.mean(shares[at] < NEGLIGIBLE)), names[other] if len(names) > 1 else ""
            result.append(Row(name, share, start, end, freedom, negligible, most, partner))
        return tuple(result)
