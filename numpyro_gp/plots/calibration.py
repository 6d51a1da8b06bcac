"""Whether probabilities are right: of predictions (reliability), and of inference (ranks of simulated truths)."""

import math
from collections.abc import Mapping

import jax
import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_count, fail
from numpyro_gp.criticism.diagnose import Calibration
from numpyro_gp.criticism.metrics import pit_samples
from numpyro_gp.plots.style import COLOURS, DRAWS, INK, Axes, along, axes_or_new, band, finish, line_look, named, vector
from numpyro_gp.posterior.prediction import Prediction


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
    ax = axes_or_new(ax)
    several: dict[str, Prediction | ArrayLike] = named(predictions, "predictions")
    values: dict[str, np.ndarray] = {}
    for name, prediction in several.items():
        if not isinstance(prediction, Prediction):
            pit = vector(f"predictions[{name!r}]", prediction)
            if pit.min() < 0 or pit.max() > 1:
                got, cure = f"values from {pit.min():.3g} to {pit.max():.3g}", "Pass metrics.pit_samples(samples, y)."
                fail(f"predictions[{name!r}]", "PIT values between 0 and 1", got, cure)
        elif y is None:
            fail("y", "the data of the predictions", "None", "Pass calibration(prediction, y).")
        else:
            sample = prediction.sample(DRAWS)
            # Randomised, because counts tie; the same at every call.
            pit = np.asarray(pit_samples(sample, along("y", y, sample.shape[1]), jax.random.key(0)))
        values[name] = pit
    least = min(pit.size for pit in values.values())
    width = math.sqrt(math.log(2 / 0.05) / (2 * least))
    line = np.linspace(0, 1, 201)
    band(ax, line, np.clip([line - width, line + width], 0, 1), "0.85", label="95% if calibrated")
    ax.plot(line, line, color=INK, lw=1)
    for number, (name, pit) in enumerate(values.items()):
        share = np.searchsorted(np.sort(pit), line, side="right") / pit.size
        ax.plot(line, share, drawstyle="steps-post", lw=1.6, label=name, **line_look(number))
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
    ax = axes_or_new(ax)
    low, high = np.maximum(expected - 2.576 * spread, 0), expected + 2.576 * spread
    ax.stairs(high, edges, baseline=low, fill=True, color="0.85", label="99% if calibrated")
    ax.stairs(np.histogram(values, np.ceil(edges))[0], edges, color=COLOURS[0], lw=1.8, label="data sets")
    ax.set(xlim=(0, places), ylim=(0, None))
    return finish(ax, title or f"{name}: p = {calibration.p_values[name]:.3f}", "rank of the truth", "data sets")
