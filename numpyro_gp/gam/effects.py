"""What the terms of a fit are: moments of each at rows of data, and curves, surfaces and levels to draw."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive import sobol
from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.components import component_marginals
from numpyro_gp.gam.columns import Column
from numpyro_gp.gam.layout import Part
from numpyro_gp.gam.model import CONSTANT, Model
from numpyro_gp.linalg import einsum
from numpyro_gp.posterior import Posterior
from numpyro_gp.primitives import AdditiveGP

# Draws of each function over which a band is simultaneous, in all.
DRAWS = 1000


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


def grid_of(model: Model, part: Part, size: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
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
            count = max(2, round(size / 2.5)) if is_surface else size
            axes.append(np.linspace(X[:, at].min(), X[:, at].max(), count))
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


def moments_at(posterior: Posterior, key: Array, model: Model, X: np.ndarray, num_draws: int | None) -> Moments:
    """Mean and standard deviation of each term at encoded rows, over all draws of the posterior."""
    rows = jnp.asarray(X, jnp.result_type(float))

    def each(f: AdditiveGP, key: Array) -> tuple[Array, Array]:  # noqa: ARG001
        found = component_marginals(f.process, f.basis, rows)
        return found.mean.T, found.variance.T

    mean, variance = sobol.each_draw(posterior, key, each, rows[:1], num_draws=num_draws)
    names = (*(part.name for part in model.layout.parts), CONSTANT)
    total = np.asarray(variance).mean(0) + np.asarray(mean).var(0)
    return Moments(names, np.asarray(mean).mean(0), np.sqrt(total))


def _at_sets(
    posterior: Posterior, key: Array, sets: list[tuple[Array, list[int]]], zero: Array, num_draws: int | None
) -> Any:
    """Mean, variance and draws ``(S, ...)`` of some terms at the rows of each set, and the mean of the constant."""
    count = posterior.spread(num_draws, posterior.source.is_random).size
    each_size = -(-DRAWS // count)

    def each(f: AdditiveGP, key: Array) -> Any:
        process, stacks = f.process, f.basis.stacks
        if isinstance(process, AbstractBelief):
            values = process.draw_whitened(key, (each_size,), f.basis)
        else:
            values = process.v[None]

        def at(rows: Array, own: list[int]) -> tuple[Array, ...]:
            found = component_marginals(process, f.basis, rows)
            pairs = zip(stacks.apart(values.T), stacks.apart(f.basis.features(rows)), strict=True)
            draws = stacks.in_order([einsum("cms,cmg->csg", one, block) for one, block in pairs])
            return tuple(value[np.array(own)] for value in (found.mean, found.variance, draws))

        constant = component_marginals(process, f.basis, zero).mean[f.basis.component(CONSTANT), 0]
        return [at(*one) for one in sets], constant

    return sobol.each_draw(posterior, key, each, zero, num_draws=num_draws)


def effects_of(
    posterior: Posterior, key: Array, model: Model, size: int, num_draws: int | None = None
) -> tuple[dict[str, Effect], float]:
    """Every term on its grid, and the posterior mean of the constant on the scale of the link."""
    parts = model.layout.parts
    grids = {part.name: grid_of(model, part, size) for part in parts}
    places = side_by_side({part.name: (grids[part.name][1], part.columns) for part in parts})
    number = {part.name: at for at, part in enumerate(parts)}
    sets = [(jnp.asarray(rows, jnp.result_type(float)), [number[name] for name in own]) for rows, own in places]
    zero = jnp.zeros((1, model.rows.X.shape[1]), jnp.result_type(float))
    found, constant = _at_sets(posterior, key, sets, zero, num_draws)
    own_of = {}
    for (_, names), values in zip(places, found, strict=True):
        every = [np.asarray(value) for value in values]
        for at, name in enumerate(names):
            own_of[name] = [value[:, at][..., : len(grids[name][1])] for value in every]
    result = {}
    for part in parts:
        mean, variance, draws = own_of[part.name]
        axes, columns = grids[part.name][0], tuple(model.layout.columns[one] for one in part.columns)
        shape = tuple(len(axis) for axis in axes)
        total = np.sqrt(variance.mean(0) + mean.var(0))
        raw = tuple(
            axis if column.is_category else column.decode(axis) for axis, column in zip(axes, columns, strict=True)
        )
        own = draws.reshape(-1, *shape)
        result[part.name] = Effect(
            part.name, part.term.kind, columns, raw, mean.mean(0).reshape(shape), total.reshape(shape), own
        )
    return result, float(np.mean(constant)) + model.start.constant
