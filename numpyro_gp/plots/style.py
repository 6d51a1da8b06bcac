"""What all figures share: colours and marks that colour-blind and grey readers can tell apart, and checks of input."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_array, fail
from numpyro_gp.posterior.prediction import Prediction

if TYPE_CHECKING:  # the figures' own library is loaded when the first is drawn
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    Axes, Figure = "matplotlib.axes.Axes", "matplotlib.figure.Figure"

Value = TypeVar("Value")
# Okabe & Ito (2008). The first three, of three engines say, are far apart in hue and in lightness; neighbours also are.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#222222"
DRAWS = 2000
# Most marks at the values of a column, and names of levels below an axis.
MARKS, NAMES = 120, 12
# Letters of such names that have room beside each other in a panel.
LETTERS = 40


def axes_or_new(ax: "Axes | None") -> "Axes":
    """Return the axes that are given, or new ones."""
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(6.0, 3.6), layout="constrained").subplots() if ax is None else ax


def finish(ax: "Axes", title: str, xlabel: str, ylabel: str) -> "Axes":
    """Labels and title; no frame at the top and right."""
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if title:
        ax.set_title(title, fontsize="medium", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def line_look(number: int) -> dict[str, Any]:
    """Colour and line style of one series."""
    return {"color": COLOURS[number % len(COLOURS)], "ls": STYLES[number % len(STYLES)]}


def rug(ax: "Axes", values: np.ndarray) -> None:
    """Marks at the bottom, at values of the data themselves: all, or some from the least to the greatest."""
    marks = np.unique(np.quantile(values, np.linspace(0, 1, min(len(values), MARKS)), method="nearest"))
    ax.plot(marks, np.full(len(marks), 0.015), "|", color=INK, ms=5, transform=ax.get_xaxis_transform())


def names_below(ax: "Axes", names: Sequence[str]) -> None:
    """Levels at 0, 1, ... with their names: all, or every second, or third."""
    few = range(0, len(names), -(-len(names) // NAMES))
    is_long = len(names) > 6 or sum(len(names[at]) + 2 for at in few) > LETTERS
    slant: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if is_long else {}
    ax.set_xticks(few, [names[at] for at in few], fontsize="small", **slant)
    ax.set_xlim(-0.5, len(names) - 0.5)


def date_ticks(axis: Any) -> None:
    """Days since 1970, which are matplotlib's dates, at round dates that do not overlap."""
    from matplotlib import dates

    own: Any = dates  # without annotations
    locator = own.AutoDateLocator(minticks=2, maxticks=5)
    axis.set_major_locator(locator)
    axis.set_major_formatter(own.ConciseDateFormatter(locator))


def is_date(value: object) -> bool:
    """Whether these are NumPy's dates, or those of a table."""
    return np.asarray(value).dtype.kind == "M"


def named(values: Mapping[str, Value] | Value, argument: str) -> dict[str, Value]:
    """Return one value, or several by name, as a dictionary."""
    if isinstance(values, Mapping):
        if not values:
            fail(argument, "a dictionary with an entry or more", "an empty one", 'Pass {"SVI": ...}.')
        return dict(values)
    return {"": values}


def _floats(argument: str, value: ArrayLike) -> np.ndarray:
    """Return a NumPy array of floats; dates are days since 1970."""
    if is_date(value):
        return np.asarray(value).astype("datetime64[us]").astype(np.int64) / 86_400e6
    return np.asarray(check_array(argument, value), float)


def vector(argument: str, value: ArrayLike, required: str = "of shape (N, 1) or (N,)") -> np.ndarray:
    """Return one axis of numbers, which may be the only column of a matrix."""
    array = _floats(argument, value)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1 or not array.size:
        fail(argument, required, f"shape {array.shape}", f"Pass one column at a time: {argument}[:, 0].")
    return array


def along(argument: str, value: ArrayLike, size: int) -> np.ndarray:
    """Return a vector with one entry for each input."""
    array = _floats(argument, value)
    if array.shape != (size,):
        cure = "Pass a value for each row."
        fail(argument, f"of shape ({size},), one value for each input", f"shape {array.shape}", cure)
    return array


def drawn_functions(argument: str, value: ArrayLike, size: int) -> np.ndarray:
    """Return draws ``(S, size)``; one draw may come without its axis."""
    if hasattr(value, "predict"):
        cure = "Pass posterior.predict(key, X), or fit.predict(table)."
        fail(argument, "a prediction, or draws of a function", f"a {type(value).__name__}", cure, TypeError)
    array = np.atleast_2d(_floats(argument, value))
    if array.ndim != 2 or array.shape[1] != size:
        cure = "Put the draws on the first axis, draws.T if they are on the last."
        fail(argument, f"of shape (S, {size}), draws on the first axis", f"shape {array.shape}", cure)
    return array


def means_of(prediction: Prediction, size: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return means of new data and of the function, and whether the data scatter around it, with its scale."""
    mean, of_function = (along("prediction", x, size) for x in (prediction.mean, prediction.function_mean))
    width = float(np.sqrt(np.max(np.asarray(prediction.variance))))
    return mean, of_function, bool(np.abs(mean - of_function).max() < 1e-3 * width)


def band(ax: "Axes", x: np.ndarray, ends: Any, color: str, alpha: float = 1.0, **style: Any) -> None:
    """Fill what lies between two ends ``(2, N)``, without an edge."""
    ax.fill_between(x, *ends, color=color, alpha=alpha, lw=0, **style)


def bar(ax: "Axes", draws: np.ndarray, inside: float, height: float, **style: Any) -> None:
    """A horizontal bar over the middle ``inside`` percent of draws."""
    ends = np.percentile(draws, [50 - inside / 2, 50 + inside / 2])
    ax.plot(ends, [height] * 2, solid_capstyle="butt", **style)
