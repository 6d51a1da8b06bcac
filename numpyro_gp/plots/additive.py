"""Figures that explain an additive model: every effect with its credible band, interactions as maps, Sobol indices.

The panels of effects are those of `terms`.
"""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive import sobol
from numpyro_gp.additive.anova import Design
from numpyro_gp.additive.effects import Effect, column_names, effects, known_design
from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_level, check_points
from numpyro_gp.plots.style import COLOURS, Axes, Figure, finish
from numpyro_gp.plots.terms import DARK, Points, Truth, draw_terms
from numpyro_gp.posterior.posterior import Posterior


def plot_effects(
    posterior: Posterior,
    key: Array,
    X: ArrayLike,
    *args: object,
    design: Design | None = None,
    names: Sequence[str] | None = None,
    level: float = 0.9,
    indices: bool = True,
    truth: Mapping[str, Truth] | None = None,
    title: str = "",
    response: str = "effect",
    grid: int = 80,
    num_draws: int | None = None,
    num_samples: int = 1000,
    site: str | None = None,
    columns: int = 4,
    **kwargs: object,
) -> "Figure":
    """Show an additive model in one figure: main effects with credible bands and rugs, interactions, Sobol indices.

    Parameters
    ----------
    posterior : Posterior
        Of any engine.
    key : PRNG key
    X : array (N, D)
        Inputs as the model takes them as its first argument; they give the ranges and the rugs.
    *args, **kwargs
        Further arguments of the model, without data.
    design : Design, optional
        The layout of `ngp.anova.design`, where the model was built on one: names, levels and units. Of ``design.model``
        it is known.
    names : sequence of str, optional
        Names of the columns, in place of those of the design.
    level : float
        Of the credible bands and of the intervals of the indices.
    indices : bool
        Whether to draw the bar chart of Sobol indices; it needs zero-mean kernels.
    truth : dict, optional
        By component, functions of its columns (raw units) to draw over the effects.
    title, response : str
        Title of the figure, and what an effect is an effect on.
    grid : int
        Points of each curve.
    num_draws, num_samples : int
        Posterior draws, and draws of the indices.
    site : str, optional
        The additive site, where there are several.
    columns : int
        Panels in a row.

    Returns
    -------
    matplotlib Figure

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
    >>> figure = ngp.plot_effects(posterior, jax.random.key(1), X, names=["age", "dose"], grid=10, num_samples=20)
    >>> type(figure).__name__
    'Figure'
    """
    data = np.asarray(check_points("X", X))
    design = known_design(posterior, design)
    labels = column_names(design, names, data.shape[1])
    check_level(level)
    call: dict[str, Any] = dict(num_draws=num_draws, site=site, **kwargs)
    found = effects(posterior, key, X, *args, design=design, names=names, grid=grid, **call)
    drawn = sobol.sample(posterior, key, X, *args, num_samples=num_samples, **call) if indices else None
    options: dict[str, Any] = dict(level=level, truth=truth, title=title, response=response, columns=columns)
    return draw_effects(found, drawn, data, labels, **options)


def draw_effects(
    effects: Mapping[str, Effect],
    indices: sobol.Indices | None,
    X: np.ndarray,
    names: Sequence[str],
    *,
    level: float = 0.9,
    truth: Mapping[str, Truth] | None = None,
    title: str = "",
    response: str = "effect",
    columns: int = 4,
) -> "Figure":
    """The figure of `plot_effects` from numbers that are there already: `effects` and draws of `sobol.sample`."""
    places = {name: at for at, name in enumerate(names)}
    shown, points, labels = {}, {}, {}
    for name, effect in effects.items():
        values = tuple(X[:, places[column.name]] for column in effect.columns)
        if effect.is_category == (True,):  # levels say what share of the rows has them
            named = zip(effect.columns[0].levels or (), effect.axes[0], strict=True)
            levels = tuple(f"{level}\n{100 * np.mean(values[0] == code):.0f} %" for level, code in named)
            effect = dataclasses.replace(effect, columns=(dataclasses.replace(effect.columns[0], levels=levels),))
        shown[name] = effect
        points[name] = Points(values, truth=(truth or {}).get(name))
        zero = textwrap.fill(f"(mean 0 {effect.measure})", 26)
        labels[name] = f"{response}\n{zero}" if effect.measure else response
    figure = draw_terms(
        shown,
        points,
        level=level,
        simultaneous=False,
        labels=labels,
        link="identity",
        constant=0.0,
        deviations=False,
        columns=check_count("columns", columns),
        others=int(indices is not None),
        title=title,
    )
    if indices is not None:
        _draw_indices(figure.axes[len(shown)], indices, level)
    return figure


def _draw_indices(axis: "Axes", indices: sobol.Indices, level: float) -> None:
    """Median share of each component with its credible interval, largest on top."""
    bounds = sobol.intervals(indices, level)
    middle = {name: float(jnp.median(value)) for name, value in indices.index.items()}
    order = sorted(middle, key=lambda name: middle[name])
    place, centre = np.arange(len(order)), np.array([middle[name] for name in order])
    ends = np.array([[float(end) for end in bounds[name]] for name in order])
    axis.barh(place, centre, color=COLOURS[0], alpha=DARK)
    spread = np.maximum(np.stack([centre - ends[:, 0], ends[:, 1] - centre]), 0)
    axis.errorbar(centre, place, xerr=spread, fmt="none", ecolor=COLOURS[0], capsize=2)
    axis.set_yticks(place, [textwrap.fill(name.replace(":", ": "), 18) for name in order], fontsize="small")
    limits = 0, max(1e-3, 1.05 * float(ends.max()))
    finish(axis, "Sobol indices", "share of the variance of f", "").set(xlim=limits)
