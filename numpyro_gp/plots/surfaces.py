"""Functions of two inputs as maps: the mean with the data, and beside it the standard deviation."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_array, fail
from numpyro_gp.plots.style import INK, Axes, along, drawn_functions, finish, means_of
from numpyro_gp.posterior.prediction import Prediction

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

    x, y, order = _grid(X)
    if isinstance(prediction, Prediction):
        mean, _, has_its_scale = means_of(prediction, order.size)
        scale = np.sqrt(np.asarray(prediction.function_variance if has_its_scale else prediction.variance))
        words = "standard deviation" if has_its_scale else "standard deviation of new data"
    else:
        draws = drawn_functions("prediction", prediction, order.size)
        mean, scale, words = draws.mean(0), draws.std(0), "standard deviation"
    if axes is None:
        axes = plt.figure(figsize=(7.2, 2.9), layout="constrained").subplots(1, 2, sharex=True, sharey=True)
    first, second = axes
    ends = [mean.min(), mean.max()]
    places = targets = None
    if data is not None:
        places = _two_columns("data[0]", data[0])
        targets = along("data[1]", data[1], len(places))
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


def _grid(X: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Axes of a grid, and the row of each of its points ``(len(x), len(y))``."""
    rows = _two_columns("X", X)
    (x, at), (y, up) = (np.unique(column, return_inverse=True) for column in rows.T)
    order = np.full((len(x), len(y)), -1)
    order[at.reshape(-1), up.reshape(-1)] = np.arange(len(rows))
    if min(order.shape) < 2 or len(rows) != order.size or order.min() < 0:
        cure = "Predict at those of one: np.stack(np.meshgrid(east, north), -1).reshape(-1, 2)."
        fail("X", "the points of a grid, each once", f"{len(rows)} points with {len(x)} by {len(y)} values", cure)
    return x, y, order
