"""Scores that are means over data: densities, errors, CRPS, coverage, classes (mathematics.md section 11.3)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.stats import norm

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_array, check_floating, check_positive, fail, known
from numpyro_gp.linalg import einsum
from numpyro_gp.programs.eager import one_program


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
    concrete = known(array)
    if concrete is None or not (concrete == -jnp.inf).any():
        array = check_floating("log_density", array)
    else:  # a point that the prediction excludes: the score is -inf, everything else is checked
        check_floating("log_density", jnp.where(array == -jnp.inf, 0.0, array))
    check_entries("log_density", array)
    return mean_score(array)


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
        check_same_shape("scale", scale, "y", y)
    scale = jnp.broadcast_to(scale, y.shape)
    return (y - mean) / scale, scale


def predicted_class(probabilities: Array) -> Array:
    """The most probable class of ``(N, C)``, or of ``(N,)`` probabilities of class 1."""
    return jnp.argmax(probabilities, axis=1) if probabilities.ndim == 2 else (probabilities > 0.5).astype(int)


# --------------------------------------------------------------------------------------
# What scores ask of their arrays: equal shapes, since nothing is broadcast, and numbers that can be what they say.


def numbers(argument: str, value: ArrayLike) -> Array:
    """``value`` as floats; counts and other whole numbers are data as well."""
    array = check_array(argument, value)
    if jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == bool:
        array = array.astype(jnp.result_type(float))
    return check_floating(argument, array)


def check_entries(argument: str, array: Array) -> None:
    """Refuse scalars and empty arrays."""
    if array.ndim == 0 or array.size == 0:
        fail(argument, "a non-empty array with one entry per datum", f"shape {array.shape}", "Pass held-out data.")


def check_same_shape(first: str, a: Array, second: str, b: Array) -> None:
    """Refuse shapes that differ, even where they would broadcast."""
    if a.shape != b.shape:
        cure = f"Give both the same shape, for instance {first}[:, 0] or {second}[:, 0]; nothing is broadcast."
        fail(first, f"of the shape of {second}, {b.shape}", f"shape {a.shape}", cure)


def check_pair(first: str, a: ArrayLike, second: str, b: ArrayLike) -> tuple[Array, Array]:
    """Two arrays of equal shapes; the second (the data) takes the type of the first where it held integers."""
    is_whole = not jnp.issubdtype(check_array(second, b).dtype, jnp.floating)
    a, b = numbers(first, a), numbers(second, b)
    check_entries(second, b)
    check_same_shape(first, a, second, b)
    return a, b.astype(a.dtype) if is_whole else b


def check_samples(samples: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Draws ``(S, ...)`` and data ``(...)``."""
    samples, y = numbers("samples", samples), numbers("y", y)
    check_entries("y", y)
    if samples.shape[1:] != y.shape or samples.ndim == 0 or samples.shape[0] == 0:
        cure = "Put the S draws on the first axis and give the rest the shape of y."
        fail("samples", f"of shape (S, {str(y.shape)[1:]}", f"shape {samples.shape}", cure)
    return samples, y


def check_probabilities(argument: str, value: ArrayLike) -> Array:
    """Floats between 0 and 1."""
    array = numbers(argument, value)
    check_entries(argument, array)
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
