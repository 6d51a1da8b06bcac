"""Functions of one input: with bands and data, and layer by layer through a deep model."""

from collections.abc import Sequence

import numpy as np
from jax.scipy.special import ndtri

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_level, fail
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
    ax, x = axes_or_new(ax), vector("X", X)
    order = np.argsort(x)
    tail = 0.5 * (1 - check_level(level))
    name = f"{100 * level:g}%"
    if isinstance(prediction, Prediction):
        mean, of_function, has_its_scale = style.means_of(prediction, x.size)
        half = -float(ndtri(tail)) * np.sqrt(np.asarray(prediction.function_variance))
        wide = np.asarray(prediction.quantiles([tail, 1 - tail]))
        band(ax, x[order], wide[:, order], color, 0.16, label=f"new data, {name}")
        ends = np.stack([of_function - half, of_function + half]) if has_its_scale else None
    else:
        draws = style.drawn_functions("prediction", prediction, x.size)
        mean, ends = draws.mean(0), np.quantile(draws, [tail, 1 - tail], axis=0)
    if ends is not None:
        band(ax, x[order], ends[:, order], color, 0.38, label=f"function, {name}")
    ax.plot(x[order], mean[order], color=color, lw=1.8, label="mean")
    if truth is not None:
        ax.plot(x[order], along("truth", truth, x.size)[order], color=INK, lw=1.2, ls="--", label="truth")
    if data is not None:
        points = vector("data[0]", data[0])
        targets = along("data[1]", data[1], points.size)
        ax.plot(points, targets, "o", ms=3.2, mfc="white", mec=INK, mew=0.8, label="data")
    if inducing is not None:
        ticks = vector("inducing", inducing)
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
    ax, x = axes_or_new(ax), vector("X", X)
    order = np.argsort(x)
    if not len(values):
        fail("values", "one array for each layer", "none", "Pass [draws_of_layer_1, draws_of_layer_2].")
    labels = [f"layer {number + 1}" for number in range(len(values))] if names is None else list(names)
    if len(labels) != len(values):
        fail("names", f"{len(values)} names, one for each layer", f"{len(labels)}", "Pass as many names as values.")
    for number, raw in enumerate(values):
        sample = style.drawn_functions(f"values[{number}]", raw, x.size)[:, order]
        low, high = sample.min(), sample.max()
        strip = number + 0.9 * (sample - low) / ((high - low) or 1.0)
        line = line_look(number)
        band(ax, x[order], np.quantile(strip, [0.05, 0.95], axis=0), line["color"], 0.25)
        ax.plot(x[order], strip[:draws].T, color=line["color"], lw=0.6, alpha=0.7)
        ax.plot(x[order], strip.mean(0), lw=2, **line)
        ax.text(1.01, number + 0.45, f"{low:.2g} to {high:.2g}", transform=ax.get_yaxis_transform(), fontsize="small")
        ax.axhline(number + 0.95, color="0.85", lw=0.8)
    ax.set_yticks([number + 0.45 for number in range(len(values))], labels)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.05, len(values) - 0.05)
    return finish(ax, title, xlabel, "")
