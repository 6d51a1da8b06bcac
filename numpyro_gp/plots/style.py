"""What all figures share: colours and marks that colour-blind and grey readers can tell apart, and checks of input."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_array, fail

if TYPE_CHECKING:  # the figures' own library is loaded when the first is drawn
    from matplotlib.axes import Axes as Axes
else:
    Axes = "matplotlib.axes.Axes"

Value = TypeVar("Value")
# Okabe & Ito (2008), in an order in which neighbours also differ in lightness.
COLOURS = ("#0072B2", "#D55E00", "#56B4E9", "#009E73", "#E69F00", "#CC79A7")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#222222"
DRAWS = 2000


def axes_of(ax: "Axes | None") -> "Axes":
    """The axes given, or new ones."""
    import matplotlib.pyplot as plt

    if ax is None:
        return plt.figure(figsize=(6.0, 3.6), layout="constrained").subplots()
    if not hasattr(ax, "fill_between"):
        fail("ax", "a matplotlib Axes", f"a {type(ax).__name__}", "Make one with fig, ax = plt.subplots().", TypeError)
    return ax


def finish(ax: "Axes", title: str, xlabel: str, ylabel: str) -> "Axes":
    """Labels and title; no frame at the top and right."""
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if title:
        ax.set_title(title, fontsize="medium", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def look(number: int) -> dict[str, Any]:
    """Colour and line style of one series."""
    return {"color": COLOURS[number % len(COLOURS)], "ls": STYLES[number % len(STYLES)]}


def band(
    ax: "Axes", x: np.ndarray, low: np.ndarray, high: np.ndarray, color: str, alpha: float, label: str | None
) -> None:
    """A shaded strip between two curves."""
    ax.fill_between(x, low, high, color=color, alpha=alpha, lw=0, label=label)


def named(values: Mapping[str, Value] | Value, argument: str) -> dict[str, Value]:
    """One value, or several by name."""
    if isinstance(values, Mapping):
        if not values:
            fail(argument, "a dictionary with an entry or more", "an empty one", 'Pass {"SVI": ...}.')
        return dict(values)
    return {"": values}


def _floats(argument: str, value: ArrayLike) -> np.ndarray:
    """A NumPy array of floats."""
    return np.asarray(check_array(argument, value), float)


def column(argument: str, X: ArrayLike) -> np.ndarray:
    """Inputs of one dimension as a vector."""
    x = _floats(argument, X)
    if x.ndim == 2 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 1 or not x.size:
        fail(argument, "of shape (N, 1) or (N,)", f"shape {x.shape}", "Pass one input column: X[:, :1].")
    return x


def along(argument: str, value: ArrayLike, size: int) -> np.ndarray:
    """A vector with one entry for each input."""
    array = _floats(argument, value)
    if array.shape != (size,):
        cure = "Pass a value for each row."
        fail(argument, f"of shape ({size},), one value for each input", f"shape {array.shape}", cure)
    return array


def draws_of(argument: str, value: ArrayLike, size: int) -> np.ndarray:
    """Draws ``(S, size)``; one draw may come without its axis."""
    array = _floats(argument, value)
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != size:
        cure = "Put the draws on the first axis, draws.T if they are on the last."
        fail(argument, f"of shape (S, {size}), draws on the first axis", f"shape {array.shape}", cure)
    return array


def vector(argument: str, value: ArrayLike) -> np.ndarray:
    """Draws of one number."""
    array = _floats(argument, value)
    if array.ndim != 1 or not array.size:
        cure = "Pass one entry at a time: draws[:, 0]."
        fail(argument, "of shape (S,), one number for each draw", f"shape {array.shape}", cure)
    return array


def bar(ax: "Axes", draws: np.ndarray, inside: float, height: float, **style: Any) -> None:
    """A horizontal bar over the middle ``inside`` percent of draws."""
    ends = np.percentile(draws, [50 - inside / 2, 50 + inside / 2])
    ax.plot(ends, [height] * 2, solid_capstyle="butt", **style)
