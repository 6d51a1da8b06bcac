"""How a fit went: losses, particles, calibration, and posteriors of hyper-parameters by several engines."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, fail
from numpyro_gp.criticism.diagnose import Calibration
from numpyro_gp.criticism.metrics import pit_samples
from numpyro_gp.plots import style
from numpyro_gp.plots.style import COLOURS, DRAWS, INK, MARKERS, Axes, finish
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.prediction import Prediction


def convergence(
    losses: Mapping[str, ArrayLike] | ArrayLike,
    *,
    window: int | None = None,
    title: str = "Convergence",
    ylabel: str = "loss (minus the bound) [nats]",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw whether a fit has converged: the loss of every step (faint) and its running median (strong).

    Parameters
    ----------
    losses : dict by name of (or one) array (steps,)
    window : int, optional
        Steps in the running median; 1/50 of the run by default.

    Returns
    -------
    matplotlib.axes.Axes

    Notes
    -----
    The vertical axis shows the last 95% of each run: the first steps would squash the rest.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ax = ngp.plots.convergence(np.exp(-np.arange(200) / 50.0))
    >>> type(ax).__name__
    'Axes'
    """
    ax = style.axes_or_new(ax)
    late = []
    for number, (name, run) in enumerate(style.named(losses, "losses").items()):
        loss = np.asarray(run, float)
        if loss.ndim != 1 or loss.size < 2:
            fail(f"losses[{name!r}]", "of shape (steps,), two or more", f"shape {loss.shape}", "Pass result.losses.")
        size = min(window or max(1, loss.size // 50), loss.size)
        smooth = np.median(np.lib.stride_tricks.sliding_window_view(loss, size), axis=1)
        steps, line = np.arange(1, loss.size + 1), style.line_look(number)
        if size > 1:
            ax.plot(steps, loss, color=line["color"], lw=0.6, alpha=0.3)
        ax.plot(steps[size - 1 :], smooth, lw=1.8, label=name or None, **line)
        late.append(loss[loss.size // 20 :])
    low, high = min(map(np.nanmin, late)), max(map(np.nanmax, late))
    margin = 0.05 * (high - low) or 1.0
    if np.isfinite([low, high]).all():
        ax.set_ylim(low - margin, high + margin)
    if isinstance(losses, Mapping):
        ax.legend(fontsize="small", frameon=False)
    return finish(ax, title, "step", ylabel)


def particles(
    values: Mapping[str, ArrayLike],
    reference: Mapping[str, ArrayLike] | None = None,
    *,
    title: str = "Spread of the particles",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw whether particles have collapsed: one row for each quantity, against draws of a sampler.

    Every row is shifted by the mean of the reference and divided by its standard deviation (without one, by those of
    the particles), so that all quantities share one axis without units. Particles inside much less than
    the grey bars (68% and 95% of the reference) have collapsed.

    Parameters
    ----------
    values : dict by name of arrays (S,)
        Particles.
    reference : dict by name of arrays (S',), optional
        Draws of the same quantities, of NUTS for instance.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> draws = np.random.default_rng(0).normal(size=200)
    >>> ax = ngp.plots.particles({"noise": draws[:10]}, {"noise": draws})
    >>> type(ax).__name__
    'Axes'
    """
    ax, values = style.axes_or_new(ax), style.named(values, "values")
    for number, (name, raw) in enumerate(values.items()):
        drawn = style.vector(f"values[{name!r}]", raw)
        other = drawn if reference is None else style.vector(f"reference[{name!r}]", reference[name])
        center, spread = other.mean(), other.std() or 1.0
        if reference is not None:
            scaled = (other - center) / spread
            for inside, width, shade in ((95, 4, "0.8"), (68, 10, "0.65")):
                label = f"reference, {inside}%" if number == 0 else None
                style.bar(ax, scaled, inside, -number, lw=width, color=shade, zorder=1, label=label)
        scaled = (drawn - center) / spread
        label = "particle" if number == 0 else None
        ax.plot(scaled, np.full(drawn.size, -number), "o", ms=5, mfc="none", mec=COLOURS[0], mew=1.2, label=label)
    ax.axvline(0, color=INK, lw=0.8, ls=":", zorder=0)
    ax.set_yticks(-np.arange(len(values)), list(values))
    ax.set_ylim(-len(values) + 0.4, 0.6)
    ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    unit = "particles" if reference is None else "reference"
    return finish(ax, title, f"standardised by the {unit}", "")


# --------------------------------------------------------------------------------------
# Whether probabilities are right: of predictions (reliability), and of inference (ranks of simulated truths).


def calibration(
    predictions: Mapping[str, Prediction | ArrayLike] | Prediction | ArrayLike,
    y: ArrayLike | None = None,
    *,
    title: str = "Calibration of the predictions",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw whether predictions are calibrated: how often data fall below their quantiles, and how often they should.

    On the diagonal the predictions are right; an S that is flat in the middle (data too often far out) is
    overconfident. The grey band holds 95% of the curves of perfectly calibrated predictions of as many data
    (``sqrt(log(2 / 0.05) / (2 N))`` on either side, Massart 1990).

    Parameters
    ----------
    predictions : dict by name of (or one) Prediction or array (N,)
        Predictions, with their data ``y``; or PIT values (`ngp.metrics.pit_samples`).
    y : array (N,), optional
        Data, needed where a `Prediction` is given.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ax = ngp.plots.calibration({"SVI": np.random.default_rng(0).uniform(size=50)})
    >>> type(ax).__name__
    'Axes'
    """
    ax = style.axes_or_new(ax)
    several: dict[str, Prediction | ArrayLike] = style.named(predictions, "predictions")
    values: dict[str, np.ndarray] = {}
    for name, prediction in several.items():
        if not isinstance(prediction, Prediction):
            pit = style.vector(f"predictions[{name!r}]", prediction)
            if pit.min() < 0 or pit.max() > 1:
                got, cure = f"values from {pit.min():.3g} to {pit.max():.3g}", "Pass metrics.pit_samples(samples, y)."
                fail(f"predictions[{name!r}]", "PIT values between 0 and 1", got, cure)
        elif y is None:
            fail("y", "the data of the predictions", "None", "Pass calibration(prediction, y).")
        else:
            sample = prediction.sample(DRAWS)
            # Randomised, because counts tie; the same at every call.
            pit = np.asarray(pit_samples(sample, style.along("y", y, sample.shape[1]), jax.random.key(0)))
        values[name] = pit
    least = min(pit.size for pit in values.values())
    width = math.sqrt(math.log(2 / 0.05) / (2 * least))
    line = np.linspace(0, 1, 201)
    style.band(ax, line, np.clip([line - width, line + width], 0, 1), "0.85", label="95% if calibrated")
    ax.plot(line, line, color=INK, lw=1)
    for number, (name, pit) in enumerate(values.items()):
        share = np.searchsorted(np.sort(pit), line, side="right") / pit.size
        ax.plot(line, share, drawstyle="steps-post", lw=1.6, label=name, **style.line_look(number))
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(loc="lower right", fontsize="small", frameon=False)
    return finish(ax, title, "predicted probability", "share of data below the quantile")


def ranks(
    calibration: Calibration, site: str | None = None, *, bins: int = 8, title: str = "", ax: "Axes | None" = None
) -> "Axes":
    """Draw what `ngp.diagnose.sbc` found: a histogram of the ranks, over a band in which calibrated bars stay.

    A hill in the middle: the posterior is too wide. A valley: too narrow. A slope: it is biased to one side. The
    grey band holds each bar with probability 0.99 if the ranks are uniform (binomial).

    Parameters
    ----------
    calibration : Calibration
    site : str, optional
        The hyper-parameter; may be left out where there is one.
    bins : int

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> found = ngp.diagnose.Calibration({"noise": np.arange(64)}, {"noise": 0.9}, 63)
    >>> ax = ngp.plots.ranks(found)
    >>> type(ax).__name__
    'Axes'
    """
    name = str(next(iter(calibration.ranks)) if site is None and len(calibration.ranks) == 1 else site)
    if name not in calibration.ranks:
        fail("site", f"one of {list(calibration.ranks)}", repr(site), "Check the spelling.")
    values, places = np.asarray(calibration.ranks[name]), calibration.num_draws + 1
    edges = np.linspace(0, places, min(check_count("bins", bins, 2), places) + 1)
    # A bin holds the whole ranks between its edges, which need not be equally many.
    shares = np.diff(np.ceil(edges)) / places
    expected, spread = values.size * shares, np.sqrt(values.size * shares * (1 - shares))
    ax = style.axes_or_new(ax)
    low, high = np.maximum(expected - 2.576 * spread, 0), expected + 2.576 * spread
    ax.stairs(high, edges, baseline=low, fill=True, color="0.85", label="99% if calibrated")
    ax.stairs(np.histogram(values, np.ceil(edges))[0], edges, color=COLOURS[0], lw=1.8, label="data sets")
    ax.set(xlim=(0, places), ylim=(0, None))
    return finish(ax, title or f"{name}: p = {calibration.p_values[name]:.3f}", "rank of the truth", "data sets")


# --------------------------------------------------------------------------------------
# Posteriors of one hyper-parameter under several engines, side by side.


# Percent of the draws inside each bar, and its width: that of the thin one first.
INTERVALS = ((90, 1.2), (50, 3.6))


def hyperparameters(
    posteriors: Mapping[str, Posterior | ArrayLike],
    site: str,
    *,
    truth: float | None = None,
    prior: dist.Distribution | None = None,
    key: Array | None = None,
    title: str = "",
    xlabel: str = "",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the posterior of one hyper-parameter under several engines, side by side.

    Each engine has a row: its density, the 90% interval as a thin and the 50% interval as a thick bar, the mean
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

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ax = ngp.plots.hyperparameters({"NUTS": np.random.default_rng(0).gamma(4.0, size=300)}, "lengthscale")
    >>> type(ax).__name__
    'Axes'
    """
    several: dict[str, Posterior | ArrayLike] = style.named(posteriors, "posteriors")
    rows = {name: _site_draws(name, posterior, site, key) for name, posterior in several.items()}
    ax = style.axes_or_new(ax)
    low = min(np.quantile(draws, 0.005) for draws in rows.values())
    high = max(np.quantile(draws, 0.995) for draws in rows.values())
    if truth is not None:
        low, high = min(low, truth), max(high, truth)
    margin = 0.08 * (high - low) or 0.5 * abs(low) or 1.0
    span = max(low - margin, 0.0) if low > 0 else low - margin, high + margin
    grid = np.linspace(*span, 300)
    labels = list(rows)
    for number, draws in enumerate(rows.values()):
        base, color, different = -1.25 * number, style.line_look(number)["color"], np.unique(draws)
        # Particles of different weights stand several times among the draws.
        if draws.size >= 200 and 2 * different.size > draws.size and draws.std() > 1e-9 * (1 + abs(draws.mean())):
            # A Gaussian kernel density estimate with Silverman's bandwidth.
            iqr = np.subtract(*np.percentile(draws, [75, 25])) / 1.349
            bandwidth = 0.9 * min(draws.std(), iqr or draws.std()) * draws.size**-0.2
            density = np.exp(-0.5 * ((grid[:, None] - draws[None]) / bandwidth) ** 2).mean(1)
            top = base + density / density.max()
            ax.fill_between(grid, base, top, color=color, alpha=0.3, lw=0)
            ax.plot(grid, top, color=color, lw=1.4)
        elif draws.std() > 0:
            ax.plot(different, np.full(different.size, base + 0.13), "|", ms=11, color=color, mew=1.1)
        for inside, width in INTERVALS:
            style.bar(ax, draws, inside, base - 0.08, color=color, lw=width)
        marker = MARKERS[number % len(MARKERS)]
        ax.plot(draws.mean(), base - 0.08, marker, ms=6, mfc="white", mec=color, mew=1.5)
    if prior is not None:
        is_inside = np.asarray(prior.support(jnp.asarray(grid)))
        density = np.zeros_like(grid)
        density[is_inside] = np.exp(np.asarray(prior.log_prob(jnp.asarray(grid[is_inside]))))
        base = -1.25 * len(rows)
        style.band(ax, grid, [np.full_like(grid, base), base + density / (density.max() or 1.0)], "0.8")
        labels.append("prior")
    if truth is not None:
        ax.axvline(truth, color=INK, ls="--", lw=1.2, label="truth", zorder=1)
    ax.set_yticks([-1.25 * number + 0.3 for number in range(len(labels))], labels)
    ax.tick_params(axis="y", length=0)
    words = ", ".join(f"{word} {inside}%" for word, (inside, _) in zip(("thin", "thick"), INTERVALS, strict=True))
    ax.text(1.0, 1.0, f"{words}, mark: mean", ha="right", va="bottom", fontsize=6, color="0.4", transform=ax.transAxes)
    ax.set(xlim=span, ylim=(-1.25 * len(labels) + 0.85, 1.15))
    return finish(ax, title, xlabel or site, "")


def _site_draws(name: str, posterior: Posterior | ArrayLike, site: str, key: Array | None) -> np.ndarray:
    """Return draws of one scalar site, all of them finite: an axis ends somewhere."""
    if not isinstance(posterior, Posterior):
        argument, chosen = f"posteriors[{name!r}]", posterior
    else:
        argument, values = f"site {site!r} of posteriors[{name!r}]", posterior.samples
        if values is None:
            if key is None:
                fail("key", "one JAX random key", "None", f"Pass key=jax.random.key(0) to draw {name!r}.", TypeError)
            values = jax.jit(jax.vmap(lambda k: posterior.values(k, jnp.asarray(0))))(jax.random.split(key, DRAWS))
        if site not in values:
            fail("site", f"one of {sorted(values)}", repr(site), "Check the spelling.")
        chosen = values[site]
    draws = style.vector(argument, chosen, "of shape (S,), one number for each draw")
    if wrong := int(np.sum(~np.isfinite(draws))):
        cure = "Fit again in float64 or with a smaller step, or leave these draws out."
        fail(argument, "finite", f"{wrong} NaN or infinite draws of {draws.size}", cure)
    return draws
