"""Figures that explain an additive model: every effect with its credible band, interactions as maps, Sobol indices.

Import of matplotlib happens on the first call. Colours are safe for colour-blind readers and differ in grey print.
"""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from numpyro_gp.additive import sobol
from numpyro_gp.additive.anova import Design
from numpyro_gp.additive.effects import Effect, effects
from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_level, check_points, fail
from numpyro_gp.plots.style import names_below, rug
from numpyro_gp.posterior.posterior import Posterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Truth = Callable[..., ArrayLike]
LINE, BAND, MAP = "#0b4f7d", "#9fc5e0", "PuOr_r"


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
        The layout of `ngp.anova.design`, if the model was built from one: names, levels and units.
    names : sequence of str, optional
        Names of the columns where there is no design.
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
    _labels(design, names, data.shape[1])
    check_level(level)
    call: dict[str, Any] = dict(num_draws=num_draws, site=site, **kwargs)
    found = effects(posterior, key, X, *args, design=design, grid=grid, **call)
    drawn = sobol.sample(posterior, key, X, *args, num_samples=num_samples, **call) if indices else None
    options: dict[str, Any] = dict(design=design, names=names, level=level, truth=truth, title=title, response=response)
    return draw_effects(found, drawn, X, columns=columns, **options)


def draw_effects(
    effects: dict[str, Effect],
    indices: sobol.Indices | None,
    X: ArrayLike,
    *,
    design: Design | None = None,
    names: Sequence[str] | None = None,
    level: float = 0.9,
    truth: Mapping[str, Truth] | None = None,
    title: str = "",
    response: str = "effect",
    columns: int = 4,
) -> "Figure":
    """The figure of `plot_effects` from numbers that are there already: `effects` and draws of `sobol.sample`."""
    import matplotlib.pyplot as plt

    data = np.asarray(check_points("X", X))
    labels, z = _labels(design, names, data.shape[1]), float(ndtri(0.5 + check_level(level) / 2))
    panels = len(effects) + (indices is not None)
    width = min(check_count("columns", columns), panels)
    height = math.ceil(panels / width)
    figure, axes = plt.subplots(height, width, figsize=(3.3 * width, 2.7 * height), squeeze=False, layout="constrained")
    places, limits = list(axes.ravel()), _share_limits(effects, z)
    for axis, (name, effect) in zip(places, effects.items(), strict=False):
        label = f"{response}\n(mean 0 {effect.measure})" if effect.measure else response
        if len(effect.columns) == 1:
            _draw_line(axis, effect, z, data, (truth or {}).get(name))
            axis.set(title=_wrapped(name), xlabel=labels[effect.columns[0]], ylabel=label, ylim=limits)
        else:
            _draw_map(figure, axis, effect, label)
            axis.set(title=_wrapped(name), xlabel=labels[effect.columns[0]], ylabel=labels[effect.columns[1]])
    if indices is not None:
        _draw_indices(places[len(effects)], indices, level)
    for axis in places[panels:]:
        axis.set_axis_off()
    figure.suptitle(title or f"Additive effects with {100 * level:g} % credible bands")
    return figure


def _wrapped(name: str) -> str:
    """A name in lines of about 18 letters, so that it does not push panels apart."""
    return name if len(name) <= 18 else textwrap.fill(name.replace(":", ": "), 18)


def _labels(design: Design | None, names: Sequence[str] | None, count: int) -> list[str]:
    if design is not None:
        return [one.name for one in design.inputs]
    labels = [f"x{d}" for d in range(count)] if names is None else list(names)
    if len(labels) != count:
        fail("names", f"{count} names, one for each column of X", f"{len(labels)}", "Pass design=, or all names.")
    return labels


def _share_limits(found: dict[str, Effect], z: float) -> tuple[float, float]:
    """One vertical range for all main effects, so that their sizes compare at a glance."""
    main = [effect for effect in found.values() if len(effect.columns) == 1]
    low = min((float((e.mean - z * e.scale).min()) for e in main), default=-1.0)
    high = max((float((e.mean + z * e.scale).max()) for e in main), default=1.0)
    pad = 0.08 * max(high - low, 1e-12)
    return low - pad, high + pad


def _draw_line(axis: "Axes", effect: Effect, z: float, data: np.ndarray, truth: Truth | None) -> None:
    (column,), (at,) = effect.columns, effect.axes
    axis.axhline(0.0, color="0.75", linewidth=0.8, zorder=0)
    if effect.is_category[0]:
        place = np.arange(len(at))
        axis.errorbar(place, effect.mean, z * effect.scale, fmt="o", color=LINE, capsize=3)
        names_below(axis, [f"{level:g}" for level in at])
        coordinates = ("data", "axes fraction")
        for x, level in zip(place, at, strict=True):
            share = np.mean(data[:, column] == level)
            axis.annotate(f"{100 * share:.0f} %", (x, 0.01), xycoords=coordinates, ha="center", fontsize=7)
    else:
        low, high = effect.mean - z * effect.scale, effect.mean + z * effect.scale
        axis.fill_between(at, low, high, color=BAND, linewidth=0)
        axis.plot(at, effect.mean, color=LINE, linewidth=1.6)
        rug(axis, data[:, column])
    if truth is not None:
        axis.plot(at, np.asarray(truth(at)), color="#c14a09", linewidth=1.2, linestyle="--")


def _draw_map(figure: "Figure", axis: "Axes", effect: Effect, response: str) -> None:
    """Posterior mean; dotted lines hold the points whose mean is one posterior standard deviation from zero."""
    first, second = (
        np.arange(len(at)) if is_category else at
        for is_category, at in zip(effect.is_category, effect.axes, strict=True)
    )
    most = max(float(np.abs(effect.mean).max()), 1e-12)
    scale: dict[str, Any] = {"cmap": MAP, "vmin": -most, "vmax": most}
    image = axis.pcolormesh(first, second, effect.mean.T, shading="nearest", rasterized=True, **scale)
    clear = np.abs(effect.mean) / np.maximum(effect.scale, 1e-12)
    if min(clear.shape) > 1 and clear.min() < 1 < clear.max():
        axis.contour(first, second, clear.T, levels=[1.0], colors="0.2", linestyles=":", linewidths=0.9)
        axis.annotate("dotted: one sd from zero", (0.02, 0.02), xycoords="axes fraction", fontsize=7)
    for number, (is_category, at) in enumerate(zip(effect.is_category, effect.axes, strict=True)):
        if is_category:
            ticks = axis.set_xticks if number == 0 else axis.set_yticks
            ticks(np.arange(len(at)), [f"{level:g}" for level in at])
    figure.colorbar(image, ax=axis, label=response)


def _draw_indices(axis: "Axes", indices: sobol.Indices, level: float) -> None:
    """Median share of each component with its credible interval, largest on top."""
    bounds = sobol.intervals(indices, level)
    middle = {name: float(jnp.median(value)) for name, value in indices.index.items()}
    order = sorted(middle, key=lambda name: middle[name])
    place, centre = np.arange(len(order)), np.array([middle[name] for name in order])
    ends = np.array([[float(end) for end in bounds[name]] for name in order])
    axis.barh(place, centre, color=BAND, edgecolor=LINE)
    spread = np.maximum(np.stack([centre - ends[:, 0], ends[:, 1] - centre]), 0)
    axis.errorbar(centre, place, xerr=spread, fmt="none", ecolor=LINE, capsize=2)
    axis.set_yticks(place, [_wrapped(name) for name in order], fontsize="small")
    axis.set(title="Sobol indices", xlabel="share of the variance of f", xlim=(0, max(1e-3, 1.05 * float(ends.max()))))
