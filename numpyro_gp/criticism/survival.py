"""Scores of times to an event, some of them censored: their order, and survival at their own times."""

import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count
from numpyro_gp.criticism.finding import check_censored, check_pair, check_probabilities
from numpyro_gp.criticism.scores import Score


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
