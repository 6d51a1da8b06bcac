"""Survival curves with bands: the chance that nothing has happened yet, beside what was observed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_level, fail
from numpyro_gp.plots.style import Axes, along, axes_or_new, band, finish, line_look, vector
from numpyro_gp.posterior.prediction import Prediction

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
    groups = None if data is None else _groups(data, len(labels))
    middle = draws.mean(0) if fit is None else np.asarray(fit.survival(x))
    ends = np.quantile(draws, [tail, 1 - tail], axis=0)
    for number, label in enumerate(labels):
        style = line_look(number)
        band(ax, x[order], ends[:, order, number], style["color"], 0.22)
        ax.plot(x[order], middle[order, number], lw=1.8, label=label, **style)
        if groups is not None:
            _kaplan_meier(ax, *groups[number], x.max(), style["color"])
    ax.set(ylim=(0, 1.02), xlim=(x.min(), x.max()))
    if len(labels) > 1 or groups is not None:
        lines, words = ax.get_legend_handles_labels()
        if groups is not None:
            lines += [Line2D([], [], color="0.4", lw=1.0), Line2D([], [], color="0.4", ls="none", marker="|", ms=7)]
            words += ["Kaplan-Meier", "censored"]
        heading: dict[str, Any] = {"title": f"bands: {100 * level:g}%", "title_fontsize": "small"}
        ax.legend(lines, words, fontsize="small", frameon=False, **heading)
    if groups is not None:
        _at_risk(ax, {label: observed for label, (observed, _) in zip(labels, groups, strict=True)})
    return finish(ax, title, xlabel, ylabel)


def _groups(data: Sequence[ArrayLike | None], count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Times and whether they are censored, for each row of the prediction."""
    if len(data) != 3 or data[0] is None:
        fail("data", "(observed, censored, rows)", f"{len(data)} entries", "Pass data=(weeks, censored, group).")
    observed = vector("data[0]", data[0])
    censored, rows = (
        np.zeros(observed.size) if one is None else along(f"data[{at}]", one, observed.size)
        for at, one in ((1, data[1]), (2, data[2]))
    )
    if not np.isin(rows, np.arange(count)).all():
        wrong = rows[~np.isin(rows, np.arange(count))][0]
        cure = "Say of each datum which row of the prediction it belongs to."
        fail("data[2]", f"rows of the prediction, 0 to {count - 1}", f"{wrong:g}", cure)
    return [(observed[rows == row], censored[rows == row] != 0) for row in range(count)]


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
