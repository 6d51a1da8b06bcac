"""Effects: the posterior of each additive component on a grid of the inputs that it reads, in raw units."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive import sobol
from numpyro_gp.additive.anova import Design
from numpyro_gp.additive.integrals import category_columns, measure_words
from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_points, fail
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.primitives import AdditiveGP


class Effect(NamedTuple):
    """One component on a grid of the inputs that it reads, in raw units.

    ``axes`` are the grids of its columns; ``mean`` and ``scale`` have one axis for each of them. The grid of a category
    is its levels: those of the design, or those in the data where a `CategoryDelta`, `Coregion` or `ZeroMeanCategory`
    reads the column. ``measure`` says over what the component averages to zero: empty where it does not.
    """

    columns: tuple[int, ...]
    axes: tuple[np.ndarray, ...]
    mean: np.ndarray
    scale: np.ndarray
    is_category: tuple[bool, ...]
    measure: str = ""


def _axis(design: Design | None, X: np.ndarray, column: int, size: int, categories: frozenset[int]) -> np.ndarray:
    if column in categories:  # there is nothing between two levels
        return np.unique(X[:, column]) if design is None else np.asarray(design.inputs[column].levels)
    return np.linspace(X[:, column].min(), X[:, column].max(), size)


def effects(
    posterior: Posterior,
    key: Array,
    X: ArrayLike,
    *args: object,
    design: Design | None = None,
    grid: int = 80,
    num_draws: int | None = None,
    site: str | None = None,
    **kwargs: object,
) -> dict[str, Effect]:
    """What an additive model has learned: mean and standard deviation of each component, over the range of the data.

    Components of one or two inputs are given. The moments are those of the mixture over posterior draws, so that
    hyper-parameters count.

    Parameters
    ----------
    posterior, key, X, design, num_draws, site
        As in `plot_effects`.
    *args, **kwargs
        Further arguments of the model, without data.
    grid : int
        Points of each curve.

    Returns
    -------
    dict of Effect
        By component: ``axes``, the grids of its columns in raw units, and ``mean`` and ``scale`` with one axis for
        each.

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
    data = np.asarray(check_points("X", X))
    check_count("grid", grid, 2)
    if design is not None and not isinstance(design, Design):
        got = f"a {type(design).__name__}"
        fail("design", "what ngp.anova.design made", got, "Leave it out, or pass ngp.anova.design(X).", TypeError)
    call: dict[str, Any] = dict(num_draws=num_draws, site=site, **kwargs)
    if design is None:
        layout, categories = _layout(posterior, key, X, *args, **call)
    else:
        layout = design.components
        categories = frozenset(column for column, one in enumerate(design.inputs) if one.is_category)
    chosen = {name: columns for name, columns in layout.items() if len(columns) in (1, 2)}
    if not chosen:
        fail("components", "at least one of one or two inputs", f"{layout}", "Add a main effect: RBF(1.0, 0.3).on(0).")
    grids = {name: _grid(design, data, columns, grid, categories) for name, columns in chosen.items()}

    # All grids at once: one pass over the components, of which each effect takes its own rows.
    rows = jnp.concatenate([points for _, points in grids.values()])
    ends = np.cumsum([len(points) for _, points in grids.values()])
    parts = {name: slice(end - len(grids[name][1]), end) for name, end in zip(grids, ends, strict=True)}

    def moments(f: AdditiveGP, key: Array) -> dict[str, tuple[Array, Array]]:  # noqa: ARG001
        normals = f.components(rows)
        words.update({name: measure_words(part.kernel) for name, part in zip(f.names, f.basis.parts, strict=True)})
        return {name: (normals[name].loc[at], normals[name].variance[at]) for name, at in parts.items()}

    result: dict[str, Effect] = {}
    words: dict[str, str] = {}
    drawn = sobol.each_draw(posterior, key, moments, X, *args, **call)
    for name, (axes, _) in grids.items():  # in the model's order: JAX sorts dictionaries
        mean, variance = drawn[name]
        shape = tuple(len(axis) for axis in axes)
        centre, total = (np.asarray(part).reshape(shape) for part in (mean.mean(0), variance.mean(0) + mean.var(0)))
        levels = tuple(column in categories for column in chosen[name])
        result[name] = Effect(chosen[name], axes, centre, np.sqrt(total), levels, words[name])
    return result


def _layout(
    posterior: Posterior, key: Array, *args: object, **call: Any
) -> tuple[dict[str, tuple[int, ...]], frozenset[int]]:
    """Columns of each component, and those that hold categories, from the model's kernels; traced, not computed."""
    layout: dict[str, tuple[int, ...]] = {}
    categories: set[int] = set()

    def look(f: AdditiveGP, key: Array) -> Array:  # noqa: ARG001
        layout.update(sobol.columns_of(f))
        for part in f.basis.parts:
            categories.update(category_columns(part.kernel, tuple(range(f.columns))))
        return jnp.zeros(())

    jax.eval_shape(lambda: sobol.each_draw(posterior, key, look, *args, **call))
    return layout, frozenset(categories)


def _grid(
    design: Design | None, X: np.ndarray, columns: tuple[int, ...], size: int, categories: frozenset[int]
) -> tuple[tuple[np.ndarray, ...], Array]:
    """Axes in raw units and rows of inputs, with the columns that are not read at their first value."""
    per_axis = size if len(columns) == 1 else max(2, math.ceil(size / 2.5))
    axes = tuple(_axis(design, X, column, per_axis, categories) for column in columns)
    mesh = np.meshgrid(*axes, indexing="ij")
    rows = np.repeat(X[:1], mesh[0].size, axis=0)
    for column, values in zip(columns, mesh, strict=True):
        rows[:, column] = values.ravel()
    return axes, jnp.asarray(rows if design is None else design.map(rows), X.dtype)
