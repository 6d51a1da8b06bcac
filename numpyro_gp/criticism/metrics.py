"""Scores of predictions on held-out data: densities, errors, CRPS, calibration (mathematics.md section 11.3).

Functions of arrays, with no model in them. Pairs of arrays must have *equal* shapes, ``(N,)`` or
``(N, P)``: ``(N, 1)`` beside ``(N,)`` would broadcast to ``(N, N)`` and give a plausible number.
A score that is a mean over data is a `Score`, which comes with its standard error: it treats entries as
independent, and is NaN for a single one. ``y`` are always the data.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_array, check_count, check_floating, check_key, check_positive, fail, known
from numpyro_gp.linalg import einsum
from numpyro_gp.programs.compiled import one_program

# --------------------------------------------------------------------------------------
# Scores that are means over data: densities, errors, CRPS, coverage, classes (mathematics.md section 11.3).


class Score(NamedTuple):
    """A mean over data and its standard error: what the scores return.

    Attributes
    ----------
    value, standard_error : Array ()

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> score = ngp.metrics.mae(jnp.zeros(2), jnp.array([1.0, 3.0]))
    >>> float(score.value), float(score.standard_error)
    (2.0, 1.0)
    """

    value: Array
    standard_error: Array


def mean_log_density(log_density: ArrayLike) -> Score:
    """Score of whole predictive densities: the mean of ``log p(y_n | data)``, in nats per datum. Higher is better.

    ``-inf`` is kept, NaN refused.

    Parameters
    ----------
    log_density : array (N,)
        Of `Prediction.log_density`.

    Returns
    -------
    Score

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> score = ngp.metrics.mean_log_density(jnp.array([-1.0, -3.0]))
    >>> float(score.value), float(score.standard_error)
    (-2.0, 1.0)
    """
    array = check_array("log_density", log_density)
    # At a point that the prediction excludes the score is -inf; everything else is checked.
    finite = numbers("log_density", jnp.where(array == -jnp.inf, 0.0, array))
    return mean_score(jnp.where(array == -jnp.inf, array, finite))


def rmse(mean: ArrayLike, y: ArrayLike) -> Score:
    """Root of the mean squared error of point predictions.

    Its standard error is ``se(mse) / (2 rmse)``, by the delta method.

    Parameters
    ----------
    mean, y : array (N,)

    Returns
    -------
    Score

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> float(ngp.metrics.rmse(jnp.zeros(2), jnp.array([3.0, -3.0])).value)
    3.0
    """
    return root_mean_score(*check_pair("mean", mean, "y", y))


def mae(mean: ArrayLike, y: ArrayLike) -> Score:
    """Mean absolute error of point predictions.

    Parameters
    ----------
    mean, y : array (N,)

    Returns
    -------
    Score

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> float(ngp.metrics.mae(jnp.zeros(2), jnp.array([1.0, -3.0])).value)
    2.0
    """
    mean, y = check_pair("mean", mean, "y", y)
    return mean_score(jnp.abs(mean - y))


def crps_gaussian(mean: ArrayLike, scale: ArrayLike, y: ArrayLike) -> Score:
    """Score of a Gaussian prediction in the units of ``y``: the continuous ranked probability score. Lower is better.

    With ``z = (y - mean) / scale``: ``scale (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))``
    (Gneiting & Raftery 2007, equation 21).

    Parameters
    ----------
    mean : array (N,)
    scale : array () or (N,)
        A standard deviation.
    y : array (N,)

    Returns
    -------
    Score

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> print(f"{ngp.metrics.crps_gaussian([0.0], 1.0, [0.0]).value:.4f}")  # (sqrt(2) - 1) / sqrt(pi)
    0.2337
    """
    return mean_score(crps_terms(*standardised(mean, scale, y)))


def crps_samples(samples: ArrayLike, y: ArrayLike) -> Score:
    """Score of predictive draws in the units of ``y``: the continuous ranked probability score. Lower is better.

    ``mean_s |x_s - y| - sum_{s < t} |x_s - x_t| / (S (S - 1))``: the fair form (Ferro 2014), whose
    expectation is the score of the distribution that was drawn from. The double sum is
    ``sum_s (2 s - S - 1) x_(s)`` over sorted draws. A single datum's value can be negative.

    Parameters
    ----------
    samples : array (S, N)
        Two draws or more.
    y : array (N,)

    Returns
    -------
    Score

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> float(ngp.metrics.crps_samples(jnp.array([[0.0], [2.0]]), jnp.array([1.0])).value)
    0.0
    """
    samples, y = check_samples(samples, y)
    count = samples.shape[0]
    if count < 2:
        fail("samples", "at least 2 draws on the first axis", f"shape {samples.shape}", "Take prediction.sample(1000).")
    weights = 2.0 * jnp.arange(1, count + 1, dtype=samples.dtype) - (count + 1)
    away = samples - y[None]  # the weights sum to zero: a common offset would only cost digits
    spread = einsum("s,s...->...", weights, jnp.sort(away, axis=0)) / (count * (count - 1))
    return mean_score(jnp.mean(jnp.abs(away), axis=0) - spread)


def interval_coverage(lower: ArrayLike, upper: ArrayLike, y: ArrayLike) -> Score:
    """Share of ``y`` inside ``[lower, upper]``: compare it with the intervals' nominal level.

    Parameters
    ----------
    lower, upper, y : array (N,)

    Returns
    -------
    Score

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> float(ngp.metrics.interval_coverage(jnp.zeros(4), jnp.ones(4), jnp.array([0.5, 0.9, 1.5, 0.1])).value)
    0.75
    """
    lower, y = check_pair("lower", lower, "y", y)
    upper, y = check_pair("upper", upper, "y", y)
    crossed = known(lower > upper)
    if crossed is not None and crossed.any():
        got = f"{int(crossed.sum())} of {crossed.size} greater"
        fail("lower", "not greater than upper", got, "Exchange the two: interval_coverage(upper, lower, y).")
    return share((lower <= y) & (y <= upper), y.dtype)


def accuracy(probabilities: ArrayLike, labels: ArrayLike) -> Score:
    """Share of right classes: the most probable class, or class 1 where its probability exceeds a half.

    Parameters
    ----------
    probabilities : array (N, C) or (N,)
        Of all classes, or of class 1 of two.
    labels : array (N,) of integers

    Returns
    -------
    Score

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> float(ngp.metrics.accuracy(jnp.array([0.9, 0.2, 0.6, 0.4]), jnp.array([1, 0, 1, 1])).value)
    0.75
    """
    probabilities, labels = check_classes(probabilities, labels)
    return share(predicted_class(probabilities) == labels, probabilities.dtype)


@one_program
def mean_score(terms: Array) -> Score:
    """Mean of all entries and ``sd / sqrt(N)``."""
    spread = jnp.std(terms, ddof=1) if terms.size > 1 else jnp.full((), jnp.nan, terms.dtype)
    return Score(jnp.mean(terms), spread / terms.size**0.5)


@one_program
def root_mean_score(mean: Array, y: Array) -> Score:
    """What `rmse` returns, of arrays that were checked."""
    mse = mean_score(jnp.square(mean - y))
    root = jnp.sqrt(mse.value)
    positive = root > 0
    error = jnp.where(positive, mse.standard_error / (2.0 * jnp.where(positive, root, 1.0)), mse.standard_error)
    return Score(root, error)


@one_program
def crps_terms(z: Array, scale: Array) -> Array:
    """What each datum gives to `crps_gaussian`."""
    return scale * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - jnp.pi**-0.5)


def share(event: Array, dtype: jnp.dtype) -> Score:
    """Share ``p`` of true entries and its binomial standard error ``sqrt(p (1 - p) / N)``."""
    value = jnp.mean(event.astype(dtype))
    return Score(value, jnp.sqrt(value * (1.0 - value) / event.size))


def standardised(mean: ArrayLike, scale: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """``(y - mean) / scale`` and the scale in the shape of ``y``."""
    mean, y = check_pair("mean", mean, "y", y)
    scale = check_positive("scale", scale, " (a standard deviation)").astype(mean.dtype)
    if scale.ndim:
        check_pair("scale", scale, "y", y)
    scale = jnp.broadcast_to(scale, y.shape)
    return (y - mean) / scale, scale


def predicted_class(probabilities: Array) -> Array:
    """The most probable class of ``(N, C)``, or of ``(N,)`` probabilities of class 1."""
    return jnp.argmax(probabilities, axis=1) if probabilities.ndim == 2 else (probabilities > 0.5).astype(int)


# --------------------------------------------------------------------------------------
# What scores ask of their arrays: equal shapes, since nothing is broadcast, and numbers that can be what they say.


def numbers(argument: str, value: ArrayLike) -> Array:
    """``value`` as floats, one or more on an axis; counts and other whole numbers are data as well."""
    array = check_array(argument, value)
    if array.ndim == 0 or array.size == 0:
        fail(argument, "a non-empty array with one entry per datum", f"shape {array.shape}", "Pass held-out data.")
    if jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == bool:
        array = array.astype(jnp.result_type(float))
    return check_floating(argument, array)


def check_pair(first: str, a: ArrayLike, second: str, b: ArrayLike) -> tuple[Array, Array]:
    """Two arrays of equal shapes; whole numbers of the second (the data) take the type of the first."""
    is_whole = not jnp.issubdtype(check_array(second, b).dtype, jnp.floating)
    a, b = numbers(first, a), numbers(second, b)
    if a.shape != b.shape:
        cure = f"Give both the same shape, for instance {first}[:, 0] or {second}[:, 0]; nothing is broadcast."
        fail(first, f"of the shape of {second}, {b.shape}", f"shape {a.shape}", cure)
    return a, b.astype(a.dtype) if is_whole else b


def check_samples(samples: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Draws ``(S, ...)`` and data ``(...)``."""
    y, shape = numbers("y", y), check_array("samples", samples).shape
    if shape[1:] != y.shape or shape[:1] in ((), (0,)):
        cure = "Put the S draws on the first axis and give the rest the shape of y."
        fail("samples", f"of shape (S, {str(y.shape)[1:]}", f"shape {shape}", cure)
    return numbers("samples", samples), y


def check_probabilities(argument: str, value: ArrayLike) -> Array:
    """Floats between 0 and 1."""
    array = numbers(argument, value)
    concrete = known(array)
    if concrete is not None and (concrete.min() < 0 or concrete.max() > 1):
        got = f"values from {concrete.min():.6g} to {concrete.max():.6g}"
        fail(argument, "between 0 and 1", got, "Pass probabilities: jax.nn.sigmoid of logits, percentages / 100.")
    return array


def check_classes(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Array, Array]:
    """Probabilities ``(N,)`` of class 1 or ``(N, C)`` of all classes, and whole labels ``(N,)``."""
    probabilities, labels = check_probabilities("probabilities", probabilities), check_array("labels", labels)
    if probabilities.ndim > 2 or (probabilities.ndim == 2 and probabilities.shape[1] < 2):
        cure = "For two classes pass the probabilities of class 1 with shape (N,)."
        fail("probabilities", "of shape (N,) or (N, C) with C > 1", f"shape {probabilities.shape}", cure)
    if not (jnp.issubdtype(labels.dtype, jnp.integer) or labels.dtype == bool):
        fail("labels", "whole numbers", f"dtype {labels.dtype}", "Convert them: labels.astype(int).", TypeError)
    if labels.shape != probabilities.shape[:1]:
        cure = "Pass the class numbers themselves, not their one-hot form."
        fail("labels", f"of shape {probabilities.shape[:1]}", f"shape {labels.shape}", cure)
    labels = labels.astype(int)
    classes = 2 if probabilities.ndim == 1 else probabilities.shape[1]
    concrete, rows = known(labels), known(probabilities.sum(-1)) if probabilities.ndim == 2 else None
    if concrete is not None and (concrete.min() < 0 or concrete.max() >= classes):
        got = f"labels from {concrete.min()} to {concrete.max()}"
        cure = "Number the classes 0, 1, ...: np.unique(labels, return_inverse=True)[1]."
        fail("labels", f"between 0 and {classes - 1}", got, cure)
    if rows is not None and abs(rows - 1).max() > 1e-3:
        got = f"a row that sums to {rows[abs(rows - 1).argmax()]:.6g}"
        fail("probabilities", "rows that sum to 1", got, "Pass probabilities: jax.nn.softmax(logits).")
    return probabilities, labels


def check_censored(censored: ArrayLike, y: Array) -> Array:
    """Which of data ``(N,)`` are censored."""
    hidden = check_array("censored", censored)
    if hidden.dtype != bool:
        fail("censored", "boolean", f"dtype {hidden.dtype}", "Pass event == 0, or censored.astype(bool).", TypeError)
    if y.ndim != 1 or hidden.shape != y.shape:
        cure = "Pass one for each time."
        fail("censored", f"of shape ({y.size},), one for each datum", f"shape {hidden.shape}", cure)
    return hidden


# --------------------------------------------------------------------------------------
# Whether predicted probabilities are right: PIT values, quantiles, classes, times (mathematics.md section 11.3).


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


__all__ = ["Score", "mean_log_density", "rmse", "mae", "crps_gaussian", "crps_samples", "interval_coverage", "accuracy"]
__all__ += ["Uniformity", "pit_gaussian", "pit_samples", "pit_uniformity", "calibration_curve", "calibration_error"]
__all__ += ["expected_calibration_error", "concordance", "survival_calibration"]
