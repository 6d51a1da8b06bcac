"""Effects: the posterior of each additive component on a grid of the inputs that it reads, in raw units."""

import dataclasses
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive import sobol
from numpyro_gp.additive.anova import Design, design_of
from numpyro_gp.additive.columns import Column, as_moments, frame_of, grid_points, plain, size_of_axis
from numpyro_gp.additive.component_kernels import kernel_columns, kernel_parts, measure_words
from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_level, check_points, check_type, fail
from numpyro_gp.kernels import CategoryDelta, Coregion, ZeroMeanCategory
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.primitives.gp import AdditiveGP


@dataclasses.dataclass(frozen=True)
class Effect:
    """One term or component on a grid of what it reads, in the units of the data.

    Attributes
    ----------
    name : str
    kind : str
        Of term, as "s"; "component" of an additive site.
    columns : tuple of Column
    axes : tuple of array
        Grid of each column in the units of the data; of a category the codes of its levels, or the numbers that a
        design has for them.
    mean, scale : array
        One axis for each column, on the scale of the link.
    draws : array (S, ...), optional
        Of the term, without what inducing inputs leave open.
    measure : str
        Over what a component averages to zero: empty where it does not.

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
    draws: np.ndarray | None = None
    measure: str = ""

    @property
    def is_category(self) -> tuple[bool, ...]:
        """Whether each column holds categories."""
        return tuple(column.is_category for column in self.columns)

    def half_width(self, level: float, simultaneous: bool = False) -> float:
        """Standard deviations from the mean to the edge of a band: of each value, or of all at once."""
        if not simultaneous:
            return NormalDist().inv_cdf(0.5 + level / 2)
        if self.draws is None:
            cure = "Leave simultaneous out: effects of ngp.effects have no draws."
            fail("draws of an effect", "given for a band that is simultaneous", f"none of {self.name!r}", cure)
        scale = np.maximum(self.scale, 1e-12 * max(float(self.scale.max()), 1e-300))
        away = np.abs(self.draws - self.mean) / scale
        return float(np.quantile(away.reshape(len(away), -1).max(axis=1), level))


class Effects(dict[str, Effect]):
    """Effects by the names of their terms or components.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> data = {"dose": np.linspace(0.0, 1.0, 20), "y": np.linspace(0.0, 1.0, 20)}
    >>> ngp.gam("y ~ linear(dose)", data).effects(grid=3).to_frame().round(1).values.tolist()[2][:3]
    ['linear(dose)', 1.0, 0.5]
    """

    def to_frame(self, level: float = 0.9) -> Any:
        """A table of pandas: term, a column for each of the data that is read, estimate, sd, low and high.

        A row is a point of the grid of a term; columns that the term does not read are missing there. A column of the
        data whose name the table has itself gets a "_" behind it.
        """
        check_level(level)
        sizes = [effect.mean.size for effect in self.values()]
        ends, moments = np.cumsum(sizes, dtype=int), ("estimate", "sd", "low", "high")
        table: dict[str, np.ndarray] = {}
        numbers = {name: np.zeros(sum(sizes)) for name in moments}
        for effect, end, size in zip(self.values(), ends, sizes, strict=True):
            rows = slice(end - size, end)
            mean, sd = effect.mean.ravel(), effect.scale.ravel()
            half = effect.half_width(level) * sd
            for name, values in zip(moments, (mean, sd, mean - half, mean + half), strict=True):
                numbers[name][rows] = values
            grid = np.indices(effect.mean.shape).reshape(effect.mean.ndim, -1)
            for column, axis, place in zip(effect.columns, effect.axes, grid, strict=True):
                # As the data have them: numbers, dates or, of a category, its levels in order.
                values = as_moments(axis, "us") if column.is_date else axis.astype(float)
                if column.levels is not None:
                    values = np.empty(len(column.levels), object)
                    values[:] = column.levels
                name = column.name + "_" * (column.name in ("term", *moments))
                missing = {"f": np.nan, "M": np.datetime64("NaT"), "O": None}[values.dtype.kind]
                table.setdefault(name, np.full(sum(sizes), missing, values.dtype))[rows] = values[place]
        return frame_of({"term": np.repeat(np.array(list(self), object), sizes)} | table | numbers)


class MixtureMoments:
    """Mean and standard deviation of a mixture of normal distributions, from moments of its members as they come."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares, self.variance = 0, *map(np.asarray, (0.0, 0.0, 0.0))

    def add(self, mean: np.ndarray, variance: np.ndarray) -> None:
        """Those of one more draw."""
        self.count += 1
        away = mean - self.mean
        self.mean = self.mean + away / self.count
        self.squares = self.squares + away * (mean - self.mean)
        self.variance = self.variance + variance

    @property
    def scale(self) -> np.ndarray:
        """Standard deviations over all: the mean of the variances and the variance of the means."""
        return np.sqrt((self.variance + self.squares) / self.count)


def known_design(posterior: Posterior, design: Design | None) -> Design | None:
    """Return the design that is given, or the one that made the model of a posterior."""
    if design is None:
        return design_of(getattr(posterior, "model", None))
    check_type("design", design, Design, "what ngp.anova.design made", "Leave it out, or pass ngp.anova.design(X).")
    return design


def column_names(design: Design | None, names: Sequence[str] | None, count: int) -> list[str]:
    """Return the names of the columns of data: as they are given, of a design, or ``x0``, ``x1``, ..."""
    if design is not None and names is None:
        return [column.name for column in design.inputs]
    labels = [f"x{d}" for d in range(count)] if names is None else list(names)
    if len(labels) != count:
        fail("names", f"{count} names, one for each column of X", f"{len(labels)}", "Pass design=, or all names.")
    return labels


def effects(
    posterior: Posterior,
    key: Array,
    X: ArrayLike,
    *args: object,
    design: Design | None = None,
    names: Sequence[str] | None = None,
    grid: int = 80,
    num_draws: int | None = None,
    site: str | None = None,
    **kwargs: object,
) -> Effects:
    """What an additive model has learned: mean and standard deviation of each component, over the range of the data.

    Components of one or two inputs are given. The moments are those of the mixture over posterior draws, so that
    hyper-parameters count.

    Parameters
    ----------
    posterior, key, X, design, names, num_draws, site
        As in `plot_effects`.
    *args, **kwargs
        Further arguments of the model, without data.
    grid : int
        Points of each curve.

    Returns
    -------
    Effects
        A dictionary of `Effect` by component, with ``to_frame()`` for a table of pandas.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     f = ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": jax.random.normal(jax.random.key(0), (5, 6))})
    >>> X = jnp.array([[0.0, 0.0], [0.5, 1.0], [1.0, 0.5]])
    >>> found = ngp.effects(posterior, jax.random.key(1), X, grid=10)
    >>> sorted(found), found["a"].mean.shape
    (['a', 'b'], (10,))
    """
    design = known_design(posterior, design)
    data = np.asarray(check_points("X", X, None if design is None else len(design.inputs)))
    check_count("grid", grid, 2)
    call: dict[str, Any] = dict(num_draws=num_draws, site=site, **kwargs)
    if design is None:
        layout, categories = _layout(posterior, key, X, *args, **call)
        levels = {d: np.unique(data[:, d]).tolist() for d in categories}  # there is nothing between two
    else:
        layout = design.components
        levels = {d: list(column.levels) for d, column in enumerate(design.inputs) if column.is_category}
    chosen = {name: columns for name, columns in layout.items() if len(columns) in (1, 2)}
    if not chosen:
        fail("components", "at least one of one or two inputs", f"{layout}", "Add a main effect: RBF(1.0, 0.3).on(0).")
    read = [
        Column(name, tuple(map(plain, levels[d])) if d in levels else None, low=float(x.min()), high=float(x.max()))
        for d, (name, x) in enumerate(zip(column_names(design, names, data.shape[1]), data.T, strict=True))
    ]
    axes, rows, parts = {}, list[np.ndarray](), {}
    for name, columns in chosen.items():
        size, start = size_of_axis(grid, len(columns)), sum(map(len, rows))
        axes[name] = tuple(
            np.asarray(levels[d], float) if d in levels else np.linspace(read[d].low, read[d].high, size)
            for d in columns
        )
        points = grid_points(axes[name])
        rows.append(np.repeat(data[:1], len(points), axis=0))  # columns that are not read have their first value
        rows[-1][:, columns] = points
        parts[name] = slice(start, start + len(points))

    # All grids at once: one pass over the components, of which each effect takes its own rows.
    whole = np.concatenate(rows)
    inputs = jnp.asarray(whole if design is None else design.map(whole), data.dtype)
    words: dict[str, str] = {}

    def moments(f: AdditiveGP, key: Array) -> dict[str, tuple[Array, Array]]:  # noqa: ARG001
        normals = f.components(inputs)
        words.update({name: measure_words(part.kernel) for name, part in zip(f.names, f.basis.parts, strict=True)})
        return {name: (normals[name].loc[at], normals[name].variance[at]) for name, at in parts.items()}

    drawn = sobol.each_draw(posterior, key, moments, X, *args, **call)
    result = Effects()
    for name, columns in chosen.items():  # in the model's order: JAX sorts dictionaries
        sums = MixtureMoments()
        for mean, variance in zip(*map(np.asarray, drawn[name]), strict=True):
            sums.add(mean, variance)
        shape = tuple(map(len, axes[name]))
        mean, scale = sums.mean.reshape(shape), sums.scale.reshape(shape)
        inputs_read = tuple(read[d] for d in columns)
        result[name] = Effect(name, "component", inputs_read, axes[name], mean, scale, measure=words[name])
    return result


def _layout(
    posterior: Posterior, key: Array, *args: object, **call: Any
) -> tuple[dict[str, tuple[int, ...]], frozenset[int]]:
    """Return the columns of each component, and those that hold categories; the model is traced, not computed."""
    layout: dict[str, tuple[int, ...]] = {}
    categories: set[int] = set()

    def read(f: AdditiveGP, key: Array) -> Array:  # noqa: ARG001
        every = tuple(range(f.columns))
        for name, part in zip(f.names, f.basis.parts, strict=True):
            layout[name] = kernel_columns(part.kernel, every)
            for kernel, read_columns in kernel_parts(part.kernel, every):
                if isinstance(kernel, (CategoryDelta, Coregion, ZeroMeanCategory)):
                    categories.update(read_columns)
        return jnp.zeros(())

    jax.eval_shape(lambda: sobol.each_draw(posterior, key, read, *args, **call))
    return layout, frozenset(categories)
