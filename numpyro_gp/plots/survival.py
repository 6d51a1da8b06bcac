"""Survival curves with bands: the chance that nothing has happened yet."""

from collections.abc import Sequence

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_level, fail
from numpyro_gp.plots.style import Axes, axes_of, band, finish, look, vector
from numpyro_gp.posterior.prediction import Prediction


def survival(
    times: ArrayLike,
    prediction: Prediction | ArrayLike,
    *,
    names: Sequence[str] | None = None,
    level: float = 0.9,
    title: str = "",
    xlabel: str = "time",
    ylabel: str = "share without an event",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw survival curves: their means, and bands in which the curves themselves lie.

    Parameters
    ----------
    times : array (T,)
    prediction : Prediction of N rows, or array (S, T, N)
        A curve for each row; an array holds draws, as of `Prediction.survival_draws`.
    names : sequence of str, optional
        What each row is, for the legend.
    level : float
        Probability inside each band, at each time.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> times, rates = np.linspace(0.0, 5.0, 30), np.random.default_rng(0).gamma(20.0, 0.05, (40, 1, 2))
    >>> ax = ngp.plots.survival(times, np.exp(-rates * times[None, :, None]), names=["drug", "placebo"])
    >>> type(ax).__name__
    'Axes'
    """
    ax, x = axes_of(ax), vector("times", times)
    order, tail = np.argsort(x), 0.5 * (1 - check_level(level))
    fit = prediction if isinstance(prediction, Prediction) else None
    draws = np.asarray(prediction if fit is None else fit.survival_draws(x), float)
    if draws.ndim != 3 or draws.shape[1] != x.size:
        required = f"of shape (S, {x.size}, N), draws of a curve for each row"
        fail("prediction", required, f"shape {draws.shape}", "Pass prediction.survival_draws(times).")
    labels = [f"row {number}" for number in range(draws.shape[2])] if names is None else list(names)
    if len(labels) != draws.shape[2]:
        fail("names", f"{draws.shape[2]} names, one for each row", f"{len(labels)}", "Name each row once.")
    middle = draws.mean(0) if fit is None else np.asarray(fit.survival(x))
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    for number, label in enumerate(labels):
        style = look(number)
        band(ax, x[order], low[order, number], high[order, number], style["color"], 0.22, None)
        ax.plot(x[order], middle[order, number], lw=1.8, label=label, **style)
    ax.set(ylim=(0, 1.02), xlim=(x.min(), x.max()))
    if len(labels) > 1:
        ax.legend(fontsize="small", frameon=False, title=f"bands: {100 * level:g}%", title_fontsize="small")
    return finish(ax, title, xlabel, ylabel)
