"""Figures of additive models: terms as curves with bands, surfaces and levels; effects with their Sobol indices."""

import dataclasses
import functools
import itertools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive import sobol
from numpyro_gp.additive.anova import Design
from numpyro_gp.additive.effects import Effect, column_names, effects, known_design
from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_level, check_points
from numpyro_gp.likelihoods.links import mean_of
from numpyro_gp.plots.functions import AROUND_ZERO, DEVIATIONS, aspect_of, mark, shade
from numpyro_gp.plots.style import COLOURS, INK, STYLES, Axes, Figure, band, date_ticks, finish, names_below, rug
from numpyro_gp.posterior.posterior import Posterior

PANEL_COLUMNS = 4
# Panels whose place is found from their labels, in a time that grows with their square; more have fixed margins.
MOST_PANELS = 24
# Inches around and between those: left, right, bottom, top, across, down.
MARGINS = (0.9, 0.2, 0.6, 0.7, 1.0, 0.8)
# How far partial residuals are followed beyond the bands, in heights of all bands: those of labels are far away.
BEYOND = 1.5
# Bands count for the height of a panel but for one of so many rows at each end, and this share of it is left free.
FAR, EDGE = 50, 0.04
# Levels whose curves have both bands and a roomy legend.
LEVELS_WITH_BANDS = 6
# Darkness of the bands of a curve: for each value, which lies on the other, and for the whole curve.
DARK, LIGHT = 0.35, 0.18
# Width of the box of a level, in levels.
WIDE = 0.4
# Inches that an entry of the legend takes, and most of them in a row.
ENTRY, MOST_ENTRIES = 1.7, 6
TRUTH = COLOURS[4]


Truth = Callable[..., ArrayLike]


class Points(NamedTuple):
    """Rows of data for the panel of a term: values of its columns, partial residuals ``(N,)``, and a known function."""

    values: tuple[np.ndarray, ...]
    residuals: np.ndarray | None = None
    truth: Truth | None = None


def draw_terms(
    effects: Mapping[str, Effect],
    points: Mapping[str, Points],
    *,
    level: float,
    simultaneous: bool,
    labels: Mapping[str, str],
    link: str,
    constant: float,
    sharey: bool = True,
    deviations: bool = True,
    columns: int = PANEL_COLUMNS,
    others: int = 0,
    title: str = "",
) -> "Figure":
    """One panel for each term; ``link`` is undone after ``constant`` is added.

    Surfaces have ``deviations`` beside them. ``others`` is how many panels are left empty behind those of the terms.
    """
    import matplotlib.pyplot as plt

    surfaces = sum(len(_numbers(effect)) == 2 for effect in effects.values())
    count = max(len(effects) + deviations * surfaces + others, 1)
    width = min(columns, count)
    height = math.ceil(count / width)
    size = 3.4 * width, 2.9 * height
    # Maps have a shape of their own.
    layout = None if count > MOST_PANELS else "compressed" if surfaces else "constrained"
    figure, axes = plt.subplots(height, width, figsize=size, squeeze=False, layout=layout)
    if layout is None:  # margins as shares of the figure, and of a panel
        left, right, bottom, top, across, down = MARGINS
        panel = (size[0] - left - right - (width - 1) * across) / width
        tall = (size[1] - bottom - top - (height - 1) * down) / height
        ends = left / size[0], bottom / size[1], 1 - right / size[0], 1 - top / size[1]
        figure.subplots_adjust(*ends, across / panel, down / tall)
    places = iter(axes.ravel())
    panels, shown = list[_Panel](), list[str]()
    for name, effect in effects.items():
        axis, numbers = next(places), _numbers(effect)
        bands = [effect.half_width(level, whole) for whole in (False, True)[: 1 + simultaneous]]
        num_curves = effect.mean.size // len(effect.axes[numbers[0]]) if numbers else 0
        has_colours = effect.mean.ndim == len(numbers) == 2 and link == "identity"
        residuals = points[name].residuals if num_curves == 1 or has_colours else None
        undo = lambda f: mean_of(link, f + constant)  # noqa: E731
        draw = _Panel(axis, effect, points[name], bands, undo, num_curves, residuals)
        if len(numbers) == 2:
            shown += ["rows" if residuals is None else "coloured"] + ["zero"] * draw.surface(numbers, labels[name])
            if deviations:
                is_same = link == "identity"  # a deviation has the unit of the mean where no link is undone
                words = labels[name].split("\n")[0] if is_same else "on the scale of the link"
                draw._replace(axis=next(places)).deviations(numbers, words)
        else:
            shown += draw.curves(numbers[0], labels[name]) if numbers else draw.levels(labels[name])
            panels.append(draw)
    for axis in itertools.islice(places, others, None):
        axis.set_axis_off()
    _set_heights(panels, sharey)
    previous = None
    for axis in [draw.axis for draw in panels] if sharey else ():  # no label twice in neighbouring panels
        place, words = axis.get_subplotspec(), axis.get_ylabel()
        if place and previous == (place.num1 - 1, words) and not place.is_first_col():
            axis.set_ylabel("")
        previous = place and (place.num1, words)
    _explain(figure, shown, level, simultaneous, size, title)
    return figure


def _explain(
    figure: "Figure", shown: list[str], level: float, simultaneous: bool, size: tuple[float, float], title: str
) -> None:
    """A legend above all panels of what is shown in them, with the title of the figure."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    line = functools.partial(Line2D, [], [])
    share, colour = f"{100 * level:g} %", COLOURS[0]
    both = 1 - (1 - DARK) * (1 - LIGHT) if simultaneous else DARK
    marks = {
        "value": (Patch(color=colour, alpha=both, lw=0), f"{share}, each value"),
        "curve": (Patch(color=colour, alpha=LIGHT, lw=0), f"{share}, whole curve"),
        "level": (Patch(color=colour, alpha=both, lw=0), f"{share}, each level"),
        "levels": (Patch(color=colour, alpha=LIGHT, lw=0), f"{share}, all levels"),
        "residuals": (line(ls="none", marker=".", color="0.7", ms=5), "partial residuals"),
        "rug": (line(ls="none", marker="|", color=INK, ms=6), "values in the data"),
        "coloured": (
            line(ls="none", marker="o", mfc=COLOURS[1], mec=INK, ms=4, mew=0.4),
            "partial residuals, in colour",
        ),
        "rows": (line(ls="none", marker="o", mfc="none", mec=INK, ms=3, mew=0.5), "rows of the data"),
        "zero": (line(ls=":", color=INK, lw=0.9), "one sd from zero"),
        "truth": (line(ls="--", color=TRUTH, lw=1.2), "truth"),
    }
    entries = [words for key, words in marks.items() if key in shown]
    if not entries:
        return
    canvas: Any = figure
    rows = -(-len(entries) // min(max(round(size[0] / ENTRY), 1), MOST_ENTRIES))
    place: dict[str, Any] = {"loc": "outside upper center"}
    if figure.get_layout_engine() is None:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 1 - 0.05 / size[1]), "borderaxespad": 0.0}
    look: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 1.5, "columnspacing": 1.2}
    look |= {"title": title, "title_fontsize": "large"} if title else {}
    canvas.legend(*zip(*entries, strict=True), ncols=-(-len(entries) // rows), **look, **place)


def _set_heights(panels: Sequence["_Panel"], sharey: bool) -> None:
    """Vertical ranges, with room for the names of many curves: one for all panels, so that sizes can be compared."""
    ranges, tops = [draw.ends() for draw in panels], []
    low, high = min((end for end, _ in ranges), default=0.0), max((end for _, end in ranges), default=1.0)
    for draw, (bottom, top) in zip(panels, ranges, strict=True):
        end, rows = (low, high) if sharey else (bottom, top), -(-draw.num_curves // draw.columns)
        room = 0.055 * rows if draw.num_curves > LEVELS_WITH_BANDS else 0.0
        tops.append(max(end[1], end[0] + (top - end[0]) / max(1 - room, 0.3)))
    for draw, (bottom, _), top in zip(panels, ranges, tops, strict=True):
        draw.axis.set_ylim(low if sharey else bottom, max(tops) if sharey else top)
        draw.explain()


def _numbers(effect: Effect) -> list[int]:
    """Columns along which a term is drawn."""
    return [at for at, column in enumerate(effect.columns) if not column.is_category and len(effect.axes[at]) > 1]


class _Panel(NamedTuple):
    """One panel and what it shows: ``num_curves`` curves, and residuals ``(N,)`` beside a single one."""

    axis: "Axes"
    effect: Effect
    points: Points
    bands: list[float]
    undo: Callable[[np.ndarray], np.ndarray]
    num_curves: int
    residuals: np.ndarray | None

    def curves(self, number: int, label: str) -> list[str]:
        """A curve, or one for each level of another column; the entries of the legend that are shown."""
        effect, x = self.effect, self.effect.axes[number]
        mean, scale = (np.moveaxis(value, number, -1).reshape(-1, len(x)) for value in (effect.mean, effect.scale))
        names = _level_names(effect) if len(mean) > 1 else [None]
        is_few = len(mean) <= LEVELS_WITH_BANDS
        shades = list(zip(self.bands if is_few else self.bands[:1], (DARK, LIGHT) if is_few else (0.08,), strict=False))
        has_residuals = self.residuals is not None
        if self.residuals is not None:
            self.axis.plot(self.points.values[number], self.residuals, ".", color="0.7", ms=2.5, zorder=0)
        for at, name in enumerate(names):
            again = at // len(COLOURS)  # where colours start again they have the next style
            colour, style = COLOURS[at % len(COLOURS)], STYLES[(at + again) % len(STYLES)]
            for z, alpha in shades:
                band(self.axis, x, [self.undo(mean[at] + side * z * scale[at]) for side in (-1, 1)], colour, alpha)
            self.axis.plot(x, self.undo(mean[at]), color=colour, ls=style, label=name)
        rug(self.axis, self.points.values[number])
        if effect.columns[number].is_date:
            date_ticks(self.axis.xaxis)
        finish(self.axis, effect.name, effect.columns[number].name, label)
        return ["value", "rug", *self._truth(x)] + ["curve"] * (len(shades) > 1) + ["residuals"] * has_residuals

    def _truth(self, x: np.ndarray) -> list[str]:
        """A known function of the only column over its curve or levels; whether there is one."""
        truth = self.points.truth if len(self.effect.axes) == 1 else None
        if truth is None:
            return []
        self.axis.plot(x, self.undo(np.asarray(truth(self.effect.axes[0]))), color=TRUTH, lw=1.2, ls="--")
        return ["truth"]

    def ends(self) -> tuple[float, float]:
        """The vertical range of means, of bands where there are data, and of residuals that are not far from both."""
        numbers = _numbers(self.effect)
        if not numbers:
            return self.axis.get_ylim()
        x, values = self.effect.axes[numbers[0]], np.sort(self.points.values[numbers[0]])
        last = len(values) - 1
        near = (x >= values[last // FAR]) & (x <= values[last - last // FAR]) if len(values) else np.ones(len(x), bool)
        reach = max(self.bands) * np.compress(near, self.effect.scale, numbers[0])
        mean = np.compress(near, self.effect.mean, numbers[0])
        shown = np.concatenate([np.ravel(self.undo(f)) for f in (self.effect.mean, mean - reach, mean + reach)])
        low, high = shown.min(), shown.max()
        if self.residuals is not None:
            room = BEYOND * (high - low)
            low = min(low, max(self.residuals.min(), low - room))
            high = max(high, min(self.residuals.max(), high + room))
        return low - EDGE * (high - low), high + EDGE * (high - low)

    @property
    def columns(self) -> int:
        """Columns of the names of many curves."""
        return 3 if self.num_curves <= 30 else 4

    def explain(self) -> None:
        """Names of the curves, and how many residuals are beyond; names of many in a room that the layout leaves."""
        if self.num_curves > LEVELS_WITH_BANDS:
            legend = self.axis.legend(
                loc="upper center", ncols=self.columns, fontsize=5, frameon=False, labelspacing=0.2, columnspacing=1.0
            )
            legend.set_in_layout(False)
        elif self.num_curves > 1:
            self.axis.legend(fontsize="x-small", frameon=False)
        elif self.residuals is not None:
            bottom, top = self.axis.get_ylim()
            if beyond := int(np.sum((self.residuals < bottom) | (self.residuals > top))):
                place: dict[str, Any] = {"ha": "right", "va": "top", "transform": self.axis.transAxes}
                paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}
                words = f"residuals beyond: {beyond}"
                self.axis.text(0.98, 0.98, words, fontsize="x-small", color="0.4", bbox=paper, **place)

    def surface(self, numbers: list[int], label: str) -> bool:
        """Posterior mean; whether a dotted line shows where it is one standard deviation from zero."""
        effect = self.effect
        first, second = (effect.axes[at] for at in numbers)
        mean, scale = (value.reshape(len(first), len(second)) for value in (effect.mean, effect.scale))
        shown = self.undo(mean)
        middle = float(self.undo(np.zeros(())))
        most = max(float(np.abs(shown - middle).max()), 1e-12)
        shade(self.axis, first, second, shown, label, AROUND_ZERO, (middle - most, middle + most))
        clear = np.abs(mean) / np.maximum(scale, 1e-12)
        has_line = bool(clear.min() < 1 < clear.max())
        if has_line:
            self.axis.contour(first, second, clear.T, levels=[1.0], colors=INK, linestyles=":", linewidths=0.9)
        if self.residuals is not None:
            x, y = (self.points.values[at] for at in numbers)
            look: dict[str, Any] = {
                "cmap": AROUND_ZERO,
                "vmin": middle - most,
                "vmax": middle + most,
                "linewidths": 0.3,
            }
            self.axis.scatter(x, y, s=12, c=self.residuals, edgecolors=INK, **look)
        self._map(numbers, effect.name, is_marked=self.residuals is None)
        return has_line

    def deviations(self, numbers: list[int], label: str) -> None:
        """Standard deviation of a surface, before a link is undone."""
        first, second = (self.effect.axes[at] for at in numbers)
        scale = self.effect.scale.reshape(len(first), len(second))
        shade(self.axis, first, second, scale, label, DEVIATIONS, (float(scale.min()), float(scale.max())))
        self._map(numbers, f"sd of {self.effect.name}")

    def _map(self, numbers: list[int], title: str, is_marked: bool = True) -> None:
        """Data, labels and the scale of the axes."""
        first, second = (self.effect.columns[at] for at in numbers)
        if is_marked:
            mark(self.axis, *(self.points.values[at] for at in numbers))
        finish(self.axis, title, first.name, second.name)
        self.axis.set_aspect(aspect_of(first.name, second.name, self.effect.axes[numbers[1]]))
        for column, own in ((first, self.axis.xaxis), (second, self.axis.yaxis)):
            if column.is_date:
                date_ticks(own)

    def levels(self, label: str) -> list[str]:
        """Levels with intervals, in their order; the entries of the legend that are shown."""
        mean, scale = self.effect.mean.ravel(), self.effect.scale.ravel()
        place = np.arange(len(mean))
        for z, alpha in zip(self.bands, (DARK, LIGHT), strict=False):  # boxes: a short line would hide behind a mark
            low, high = (self.undo(mean + side * z * scale) for side in (-1, 1))
            self.axis.bar(place, high - low, WIDE, low, color=COLOURS[0], alpha=alpha, lw=0)
        self.axis.hlines(self.undo(mean), place - 0.5 * WIDE, place + 0.5 * WIDE, color=COLOURS[0], lw=0.8)
        self.axis.set_xlim(-0.5, len(mean) - 0.5)
        names_below(self.axis, _level_names(self.effect))
        finish(self.axis, self.effect.name, " at one sd of ".join(c.name for c in self.effect.columns), label)
        return ["level", *self._truth(place)] + ["levels"] * (len(self.bands) > 1)


def _level_names(effect: Effect) -> list[str]:
    """Of the levels of a category, or of all pairs of levels of two."""
    levels = [column.levels for column in effect.columns if column.levels is not None]
    return [", ".join(map(str, each)) for each in itertools.product(*levels)]


# --------------------------------------------------------------------------------------
# Figures that explain an additive model: every effect with its credible band, interactions as maps, Sobol indices.
#
# The panels of effects are those of `terms`.


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
    if indices is None:
        return figure
    # The median share of each component with its credible interval, largest on top.
    axis = figure.axes[len(shown)]
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
    return figure
