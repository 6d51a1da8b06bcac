"""Figures of the terms of a formula: curves with two bands and partial residuals, surfaces, levels of categories."""

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from numpyro_gp.likelihoods.links import mean_of
from numpyro_gp.plots.style import COLOURS, INK, STYLES
from numpyro_gp.plots.surfaces import AROUND_ZERO, DEVIATIONS, aspect_of, mark, shade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4
# Panels whose place is found from their labels, in a time that grows with their square; more have fixed margins.
MOST = 24
# Inches around and between those: left, right, bottom, top, across, down.
MARGINS = (0.9, 0.2, 0.6, 0.7, 1.0, 0.8)
# How far partial residuals are followed beyond the bands, in heights of all bands: those of labels are far away.
BEYOND = 1.5
# Levels whose curves have both bands and a roomy legend, and most of the names below an axis.
FEW_LEVELS, MOST_NAMES = 6, 12


class Points(NamedTuple):
    """Rows of data for the panel of a term: values of its columns, and partial residuals ``(N,)``."""

    values: tuple[np.ndarray, ...]
    residuals: np.ndarray | None


def draw_terms(
    effects: Mapping[str, Any],
    points: Mapping[str, Points],
    *,
    level: float,
    simultaneous: bool,
    labels: Mapping[str, str],
    link: str,
    constant: float,
) -> "Figure":
    """One panel for each term; ``link`` is undone after ``constant`` is added."""
    import matplotlib.pyplot as plt

    count = max(len(effects) + sum(len(_numbers(effect)) == 2 for effect in effects.values()), 1)
    width = min(WIDTH, count)
    height = math.ceil(count / width)
    size = 3.4 * width, 2.9 * height
    layout = "constrained" if count <= MOST else None
    figure, axes = plt.subplots(height, width, figsize=size, squeeze=False, layout=layout)
    if layout is None:
        figure.subplots_adjust(**_margins(size, width, height))
    places = iter(axes.ravel())
    said: dict[str, None] = {}  # in the order in which they are first seen
    for name, effect in effects.items():
        axis, numbers = next(places), _numbers(effect)
        bands = [effect.half_width(level)]
        bands += [effect.half_width(level, simultaneous=True)] * simultaneous
        draw = _Panel(axis, effect, points[name], bands, partial(_undone, link, constant))
        if len(numbers) == 2:
            beside = next(places)
            if draw.surface(numbers, labels[name]):
                said["dotted: one standard deviation from zero"] = None
            is_same = link == "identity"  # a deviation has the unit of the mean where no link is undone
            words = labels[name].split("\n")[0] if is_same else "on the scale of the link"
            draw._replace(axis=beside).deviations(numbers, words)
            _finish(beside, f"{name}, standard deviation")
        elif numbers:
            draw.curves(numbers[0], labels[name])
        else:
            draw.levels(labels[name])
        if len(numbers) < 2:
            said |= dict.fromkeys(_words_of_bands(level, simultaneous))
        _finish(axis, name)
    for axis in places:
        axis.set_axis_off()
    place = {} if layout else {"y": 1 - 0.2 / size[1]}
    figure.suptitle((";\n" if width == 1 else "; ").join(said), fontsize="small", **place)
    return figure


def _words_of_bands(level: float, simultaneous: bool) -> list[str]:
    first = f"{100 * level:g} % bands: dark, for each value"
    return [first, "light: for the whole curve at once"] if simultaneous else [first]


def _finish(axis: "Axes", name: str) -> None:
    axis.set_title(name, fontsize="medium", loc="left")
    axis.spines[["top", "right"]].set_visible(False)


def _numbers(effect: Any) -> list[int]:
    """Columns along which a term is drawn."""
    return [at for at, column in enumerate(effect.columns) if not column.is_category and len(effect.axes[at]) > 1]


def _margins(size: tuple[float, float], width: int, height: int) -> dict[str, float]:
    """`MARGINS` as matplotlib takes them: shares of the figure, and of a panel."""
    left, right, bottom, top, across, down = MARGINS
    panel = (size[0] - left - right - (width - 1) * across) / width
    tall = (size[1] - bottom - top - (height - 1) * down) / height
    edges = {"left": left / size[0], "right": 1 - right / size[0], "bottom": bottom / size[1], "top": 1 - top / size[1]}
    return edges | {"wspace": across / panel, "hspace": down / tall}


def _undone(link: str, constant: float, f: np.ndarray) -> np.ndarray:
    mean: np.ndarray = mean_of(link, f + constant)
    return mean


class _Panel(NamedTuple):
    """One panel and what it shows."""

    axis: "Axes"
    effect: Any
    points: Points
    bands: list[float]
    undo: Any

    def curves(self, number: int, label: str) -> None:
        """A curve, or one for each level of another column."""
        effect, x = self.effect, self.effect.axes[number]
        mean, scale = (np.moveaxis(value, number, -1).reshape(-1, len(x)) for value in (effect.mean, effect.scale))
        names = _level_names(effect) if len(mean) > 1 else [None]
        is_few = len(mean) <= FEW_LEVELS
        bands = zip(self.bands if is_few else self.bands[:1], (0.35, 0.18) if is_few else (0.08,), strict=False)
        shades = list(bands)
        if self.points.residuals is not None and len(mean) == 1:
            self.axis.plot(self.points.values[number], self.points.residuals, ".", color="0.7", ms=2.5, zorder=0)
        for at, name in enumerate(names):
            again = at // len(COLOURS)  # where colours start again they have the next style
            colour, style = COLOURS[at % len(COLOURS)], STYLES[(at + again) % len(STYLES)]
            for z, alpha in shades:
                low, high = (self.undo(mean[at] + side * z * scale[at]) for side in (-1, 1))
                self.axis.fill_between(x, low, high, color=colour, alpha=alpha, lw=0)
            self.axis.plot(x, self.undo(mean[at]), color=colour, ls=style, label=name)
        if len(mean) > 1:
            if is_few:
                self.axis.legend(fontsize="x-small", frameon=False)
            else:
                self._many_names(len(mean))
        elif self.points.residuals is not None:
            reach = max(self.bands) * scale
            self._cut(float(self.undo(mean - reach).min()), float(self.undo(mean + reach).max()))
        marks = np.unique(np.quantile(self.points.values[number], np.linspace(0, 1, 120), method="nearest"))
        self.axis.plot(
            marks, np.full(len(marks), 0.015), "|", color=INK, ms=5, transform=self.axis.get_xaxis_transform()
        )
        if effect.columns[number].is_date:
            _dates(self.axis.xaxis)
        self.axis.set(xlabel=effect.columns[number].name, ylabel=label)

    def _many_names(self, count: int) -> None:
        """Names of many levels above the curves, in a room that the layout does not take from the panel."""
        low, high = self.axis.get_ylim()
        columns = 3 if count <= 30 else 4
        rows = -(-count // columns)
        self.axis.set_ylim(low, high + 0.055 * rows / max(1 - 0.055 * rows, 0.3) * (high - low))
        legend = self.axis.legend(
            loc="upper center", ncols=columns, fontsize=5, frameon=False, labelspacing=0.2, columnspacing=1.0
        )
        legend.set_in_layout(False)

    def _cut(self, low: float, high: float) -> None:
        """End the panel before residuals far from the bands, and say how many are beyond."""
        room = BEYOND * (high - low)
        bottom, top = self.axis.get_ylim()
        self.axis.set_ylim(max(bottom, low - room), min(top, high + room))
        bottom, top = self.axis.get_ylim()
        residuals = np.asarray(self.points.residuals)
        beyond = int(np.sum((residuals < bottom) | (residuals > top)))
        if beyond:
            words = f"residuals beyond: {beyond}"
            self.axis.text(
                0.98, 0.98, words, ha="right", va="top", fontsize="x-small", color="0.4", transform=self.axis.transAxes
            )

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
        self._map(numbers)
        return has_line

    def deviations(self, numbers: list[int], label: str) -> None:
        """Standard deviation of a surface, before a link is undone."""
        first, second = (self.effect.axes[at] for at in numbers)
        scale = self.effect.scale.reshape(len(first), len(second))
        shade(
            self.axis,
            first,
            second,
            scale,
            label,
            DEVIATIONS,
            (float(scale.min()), float(scale.max())),
        )
        self._map(numbers)

    def _map(self, numbers: list[int]) -> None:
        """Data, labels and the scale of the axes."""
        first, second = (self.effect.columns[at] for at in numbers)
        mark(self.axis, *(self.points.values[at] for at in numbers))
        self.axis.set(xlabel=first.name, ylabel=second.name)
        self.axis.set_aspect(aspect_of(first.name, second.name, self.effect.axes[numbers[1]]))
        for column, own in ((first, self.axis.xaxis), (second, self.axis.yaxis)):
            if column.is_date:
                _dates(own)

    def levels(self, label: str) -> None:
        """Levels with intervals, in their order."""
        mean, scale = self.effect.mean.ravel(), self.effect.scale.ravel()
        place = np.arange(len(mean))
        for z, width in zip(self.bands, (2.5, 1.0), strict=False):
            low, high = (self.undo(mean + side * z * scale) for side in (-1, 1))
            self.axis.vlines(place, low, high, color=COLOURS[0], lw=width)
        self.axis.plot(place, self.undo(mean), "o", color=COLOURS[0], ms=4)
        few = place[:: -(-len(place) // MOST_NAMES)]  # all, or every second, or third
        names = _level_names(self.effect)
        self.axis.set_xticks(few, [names[at] for at in few], rotation=45 if len(place) > 6 else 0, fontsize="small")
        self.axis.set(xlabel=" at one sd of ".join(c.name for c in self.effect.columns), ylabel=label)


def _dates(axis: Any) -> None:
    """Days since 1970, which are matplotlib's dates, at round dates that do not overlap."""
    from matplotlib import dates

    own: Any = dates  # without annotations
    locator = own.AutoDateLocator(minticks=2, maxticks=5)
    axis.set_major_locator(locator)
    axis.set_major_formatter(own.ConciseDateFormatter(locator))


def _level_names(effect: Any) -> list[str]:
    found = next((column.levels for column in effect.columns if column.is_category), None)
    return [str(level) for level in found] if found else [""]
