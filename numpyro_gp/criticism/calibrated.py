"""Whether predicted probabilities are right: PIT values, quantiles, classes, times (mathematics.md section 11.3)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.criticism.scores import (
    Score,
    check_censored,
    check_classes,
    check_pair,
    check_probabilities,
    check_samples,
    predicted_class,
    standardised,
)


class Uniformity(NamedTuple):
    """What `pit_uniformity` returns: the distance of values from the uniform distribution, and its p-value.

    Attributes
    ----------
    distance, p_value : Array ()

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> float(ngp.metrics.pit_uniformity(jnp.array([0.25, 0.75])).distance)
    0.25
    """

    distance: Array
    p_value: Array


def pit_gaussian(mean: ArrayLike, scale: ArrayLike, y: ArrayLike) -> Array:
    """Where data fall in a Gaussian prediction: ``Phi((y - mean) / scale)``, uniform if the prediction is right.

    Parameters
    ----------
    mean : array (N,)
    scale : array () or (N,)
        A standard deviation.
    y : array (N,)

    Returns
    -------
    Array (N,)
        Between 0 and 1.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.metrics.pit_gaussian(jnp.zeros(2), 1.0, jnp.array([0.0, 1.0])).round(4).tolist()
    [0.5, 0.8413]
    """
    return norm.cdf(standardised(mean, scale, y)[0])


def pit_samples(samples: ArrayLike, y: ArrayLike, key: Array | None = None) -> Array:
    """Where data fall among predictive draws: ``(#(x < y) + u (#(x = y) + 1)) / (S + 1)``, uniform if these are right.

    Without a key ``u`` is a half. For continuous data the values are then uniform on the ``S + 1`` mid-ranks if the
    prediction is right; those of counts and other data with ties gather in the middle, however right it is. With a key
    ``u`` is uniform, and the values are uniform for any data (the randomised transform, Czado, Gneiting & Held 2009).

    Parameters
    ----------
    samples : array (S, N)
    y : array (N,)
    key : PRNG key, optional
        Needed for counts and other data with ties.

    Returns
    -------
    Array (N,)
        Between 0 and 1.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.metrics.pit_samples(jnp.array([[0.0], [1.0], [2.0]]), jnp.array([0.5])).tolist()
    [0.375]
    """
    samples, y = check_samples(samples, y)
    within: Array | float = 0.5
    if key is not None:
        within = jax.random.uniform(check_key("key", key), y.shape, samples.dtype)
    ties = jnp.sum(samples == y[None], axis=0) + 1
    return ((jnp.sum(samples < y[None], axis=0) + within * ties) / (samples.shape[0] + 1)).astype(samples.dtype)


def pit_uniformity(pit: ArrayLike) -> Uniformity:
    """Whether PIT values could be uniform: their Kolmogorov-Smirnov distance from it, and its p-value.

    The p-value is ``2 sum_k (-1)^(k-1) exp(-2 k^2 t^2)`` at ``t = x + 1 / (6 sqrt(N)) + (x - 1) / (4 N)``,
    ``x = sqrt(N) D`` (Vrbik 2018): within 0.003 of the exact one from N = 10. Too *small* a distance
    is no evidence for the prediction either.

    Parameters
    ----------
    pit : array (N,)
        Of `pit_gaussian` or `pit_samples`.

    Returns
    -------
    Uniformity

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> float(ngp.metrics.pit_uniformity(jnp.array([0.125, 0.375, 0.625, 0.875])).distance)
    0.125
    """
    values = jnp.sort(check_probabilities("pit", pit).ravel())
    count = values.size
    steps = jnp.arange(count + 1, dtype=values.dtype) / count
    distance = jnp.maximum(jnp.max(steps[1:] - values), jnp.max(values - steps[:-1]))
    scaled = count**0.5 * distance
    scaled = scaled + 1.0 / (6.0 * count**0.5) + (scaled - 1.0) / (4.0 * count)
    k = jnp.arange(1, 101, dtype=values.dtype)
    series = 2.0 * jnp.sum(jnp.where(k % 2 == 1, 1.0, -1.0) * jnp.exp(-2.0 * jnp.square(k * scaled)))
    # Below 0.3 the series converges slowly, and its limit is within 1e-5 of one.
    return Uniformity(distance, jnp.where(scaled < 0.3, 1.0, jnp.clip(series, 0.0, 1.0)))


def calibration_curve(levels: ArrayLike, pit: ArrayLike) -> Array:
    """How often data fall below predicted quantiles: the share of PIT values at or below each nominal level.

    It is the levels themselves if the prediction is right.

    Parameters
    ----------
    levels : array (L,)
        Between 0 and 1.
    pit : array (N,)
        Of `pit_gaussian` or `pit_samples`.

    Returns
    -------
    Array (L,)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.metrics.calibration_curve(jnp.array([0.25, 0.5]), jnp.array([0.1, 0.2, 0.6, 0.9])).tolist()
    [0.5, 0.5]
    """
    levels, pit = check_probabilities("levels", levels), check_probabilities("pit", pit)
    if levels.ndim != 1:
        fail("levels", "of shape (L,)", f"shape {levels.shape}", "Pass jnp.linspace(0.05, 0.95, 19).")
    at_or_below = jnp.searchsorted(jnp.sort(pit.ravel()), levels, side="right")
    return at_or_below.astype(pit.dtype) / pit.size


def calibration_error(levels: ArrayLike, pit: ArrayLike) -> Array:
    """How wrong predicted quantiles are, in one number: ``mean_l |share of PIT <= level_l  -  level_l|``.

    Its expectation is not zero for a perfect prediction of finite data: about
    ``0.31 / sqrt(N)`` for levels spread over the unit interval.

    Parameters
    ----------
    levels, pit
        As in `calibration_curve`.

    Returns
    -------
    Array ()

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> float(ngp.metrics.calibration_error(jnp.array([0.25, 0.5]), jnp.array([0.1, 0.2, 0.6, 0.9])))
    0.125
    """
    levels = check_probabilities("levels", levels)
    return jnp.mean(jnp.abs(calibration_curve(levels, pit) - levels))


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = 10) -> Array:
    """How wrong the probabilities of a classifier are, in one number: ``sum_b n_b / N |share_b - mean_b|``.

    It is the expected calibration error of Guo et al. (2017).

    Over equally wide bins ``((b - 1) / bins, b / bins]`` of the probability. For ``(N, C)`` that is
    the probability of the most probable class, and the share that of right predictions; for
    ``(N,)`` it is the probability of class 1, and the share that of labels 1.

    Parameters
    ----------
    probabilities, labels
        As in `accuracy`.
    bins : int

    Returns
    -------
    Array ()

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> p, labels = jnp.array([0.95, 0.95, 0.15, 0.15]), jnp.array([1, 0, 0, 0])
    >>> print(f"{ngp.metrics.expected_calibration_error(p, labels):.3f}")  # (2 * 0.45 + 2 * 0.15) / 4
    0.300
    """
    probabilities, labels = check_classes(probabilities, labels)
    bins = check_count("bins", bins)
    if probabilities.ndim == 2:
        event, confidence = predicted_class(probabilities) == labels, jnp.max(probabilities, axis=1)
    else:
        event, confidence = labels == 1, probabilities
    edges = jnp.arange(1, bins, dtype=confidence.dtype) / bins
    index = jnp.searchsorted(edges, confidence, side="left")
    gaps = jax.ops.segment_sum(event.astype(confidence.dtype) - confidence, index, num_segments=bins)
    return jnp.sum(jnp.abs(gaps)) / confidence.size


# --------------------------------------------------------------------------------------
# Times to an event, some of them censored: their order, and survival at their own times.


def concordance(predicted: ArrayLike, y: ArrayLike, censored: ArrayLike) -> Score:
    """Harrell's C: the share of pairs of times, of those whose order is known, that a prediction has in their order.

    A pair is in order where the datum with the earlier event has the smaller prediction; equal predictions count a
    half. The order is known where the earlier of two times is an event: of equal times an event comes before one that
    is censored, and two events are left out. One half is chance. The standard error is the jackknife's.

    Parameters
    ----------
    predicted : array (N,)
        Larger where a longer time is expected: `Prediction.mean`, or survival at one time. For a risk pass ``-risk``.
    y : array (N,)
        Times, of events or up to which nothing had happened.
    censored : array (N,) of bool
        True where nothing had happened.

    Returns
    -------
    Score

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> censored = jnp.array([False, True, False])
    >>> float(ngp.metrics.concordance(jnp.array([1.0, 2.0, 0.5]), jnp.array([1.0, 2.0, 3.0]), censored).value)
    0.5
    """
    predicted, y = check_pair("predicted", predicted, "y", y)
    hidden = check_censored(censored, y)
    is_earlier = (y[:, None] < y[None]) | ((y[:, None] == y[None]) & hidden[None])
    counts = (is_earlier & ~hidden[:, None]).astype(predicted.dtype)
    right = counts * (0.5 + 0.5 * jnp.sign(predicted[None] - predicted[:, None]))
    pairs, good = (part.sum() for part in (counts, right))
    without = (good - right.sum(0) - right.sum(1)) / (pairs - counts.sum(0) - counts.sum(1))
    spread = jnp.sum((without - without.mean()) ** 2) * (y.size - 1) / y.size
    return Score(good / pairs, jnp.sqrt(spread))


def survival_calibration(survival: ArrayLike, censored: ArrayLike, bins: int = 10) -> Array:
    """The share of data whose predicted survival falls into each of equal bins: ``1 / bins`` if predictions are right.

    ``P(Y > y_n)`` at the time of an event is uniform. At a time that is censored the event has a survival that is
    uniform below it, and the datum is spread over those bins (Haider, Hoehn, Davis and Greiner 2020).

    Parameters
    ----------
    survival : array (N,)
        ``P(Y > y_n)`` at each datum's own time: ``exp(prediction.log_density(y))`` of a prediction in which all rows
        are censored on the right.
    censored : array (N,) of bool
        As in `concordance`.
    bins : int

    Returns
    -------
    Array (bins,)
        From the longest times, of survival near 0, to the shortest.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> shares = ngp.metrics.survival_calibration(jnp.array([0.25, 0.75]), jnp.array([False, True]), bins=2)
    >>> [round(float(share), 4) for share in shares]   # 0.75 is spread: 0.5 / 0.75 below a half
    [0.8333, 0.1667]
    """
    values = check_probabilities("survival", survival)
    hidden = check_censored(censored, values)
    edges = jnp.linspace(0.0, 1.0, check_count("bins", bins, 2) + 1, dtype=values.dtype)
    low, high = edges[None, :-1], edges[None, 1:]
    inside = jnp.clip(jnp.searchsorted(edges, values, side="right") - 1, 0, bins - 1)
    seen = (jnp.arange(bins)[None] == inside[:, None]).astype(values.dtype)
    below = jnp.clip(values[:, None] - low, 0.0, high - low) / jnp.where(values > 0, values, 1.0)[:, None]
    spread = jnp.where((values > 0)[:, None], below, seen)
    return jnp.mean(jnp.where(hidden[:, None], spread, seen), axis=0)
