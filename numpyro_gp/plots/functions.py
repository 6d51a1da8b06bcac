"""Functions of one input, with bands and data or layer by layer through a deep model; functions of two as maps."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jax.scipy.special import ndtri

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_array, check_level, fail
from numpyro_gp.plots import style
from numpyro_gp.plots.style import COLOURS, INK, Axes, along, axes_or_new, band, finish, line_look, vector
from numpyro_gp.posterior.prediction import Prediction


def function(
    X: ArrayLike,
    prediction: Prediction | ArrayLike,
    *,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    truth: ArrayLike | None = None,
    inducing: ArrayLike | None = None,
    level: float = 0.9,
    color: str = COLOURS[0],
    title: str = "",
    xlabel: str = "input x",
    ylabel: str = "output y",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a function of one input: its mean, a band for the function, a wider one for new data, and the data.

    Where data do not scatter around the function itself, as counts around ``exp(f)``, the mean is that of new data and
    there is no band of the function, which has another scale.

    Parameters
    ----------
    X : array (N, 1) or (N,)
        Inputs; drawn in ascending order. Those of the figure may be dates, ``np.datetime64``.
    prediction : Prediction or array (S, N)
        A `Prediction` at ``X``, or draws of the function, which give one band: of the mean of counts
        ``jnp.exp(posterior.function_draws(key, X))``.
    data : pair of arrays, optional
        Inputs ``(N', 1)`` and targets ``(N',)`` of the training data.
    truth : array (N,), optional
        The true function at ``X``, where it is known.
    inducing : array (M, 1), optional
        Inducing inputs, as ticks at the bottom.
    level : float
        Probability inside each band.
    title, xlabel, ylabel : str
        Give the units in the labels: ``ylabel="temperature [K]"``.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> X, draws = np.linspace(0.0, 1.0, 20)[:, None], np.random.default_rng(0).normal(size=(30, 20))
    >>> ax = ngp.plots.function(X, draws, xlabel="time [h]", ylabel="temperature [K]")
    >>> type(ax).__name__
    'Axes'
    """
    ax, x = style.axes_or_new(ax), style.vector("X", X)
    order = np.argsort(x)
    tail = 0.5 * (1 - check_level(level))
    name = f"{100 * level:g}%"
    if isinstance(prediction, Prediction):
        mean, of_function, has_its_scale = style.means_of(prediction, x.size)
        half = -float(ndtri(tail)) * np.sqrt(np.asarray(prediction.function_variance))
        wide = np.asarray(prediction.quantiles([tail, 1 - tail]))
        style.band(ax, x[order], wide[:, order], color, 0.16, label=f"new data, {name}")
        ends = np.stack([of_function - half, of_function + half]) if has_its_scale else None
    else:
        draws = style.drawn_functions("prediction", prediction, x.size)
        mean, ends = draws.mean(0), np.quantile(draws, [tail, 1 - tail], axis=0)
    if ends is not None:
        style.band(ax, x[order], ends[:, order], color, 0.38, label=f"function, {name}")
    ax.plot(x[order], mean[order], color=color, lw=1.8, label="mean")
    if truth is not None:
        ax.plot(x[order], style.along("truth", truth, x.size)[order], color=INK, lw=1.2, ls="--", label="truth")
    if data is not None:
        points = style.vector("data[0]", data[0])
        targets = style.along("data[1]", data[1], points.size)
        ax.plot(points, targets, "o", ms=3.2, mfc="white", mec=INK, mew=0.8, label="data")
    if inducing is not None:
        ticks = style.vector("inducing", inducing)
        ax.plot(ticks, np.full(ticks.shape, 0.02), "|", ms=8, color=INK, transform=ax.get_xaxis_transform())
    if style.is_date(X):
        style.date_ticks(ax.xaxis)
    return finish(ax, title, xlabel, ylabel)


def layers(
    X: ArrayLike,
    values: Sequence[ArrayLike],
    *,
    names: Sequence[str] | None = None,
    draws: int = 5,
    title: str = "What each layer makes of the input",
    xlabel: str = "input x",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw how a deep model propagates one input: each layer's output as a function of ``x``, stacked upwards.

    Every layer is drawn in its own strip, scaled to the strip: its mean, a 90% band and a few draws. A strip
    whose draws jump together is a fold; a strip that is flat has lost the input.

    Parameters
    ----------
    X : array (N, 1) or (N,)
    values : sequence of arrays (S, N)
        Draws of each layer's output at ``X`` (one output column of it), first layer first.
    names : sequence of str, optional
    draws : int
        Draws shown as thin lines.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> X, draws = np.linspace(0.0, 1.0, 20)[:, None], np.random.default_rng(0).normal(size=(6, 20))
    >>> ax = ngp.plots.layers(X, [draws, draws**2])
    >>> type(ax).__name__
    'Axes'
    """
    ax, x = style.axes_or_new(ax), style.vector("X", X)
    order = np.argsort(x)
    labels = [f"layer {number + 1}" for number in range(len(values))] if names is None else list(names)
    for number, raw in enumerate(values):
        sample = style.drawn_functions(f"values[{number}]", raw, x.size)[:, order]
        low, high = sample.min(), sample.max()
        strip = number + 0.9 * (sample - low) / ((high - low) or 1.0)
        line = style.line_look(number)
        style.band(ax, x[order], np.quantile(strip, [0.05, 0.95], axis=0), line["color"], 0.25)
        ax.plot(x[order], strip[:draws].T, color=line["color"], lw=0.6, alpha=0.7)
        ax.plot(x[order], strip.mean(0), lw=2, **line)
        ax.text(1.01, number + 0.45, f"{low:.2g} to {high:.2g}", transform=ax.get_yaxis_transform(), fontsize="small")
        ax.axhline(number + 0.95, color="0.85", lw=0.8)
    ax.set_yticks([number + 0.45 for number in range(len(values))], labels)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.05, len(values) - 0.05)
    return finish(ax, title, xlabel, "")


# --------------------------------------------------------------------------------------
# Functions of two inputs as maps: the mean with the data, and beside it the standard deviation.


# Units of the second axis in units of the first.
Aspect = float | Literal["auto", "equal"]
# Colours of values, of what lies around zero, and of standard deviations: each also from dark to light in grey.
VALUES, AROUND_ZERO, DEVIATIONS = "cividis", "PuOr_r", "YlOrBr"
# Names of the columns of a map, whose two axes have one scale.
LONGITUDES, LATITUDES = ("lon", "long", "lng", "longitude"), ("lat", "latitude")
EASTINGS, NORTHINGS = ("x", "east", "easting", "eastings"), ("y", "north", "northing", "northings")


def surface(
    X: ArrayLike,
    prediction: Prediction | ArrayLike,
    *,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    title: str = "",
    xlabel: str = "first input",
    ylabel: str = "second input",
    label: str = "output y",
    aspect: Aspect = "auto",
    axes: "Sequence[Axes] | None" = None,
) -> "tuple[Axes, Axes]":
    """Draw a function of two inputs on a grid: its mean with the data, and its standard deviation with their places.

    Where data do not scatter around the function itself, as counts around ``exp(f)``, both are of new data.

    Parameters
    ----------
    X : array (N, 2)
        The points of a grid, in any order: ``np.stack(np.meshgrid(east, north), -1).reshape(-1, 2)``.
    prediction : Prediction or array (S, N)
        A `Prediction` at ``X``, or draws of the function.
    data : pair of arrays, optional
        Inputs ``(N', 2)`` and targets ``(N',)``, drawn in the colours of the scale.
    title, xlabel, ylabel, label : str
        ``label`` is that of the scale: give its units, ``label="zinc [ppm]"``.
    aspect : "auto", "equal" or float
        Of the axes: "equal" for a map in kilometres, ``1 / cos(latitude)`` for one in degrees.
    axes : two Axes, optional
        For the mean and the standard deviation.

    Returns
    -------
    tuple of two matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> X = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0)), -1).reshape(-1, 2)
    >>> draws = np.random.default_rng(0).normal(size=(30, 20))
    >>> mean, deviation = ngp.plots.surface(X, draws, xlabel="east [km]", ylabel="north [km]", label="zinc [ppm]")
    >>> deviation.get_title(loc="left")
    'standard deviation'
    """
    import matplotlib.pyplot as plt

    rows = _two_columns("X", X)
    (x, at), (y, up) = (np.unique(column, return_inverse=True) for column in rows.T)
    order = np.full((len(x), len(y)), -1)  # the row of each point of the grid
    order[at.reshape(-1), up.reshape(-1)] = np.arange(len(rows))
    if min(order.shape) < 2 or len(rows) != order.size or order.min() < 0:
        cure = "Predict at those of one: np.stack(np.meshgrid(east, north), -1).reshape(-1, 2)."
        fail("X", "the points of a grid, each once", f"{len(rows)} points with {len(x)} by {len(y)} values", cure)
    if isinstance(prediction, Prediction):
        mean, _, has_its_scale = style.means_of(prediction, order.size)
        scale = np.sqrt(np.asarray(prediction.function_variance if has_its_scale else prediction.variance))
        words = "standard deviation" if has_its_scale else "standard deviation of new data"
    else:
        draws = style.drawn_functions("prediction", prediction, order.size)
        mean, scale, words = draws.mean(0), draws.std(0), "standard deviation"
    if axes is None:
        axes = plt.figure(figsize=(7.2, 2.9), layout="constrained").subplots(1, 2, sharex=True, sharey=True)
    first, second = axes
    ends = [mean.min(), mean.max()]
    places = targets = None
    if data is not None:
        places = _two_columns("data[0]", data[0])
        targets = style.along("data[1]", data[1], len(places))
        ends = [min(ends[0], targets.min()), max(ends[1], targets.max())]
    shade(first, x, y, mean[order], label, VALUES, (float(ends[0]), float(ends[1])))
    shade(second, x, y, scale[order], label, DEVIATIONS, (float(scale.min()), float(scale.max())))
    if places is not None:
        options: dict[str, Any] = {"vmin": ends[0], "vmax": ends[1], "cmap": VALUES, "edgecolors": "white"}
        first.scatter(places[:, 0], places[:, 1], 16, targets, linewidths=0.6, **options)
        mark(second, places[:, 0], places[:, 1])
    for axis, heading in ((first, title or "mean"), (second, words)):
        axis.set_aspect(aspect)
        finish(axis, heading, xlabel, ylabel)
    return first, second


def shade(
    axis: "Axes", x: np.ndarray, y: np.ndarray, values: np.ndarray, label: str, colours: str, ends: tuple[float, float]
) -> None:
    """Colours between the points of a grid, values ``(len(x), len(y))``, with their scale."""
    options: dict[str, Any] = {"shading": "gouraud", "rasterized": True, "cmap": colours}
    image = axis.pcolormesh(x, y, values.T, vmin=ends[0], vmax=max(ends[1], ends[0] + 1e-12), **options)
    bar = axis.figure.colorbar(image, ax=axis, label=label)

    def as_tall(own: Any, _: object) -> Any:
        """The place of the scale, as tall as a map is drawn, which may be less than its panel."""
        axis.apply_aspect()
        place, drawn = own.get_position(original=True), axis.get_position()
        return type(place).from_bounds(place.x0, drawn.y0, place.width, drawn.height)

    bar.ax.set_axes_locator(as_tall)


def mark(axis: "Axes", x: np.ndarray, y: np.ndarray) -> None:
    """Places of data."""
    axis.plot(x, y, "o", ms=2.4, mfc="none", mec=INK, mew=0.5, alpha=0.7)


def aspect_of(first: str, second: str, values: np.ndarray) -> Aspect:
    """How long a unit of the second axis is in units of the first: on a map they have one scale, also in degrees."""
    names = first.lower(), second.lower()
    if names[0] in LONGITUDES and names[1] in LATITUDES:
        return 1 / max(math.cos(math.radians(float(np.mean(values)))), 0.05)
    return "equal" if names[0] in EASTINGS and names[1] in NORTHINGS else "auto"


def _two_columns(argument: str, X: ArrayLike) -> np.ndarray:
    found = np.asarray(check_array(argument, X), float)
    if found.ndim != 2 or found.shape[1] != 2 or not len(found):
        fail(argument, "of shape (N, 2)", f"shape {found.shape}", "Pass two input columns: X[:, :2].")
    return found


# --------------------------------------------------------------------------------------
# Survival curves with bands: the chance that nothing has happened yet, beside what was observed.


# Points from the axis down to the heading of the numbers at risk, and from row to row.
BELOW, ROW = 34, 12


def survival(
    times: ArrayLike,
    prediction: Prediction | ArrayLike,
    *,
    names: Sequence[str] | None = None,
    data: Sequence[ArrayLike | None] | None = None,
    level: float = 0.9,
    title: str = "",
    xlabel: str = "time",
    ylabel: str = "share without an event",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw survival curves: their means, bands in which the curves themselves lie, and what the data say by themselves.

    Parameters
    ----------
    times : array (T,)
    prediction : Prediction of N rows, or array (S, T, N)
        A curve for each row; an array holds draws, as of `Prediction.survival_draws`.
    names : sequence of str, optional
        What each row is, for the legend.
    data : triple of arrays, optional
        ``(observed, censored, rows)``, each ``(D,)``: times of an event or of the end of the observation, whether it
        was the end (None: never), and the row of the prediction that each belongs to (None, where there is one). Each
        row then has the steps of Kaplan and Meier (1958) with a mark at each censored time, and below the axis how many
        of the data are at risk: seen up to that time, without an event before it.
    level : float
        Probability inside each band, at each time.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> times, rates = np.linspace(0.0, 5.0, 30), np.random.default_rng(0).gamma(20.0, 0.05, (40, 1, 2))
    >>> curves = np.exp(-rates * times[None, :, None])
    >>> ax = ngp.plots.survival(times, curves, names=["drug", "placebo"], data=([1.0, 2.5, 0.5], None, [0, 0, 1]))
    >>> type(ax).__name__
    'Axes'
    """
    from matplotlib.lines import Line2D

    ax, x = axes_or_new(ax), vector("times", times)
    order, tail = np.argsort(x), 0.5 * (1 - check_level(level))
    fit = prediction if isinstance(prediction, Prediction) else None
    draws = np.asarray(prediction if fit is None else fit.survival_draws(x), float)
    if draws.ndim != 3 or draws.shape[1] != x.size:
        required = f"of shape (S, {x.size}, N), draws of a curve for each row"
        fail("prediction", required, f"shape {draws.shape}", "Pass prediction.survival_draws(times).")
    labels = [f"row {number}" for number in range(draws.shape[2])] if names is None else list(names)
    if len(labels) != draws.shape[2]:
        fail("names", f"{draws.shape[2]} names, one for each row", f"{len(labels)}", "Name each row once.")
    groups = []  # times and whether they are censored, for each row of the prediction
    if data is not None:
        if len(data) != 3 or data[0] is None:
            fail("data", "(observed, censored, rows)", f"{len(data)} entries", "Pass data=(weeks, censored, group).")
        observed, nothing = vector("data[0]", data[0]), np.zeros(np.size(data[0]))
        censored, rows = (
            along(f"data[{at}]", nothing if one is None else one, observed.size) for at, one in enumerate(data) if at
        )
        if wrong := sorted({*rows.tolist()} - {*range(len(labels))}):
            cure = "Say of each datum which row of the prediction it belongs to."
            fail("data[2]", f"rows of the prediction, 0 to {len(labels) - 1}", f"{wrong[0]:g}", cure)
        groups = [(observed[rows == row], censored[rows == row] != 0) for row in range(len(labels))]
    middle = draws.mean(0) if fit is None else np.asarray(fit.survival(x))
    ends = np.quantile(draws, [tail, 1 - tail], axis=0)
    for number, label in enumerate(labels):
        style = line_look(number)
        band(ax, x[order], ends[:, order, number], style["color"], 0.22)
        ax.plot(x[order], middle[order, number], lw=1.8, label=label, **style)
        if groups:
            _kaplan_meier(ax, *groups[number], x.max(), style["color"])
    ax.set(ylim=(0, 1.02), xlim=(x.min(), x.max()))
    if len(labels) > 1 or groups:
        lines, words = ax.get_legend_handles_labels()
        if groups:
            lines += [Line2D([], [], color="0.4", lw=1.0), Line2D([], [], color="0.4", ls="none", marker="|", ms=7)]
            words += ["Kaplan-Meier", "censored"]
        heading: dict[str, Any] = {"title": f"bands: {100 * level:g}%", "title_fontsize": "small"}
        ax.legend(lines, words, fontsize="small", frameon=False, **heading)
    if groups:
        _at_risk(ax, {label: observed for label, (observed, _) in zip(labels, groups, strict=True)})
    return finish(ax, title, xlabel, ylabel)


def _kaplan_meier(ax: "Axes", observed: np.ndarray, censored: np.ndarray, end: float, color: str) -> None:
    """Draw the product of ``1 - events / at risk`` up to the last observation, with a mark at each censored time."""
    if not observed.size:
        return
    times = np.unique(observed[~censored])
    at_risk = np.sum(observed >= times[:, None], axis=1)
    events = np.sum((observed == times[:, None]) & ~censored, axis=1)
    share = np.cumprod(1 - events / np.maximum(at_risk, 1))
    last = max(min(observed.max(), end), times.max(initial=0.0))
    x, y = np.r_[0.0, times, last], np.r_[1.0, share, share[-1:] if share.size else 1.0]
    ax.plot(x, y, color=color, lw=1.0, drawstyle="steps-post", label="_Kaplan-Meier")
    marks = observed[censored]
    heights = np.r_[1.0, share][np.searchsorted(times, marks, side="right")]
    ax.plot(marks, heights, "|", color=color, ms=7, mew=1.0, label="_censored")


def _at_risk(ax: "Axes", groups: dict[str, np.ndarray]) -> None:
    """Below the ticks of the axis, how many are observed up to then or longer."""
    low, high = ax.get_xlim()
    ticks = [tick for tick in ax.get_xticks() if low <= tick <= high]
    ax.set_xticks(ticks)
    place: dict[str, Any] = {"textcoords": "offset points", "fontsize": "small", "va": "top", "annotation_clip": False}
    left: dict[str, Any] = {"xycoords": "axes fraction", "ha": "right"} | place
    ax.annotate("number at risk", (0.0, 0.0), (-14, -BELOW), **left)
    for number, (name, observed) in enumerate(groups.items(), start=1):
        down = -BELOW - number * ROW
        ax.annotate(name, (0.0, 0.0), (-14, down), **left)
        for tick in ticks:
            count = str(int(np.sum(observed >= tick)))
            ax.annotate(count, (tick, 0.0), (0, down), xycoords=("data", "axes fraction"), ha="center", **place)
