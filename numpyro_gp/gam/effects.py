"""What the terms of a fit are: moments of each at rows of data, and curves, surfaces and levels to draw."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive import sobol
from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.gam.columns import Column
from numpyro_gp.gam.layout import Part
from numpyro_gp.gam.model import CONSTANT, Model
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


def moments_at(posterior: Posterior, key: Array, model: Model, X: np.ndarray, num_draws: int | None) -> Moments:
    """Mean and standard deviation of each term at encoded rows, over all draws of the posterior."""
    rows = jnp.asarray(X, jnp.result_type(float))

    def each(f: AdditiveGP, key: Array) -> tuple[Array, Array]:  # noqa: ARG001
        found = f.components(rows)
        own = [found[name] for name in f.names]
        return jnp.stack([one.loc for one in own], 1), jnp.stack([one.variance for one in own], 1)

    mean, variance = sobol.each_draw(posterior, key, each, rows[:1], num_draws=num_draws)
    names = (*(part.name for part in model.layout.parts), CONSTANT)
    total = np.asarray(variance).mean(0) + np.asarray(mean).var(0)
    return Moments(names, np.asarray(mean).mean(0), np.sqrt(total))


def effects_of(
    posterior: Posterior, key: Array, model: Model, size: int, num_draws: int | None = None
) -> tuple[dict[str, Effect], float]:
    """Every term on its grid, and the posterior mean of the constant on the scale of the link."""
    parts = model.layout.parts
    grids = {part.name: grid_of(model, part, size) for part in parts}
    rows = jnp.asarray(
        np.concatenate([rows for _, rows in grids.values()] + [np.zeros((1, model.rows.X.shape[1]))]),
        jnp.result_type(float),
    )
    ends = np.cumsum([len(one) for _, one in grids.values()])
    at = {name: slice(end - len(grids[name][1]), end) for name, end in zip(grids, ends, strict=True)}
    count = posterior.spread(num_draws, posterior.source.is_random).size
    each_size = -(-DRAWS // count)

    def each(f: AdditiveGP, key: Array) -> Any:
        found, process = f.components(rows), f.process
        if isinstance(process, AbstractBelief):
            values = process.draw_whitened(key, (each_size,), f.basis)
        else:
            values = process.v[None]
        blocks = dict(zip(f.names, f.basis.blocks(rows), strict=True))
        own = {
            name: values[:, f.basis.slices[f.basis.component(name)]] @ blocks[name][:, part]
            for name, part in at.items()
        }
        moments = {name: (found[name].loc[part], found[name].variance[part]) for name, part in at.items()}
        return moments, own, found[CONSTANT].loc[-1]

    moments, draws, constant = sobol.each_draw(posterior, key, each, rows[:1], num_draws=num_draws)
    result = {}
    for part in parts:
        mean, variance = (np.asarray(value) for value in moments[part.name])
        axes, columns = grids[part.name][0], tuple(model.layout.columns[one] for one in part.columns)
        shape = tuple(len(axis) for axis in axes)
        total = np.sqrt(variance.mean(0) + mean.var(0))
        raw = tuple(
            axis if column.is_category else column.decode(axis) for axis, column in zip(axes, columns, strict=True)
        )
        own = np.asarray(draws[part.name]).reshape(-1, *shape)
        result[part.name] = Effect(
            part.name, part.term.kind, columns, raw, mean.mean(0).reshape(shape), total.reshape(shape), own
        )
    return result, float(np.mean(constant)) + model.start.constant
