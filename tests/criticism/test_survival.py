"""Scores of survival predictions, against definitions written out in loops."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from numpyro_gp import metrics


def test_concordance_counts_pairs_of_known_order(rng):
    y, hidden = np.round(rng.exponential(size=25), 1), rng.uniform(size=25) < 0.4
    predicted = np.round(y + rng.normal(size=25), 1)

    def by_pairs(kept):
        good, pairs = 0.0, 0
        for i in kept:
            for j in kept:
                if not hidden[i] and (y[i] < y[j] or (y[i] == y[j] and hidden[j])):
                    pairs += 1
                    good += 0.5 * (1 + np.sign(predicted[j] - predicted[i]))
        return good / pairs

    found = metrics.concordance(predicted, y, hidden)
    assert_allclose(found.value, by_pairs(range(25)))
    without = np.array([by_pairs([i for i in range(25) if i != left]) for left in range(25)])
    assert_allclose(found.standard_error, np.sqrt(24 / 25 * np.sum((without - without.mean()) ** 2)))
    assert metrics.concordance(y, y, np.zeros(25, bool)).value == 1.0


def test_right_survival_fills_bins_equally_with_any_censoring(rng):
    """And by hand: of survival 0.45 that is censored, 0.2 / 0.45 lies in each of two bins of 0.2, the rest above."""
    by_hand = metrics.survival_calibration(jnp.array([0.45, 0.9]), jnp.array([True, False]), bins=5)
    assert_allclose(by_hand, np.array([0.2 / 0.45, 0.2 / 0.45, 0.05 / 0.45, 0, 1]) / 2)
    times, limits = rng.exponential(size=20000), rng.exponential(size=20000)
    shares = metrics.survival_calibration(np.exp(-np.minimum(times, limits)), times > limits)
    assert_allclose(shares, 0.1, atol=0.01)  # five standard errors
    assert metrics.survival_calibration(np.exp(-0.5 * np.minimum(times, limits)), times > limits)[0] < 0.08


def test_errors():
    with pytest.raises(TypeError, match="censored must be boolean, but got dtype int64"):
        metrics.concordance(np.ones(2), np.ones(2), np.array([0, 1]))
    with pytest.raises(ValueError, match=r"censored must be of shape \(2,\), one for each datum, but got shape \(3,\)"):
        metrics.survival_calibration(np.ones(2), np.zeros(3, bool))
