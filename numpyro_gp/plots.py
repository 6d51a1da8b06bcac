"""Figures of a fit: functions with bands, calibration, hyper-parameters, convergence, particles, deep layers.

Each function draws one thing on one matplotlib ``Axes`` (a new one unless ``ax`` is given) and returns it, so
that a figure is composed as usual: ``fig, axes = plt.subplots(1, 3)``. Colours are those of Okabe and Ito, told
apart by colour-blind readers; series also differ in line style and marker, so that a grey print can be
read. Matplotlib is imported when a figure is drawn, not with the library.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.posterior import Posterior
from numpyro_gp.prediction import Prediction

__all__ = ["COLOURS", "STYLES", "calibration", "convergence", "function", "hyperparameters", "layers", "particles"]

# Okabe & Ito (2008), in an order in which neighbours also differ in lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#222222"
DRAWS = 2000


def function(
    X: ArrayLike,
    prediction: Prediction | ArrayLike,
    *,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    truth: ArrayLike | None = None,
    inducing: ArrayLike | None = None,
    level: float = 0.95,
    color: str = COLOURS[0],
    title: str = "",
    xlabel: str = "input x",
    ylabel: str = "output y",
    ax: Any = None,
) -> Any:
    """A function of one input: its mean, a band for the function, a wider one for new data, and the data.

    Parameters
    ----------
    X : array (N, 1) or (N,)
        Inputs; drawn in ascending order.
    prediction : Prediction or array (S, N)
        A `Prediction` at ``X``, or draws of the function, which give one band.
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
    """
    ax = _axes(ax)
    x = _column("X", X)
    order = np.argsort(x)
    tail = 0.5 * (1 - _probability("level", level))
    name = f"{100 * level:g}%"
    if isinstance(prediction, Prediction):
        mean = _along("prediction", prediction.function_mean, x.size)
        half = -_normal_quantile(tail) * np.sqrt(np.asarray(prediction.function_variance))
        low, high = mean - half, mean + half
        wide_low, wide_high = np.asarray(prediction.quantiles([tail, 1 - tail]))
        _band(ax, x[order], wide_low[order], wide_high[order], color, 0.16, f"new data, {name}")
    else:
        draws = _draws("prediction", prediction, x.size)
        mean, (low, high) = draws.mean(0), np.quantile(draws, [tail, 1 - tail], axis=0)
    _band(ax, x[order], low[order], high[order], color, 0.38, f"function, {name}")
    ax.plot(x[order], mean[order], color=color, lw=1.8, label="mean")
    if truth is not None:
        ax.plot(x[order], _along("truth", truth, x.size)[order], color=INK, lw=1.2, ls="--", label="truth")
    if data is not None:
        points = _column("data[0]", data[0])
        targets = _along("data[1]", data[1], points.size)
        ax.plot(points, targets, "o", ms=3.2, mfc="white", mec=INK, mew=0.8, label="data")
    if inducing is not None:
        ticks = _column("inducing", inducing)
        ax.plot(ticks, np.full(ticks.shape, 0.02), "|", ms=8, color=INK, transform=ax.get_xaxis_transform())
    return _finish(ax, title, xlabel, ylabel)


def calibration(
    predictions: Mapping[str, Any] | ArrayLike | Prediction,
    y: ArrayLike | None = None,
    *,
    title: str = "Calibration of the predictions",
    ax: Any = None,
) -> Any:
    """Reliability: how often data fall below the predicted quantiles, against how often they should.

    On the diagonal the predictions are right; an S that is flat in the middle (data too often far out) is
    overconfident. The grey band holds 95% of the curves of perfectly calibrated predictions of as many data
    (``sqrt(log(2 / 0.05) / (2 N))`` on either side, Massart 1990).

    Parameters
    ----------
    predictions : dict by name of (or one) Prediction or array (N,)
        Predictions, with their data ``y``; or PIT values (`ngp.metrics.pit_samples`).
    y : array (N,), optional
        Data, needed where a `Prediction` is given.
    """
    ax = _axes(ax)
    values = {name: _pit(name, one, y) for name, one in _named(predictions, "predictions").items()}
    least = min(pit.size for pit in values.values())
    width = math.sqrt(math.log(2 / 0.05) / (2 * least))
    line = np.linspace(0, 1, 201)
    ax.fill_between(
        line, np.maximum(line - width, 0), np.minimum(line + width, 1), color="0.85", lw=0, label="95% if calibrated"
    )
    ax.plot(line, line, color=INK, lw=1)
    for number, (name, pit) in enumerate(values.items()):
        share = np.searchsorted(np.sort(pit), line, side="right") / pit.size
        ax.plot(line, share, drawstyle="steps-post", lw=1.6, label=name, **_look(number))
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(loc="lower right", fontsize="small", frameon=False)
    return _finish(ax, title, "predicted probability", "share of data below the quantile")


def hyperparameters(
    posteriors: Mapping[str, Any],
    site: str,
    *,
    truth: float | None = None,
    prior: Any = None,
    key: Array | None = None,
    title: str = "",
    xlabel: str = "",
    ax: Any = None,
) -> Any:
    """The posterior of one hyper-parameter under several engines, side by side.

    Each engine has a row: its density, the 95% interval as a thin and the 50% interval as a thick bar, the mean
    as a marker. Densities are scaled to their rows: compare the bars. Fewer than 200 draws (particles)
    are shown as ticks, without a smoothed density they cannot support.
    A point estimate has a marker alone.

    Parameters
    ----------
    posteriors : dict by engine
        `Posterior` values, or arrays ``(S,)`` of draws.
    site : str
        Name of the site, which also labels the axis. A vector is refused: pass its entries as arrays.
    truth : float, optional
        Value the data were simulated with: a dashed line.
    prior : numpyro distribution, optional
        Its density is drawn in grey as the last row.
    key : PRNG key, optional
        Needed where a variational `Posterior` draws its values.
    """
    ax = _axes(ax)
    rows = {name: _site_draws(name, one, site, key) for name, one in posteriors.items()}
    span = _span(list(rows.values()), truth)
    grid = np.linspace(*span, 300)
    labels = list(rows)
    for number, draws in enumerate(rows.values()):
        _row(ax, draws, -1.25 * number, grid, _look(number)["color"], MARKERS[number % len(MARKERS)])
    if prior is not None:
        inside = np.asarray(prior.support(jnp.asarray(grid)))
        density = np.zeros_like(grid)
        density[inside] = np.exp(np.asarray(prior.log_prob(jnp.asarray(grid[inside]))))
        base = -1.25 * len(rows)
        ax.fill_between(grid, base, base + density / (density.max() or 1.0), color="0.8", lw=0)
        labels.append("prior")
    if truth is not None:
        ax.axvline(truth, color=INK, ls="--", lw=1.2, label="truth", zorder=1)
    ax.set_yticks([-1.25 * number + 0.3 for number in range(len(labels))], labels)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=span, ylim=(-1.25 * len(labels) + 0.85, 1.15))
    return _finish(ax, title, xlabel or site, "")


def convergence(
    losses: Mapping[str, ArrayLike] | ArrayLike,
    *,
    window: int | None = None,
    title: str = "Convergence",
    ylabel: str = "loss (minus the bound) [nats]",
    ax: Any = None,
) -> Any:
    """Loss of every step (faint) and its running median (strong).

    Parameters
    ----------
    losses : dict by name of (or one) array (steps,)
    window : int, optional
        Steps in the running median; 1/50 of the run by default.

    Notes
    -----
    The vertical axis shows the last 95% of each run: the first steps would squash the rest.
    """
    ax = _axes(ax)
    limits = []
    for number, (name, run) in enumerate(_named(losses, "losses").items()):
        loss = np.asarray(run, float)
        if loss.ndim != 1 or loss.size < 2:
            fail(f"losses[{name!r}]", "of shape (steps,), two or more", f"{loss.shape}", "Pass result.losses.")
        size = min(window or max(1, loss.size // 50), loss.size)
        smooth = np.median(np.lib.stride_tricks.sliding_window_view(loss, size), axis=1)
        steps, look = np.arange(1, loss.size + 1), _look(number)
        if size > 1:
            ax.plot(steps, loss, color=look["color"], lw=0.6, alpha=0.3)
        ax.plot(steps[size - 1 :], smooth, lw=1.8, label=name or None, **look)
        late = loss[loss.size // 20 :]
        limits.append((np.nanmin(late), np.nanmax(late)))
    low, high = min(a for a, _ in limits), max(b for _, b in limits)
    margin = 0.05 * (high - low) or 1.0
    if np.isfinite([low, high]).all():
        ax.set_ylim(low - margin, high + margin)
    if isinstance(losses, Mapping):
        ax.legend(fontsize="small", frameon=False)
    return _finish(ax, title, "step", ylabel)


def particles(
    values: Mapping[str, ArrayLike],
    reference: Mapping[str, ArrayLike] | None = None,
    *,
    title: str = "Spread of the particles",
    ax: Any = None,
) -> Any:
    """Where particles stand, one row for each quantity, against draws of a sampler.

    Every row is shifted by the mean of the reference and divided by its standard deviation (without one, by those of
    the particles), so that all quantities share one axis without units. Particles inside much less than
    the grey bars (68% and 95% of the reference) have collapsed.

    Parameters
    ----------
    values : dict by name of arrays (S,)
        Particles.
    reference : dict by name of arrays (S',), optional
        Draws of the same quantities, of NUTS for instance.
    """
    ax = _axes(ax)
    for number, (name, raw) in enumerate(values.items()):
        own = _vector(f"values[{name!r}]", raw)
        if reference is not None and name not in reference:
            fail("reference", f"a dictionary with {name!r}", f"{sorted(reference)}", "Pass the names in values.")
        other = own if reference is None else _vector(f"reference[{name!r}]", reference[name])
        center, spread = other.mean(), other.std() or 1.0
        if reference is not None:
            scaled = (other - center) / spread
            for inside, width, shade in ((95, 4, "0.8"), (68, 10, "0.65")):
                ends = np.percentile(scaled, [50 - inside / 2, 50 + inside / 2])
                label = f"reference, {inside}%" if number == 0 else None
                ax.plot(ends, [-number] * 2, lw=width, color=shade, solid_capstyle="butt", zorder=1, label=label)
        scaled = (own - center) / spread
        label = "particle" if number == 0 else None
        ax.plot(scaled, np.full(own.size, -number), "o", ms=5, mfc="none", mec=COLOURS[0], mew=1.2, label=label)
    ax.axvline(0, color=INK, lw=0.8, ls=":", zorder=0)
    ax.set_yticks(-np.arange(len(values)), list(values))
    ax.set_ylim(-len(values) + 0.4, 0.6)
    ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    unit = "particles" if reference is None else "reference"
    return _finish(ax, title, f"standardised by the {unit}", "")


def layers(
    X: ArrayLike,
    values: Sequence[ArrayLike],
    *,
    names: Sequence[str] | None = None,
    draws: int = 5,
    title: str = "What each layer makes of the input",
    xlabel: str = "input x",
    ax: Any = None,
) -> Any:
    """How a deep model propagates one input: each layer's output as a function of ``x``, stacked upwards.

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
    """
    ax = _axes(ax)
    x = _column("X", X)
    order = np.argsort(x)
    if not len(values):
        fail("values", "one array for each layer", "none", "Pass [draws_of_layer_1, draws_of_layer_2].")
    labels = [f"layer {number + 1}" for number in range(len(values))] if names is None else list(names)
    if len(labels) != len(values):
        fail("names", f"{len(values)} names, one for each layer", f"{len(labels)}", "Pass as many names as values.")
    for number, raw in enumerate(values):
        sample = _draws(f"values[{number}]", raw, x.size)[:, order]
        low, high = sample.min(), sample.max()
        strip = number + 0.9 * (sample - low) / ((high - low) or 1.0)
        look = _look(number)
        edges = np.quantile(strip, [0.05, 0.95], axis=0)
        _band(ax, x[order], edges[0], edges[1], look["color"], 0.25, None)
        ax.plot(x[order], strip[:draws].T, color=look["color"], lw=0.6, alpha=0.7)
        ax.plot(x[order], strip.mean(0), lw=2, **look)
        ax.text(1.01, number + 0.45, f"{low:.2g} to {high:.2g}", transform=ax.get_yaxis_transform(), fontsize="small")
        ax.axhline(number + 0.95, color="0.85", lw=0.8)
    ax.set_yticks([number + 0.45 for number in range(len(values))], labels)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.05, len(values) - 0.05)
    return _finish(ax, title, xlabel, "")


# ---------------------------------------------------------------------------------------------- pieces


def _axes(ax: Any) -> Any:
    import matplotlib.pyplot as plt

    if ax is None:
        return plt.subplots(figsize=(6.0, 3.6), layout="constrained")[1]
    if not hasattr(ax, "fill_between"):
        fail("ax", "a matplotlib Axes", f"a {type(ax).__name__}", "E.g. fig, ax = plt.subplots().", TypeError)
    return ax


def _finish(ax: Any, title: str, xlabel: str, ylabel: str) -> Any:
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if title:
        ax.set_title(title, fontsize="medium", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _look(number: int) -> dict[str, Any]:
    """Colour and line style of one series."""
    return {"color": COLOURS[number % len(COLOURS)], "ls": STYLES[number % len(STYLES)]}


def _band(
    ax: Any, x: np.ndarray, low: np.ndarray, high: np.ndarray, color: str, alpha: float, label: str | None
) -> None:
    ax.fill_between(x, low, high, color=color, alpha=alpha, lw=0, label=label)


def _named(values: Any, argument: str) -> dict[str, Any]:
    """One value, or several by name."""
    if isinstance(values, Mapping):
        if not values:
            fail(argument, "a dictionary with an entry or more", "an empty one", 'E.g. {"SVI": ...}.')
        return dict(values)
    return {"": values}


def _column(argument: str, X: ArrayLike) -> np.ndarray:
    """Inputs of one dimension as a vector."""
    x = np.asarray(X, float)
    if x.ndim == 2 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 1 or not x.size:
        fail(argument, "of shape (N, 1) or (N,)", f"shape {x.shape}", "Pass one input column, e.g. X[:, :1].")
    return x


def _along(argument: str, value: ArrayLike, size: int) -> np.ndarray:
    """A vector with one entry for each input."""
    array = np.asarray(value, float)
    if array.shape != (size,):
        fail(argument, f"of shape ({size},), one value for each input", f"shape {array.shape}", "Check the inputs.")
    return array


def _draws(argument: str, value: ArrayLike, size: int) -> np.ndarray:
    array = np.asarray(value, float)
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != size:
        fail(argument, f"of shape (S, {size}), draws on the first axis", f"shape {array.shape}", "Transpose it?")
    return array


def _vector(argument: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, float)
    if array.ndim != 1 or not array.size:
        cure = "Pass one entry of a vector at a time, e.g. draws[:, 0]."
        fail(argument, "of shape (S,), one number for each draw", f"shape {array.shape}", cure)
    return array


def _probability(argument: str, value: float) -> float:
    if not 0 < value < 1:
        fail(argument, "between 0 and 1", value, "E.g. 0.95.")
    return value


def _normal_quantile(probability: float) -> float:
    return float(jax.scipy.special.ndtri(probability))


def _pit(name: str, prediction: Any, y: ArrayLike | None) -> np.ndarray:
    """PIT values, of a `Prediction` by draws of new data."""
    if not isinstance(prediction, Prediction):
        pit = _vector(f"predictions[{name!r}]", prediction)
        if pit.min() < 0 or pit.max() > 1:
            got = f"values from {pit.min():.3g} to {pit.max():.3g}"
            fail(f"predictions[{name!r}]", "PIT values between 0 and 1", got, "See ngp.metrics.pit_samples.")
        return pit
    if y is None:
        fail("y", "the data of the predictions", "None", "Pass calibration(prediction, y).")
    sample = np.asarray(prediction.sample(DRAWS))
    target = _along("y", y, sample.shape[1])
    return (np.sum(sample < target, 0) + 0.5 * np.sum(sample == target, 0) + 0.5) / (DRAWS + 1)


def _site_draws(name: str, posterior: Any, site: str, key: Array | None) -> np.ndarray:
    """Draws of one scalar site."""
    if not isinstance(posterior, Posterior):
        return _vector(f"posteriors[{name!r}]", posterior)
    if posterior.samples is not None:
        values: Any = posterior.samples
    else:
        if key is None:
            fail("key", "one JAX random key", "None", f"{name!r} draws its values: pass jax.random.key(0).", TypeError)
        keys = jax.random.split(key, DRAWS)
        values = jax.jit(jax.vmap(lambda k: posterior.values(k, jnp.asarray(0))))(keys)
    if site not in values:
        fail("site", f"one of {sorted(values)}", repr(site), "Check the spelling.")
    return _vector(f"site {site!r} of posteriors[{name!r}]", values[site])


def _smooth(draws: np.ndarray) -> bool:
    """Whether there are enough different draws for a density estimate."""
    return draws.size >= 200 and draws.std() > 1e-9 * (1 + abs(draws.mean()))


def _span(rows: list[np.ndarray], truth: float | None) -> tuple[float, float]:
    """Ends of the axis: the draws but for 1/200 in either tail, and the truth."""
    low = min(np.quantile(draws, 0.005) for draws in rows)
    high = max(np.quantile(draws, 0.995) for draws in rows)
    if truth is not None:
        low, high = min(low, truth), max(high, truth)
    margin = 0.08 * (high - low) or 0.5 * abs(low) or 1.0
    return (max(low - margin, 0.0) if low > 0 else low - margin), high + margin


def _density(draws: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Gaussian kernel density estimate with Silverman's bandwidth."""
    iqr = np.subtract(*np.percentile(draws, [75, 25])) / 1.349
    bandwidth = 0.9 * min(draws.std(), iqr or draws.std()) * draws.size**-0.2
    kernel = np.exp(-0.5 * ((grid[:, None] - draws[None]) / bandwidth) ** 2)
    return kernel.mean(1) / (bandwidth * math.sqrt(2 * math.pi))


def _row(ax: Any, draws: np.ndarray, base: float, grid: np.ndarray, color: str, marker: str) -> None:
    """One engine: density or ticks, two intervals and the mean."""
    if _smooth(draws):
        density = _density(draws, grid)
        top = base + density / density.max()
        ax.fill_between(grid, base, top, color=color, alpha=0.3, lw=0)
        ax.plot(grid, top, color=color, lw=1.4)
    elif draws.std() > 0:
        ax.plot(draws, np.full(draws.size, base + 0.13), "|", ms=11, color=color, mew=1.1)
    for inside, width in ((95, 1.2), (50, 3.6)):
        ends = np.percentile(draws, [50 - inside / 2, 50 + inside / 2])
        ax.plot(ends, [base - 0.08] * 2, color=color, lw=width, solid_capstyle="butt")
    ax.plot(draws.mean(), base - 0.08, marker, ms=6, mfc="white", mec=color, mew=1.5)
