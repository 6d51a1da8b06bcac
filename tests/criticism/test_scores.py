"""Scores against numerical integrals, SciPy, double sums and numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

from numpyro_gp.criticism import metrics
from numpyro_gp.criticism.metrics import check_censored, predicted_class


def test_means_and_standard_errors(rng):
    """Of counts too; a jackknife for the root, whose error without the delta method is 2.8 times as large."""
    mean, y = rng.normal(size=(2, 400))
    for score, terms in ((metrics.mean_log_density(y), y), (metrics.mae(mean, y), np.abs(mean - y))):
        np.testing.assert_allclose(score.value, terms.mean(), rtol=1e-12)
        np.testing.assert_allclose(score.standard_error, stats.sem(terms), rtol=1e-12)  # ddof=0 would be 0.1 % less
    np.testing.assert_allclose(metrics.mae(jnp.asarray([0.5, 3.0]), np.asarray([1, 2])).value, 0.75)
    score = metrics.rmse(mean, y)
    np.testing.assert_allclose(score.value, np.sqrt(((mean - y) ** 2).mean()), rtol=1e-12)
    squares = np.delete(np.tile((mean - y) ** 2, (400, 1)), np.arange(400) * 401).reshape(400, 399)
    left_out = np.sqrt(squares.mean(1))
    jackknife = np.sqrt(399 / 400 * ((left_out - left_out.mean()) ** 2).sum())
    np.testing.assert_allclose(score.standard_error, jackknife, rtol=0.02)


def test_perfect_single_and_excluded_data():
    assert metrics.rmse(jnp.ones(3), jnp.ones(3)) == (0.0, 0.0)
    score = metrics.mae(jnp.ones(1), jnp.zeros(1))
    assert score.value == 1.0
    assert np.isnan(score.standard_error)
    assert metrics.mean_log_density(jnp.asarray([-1.0, -jnp.inf])).value == -jnp.inf
    with pytest.raises(ValueError, match="log_density must be finite, but got 1 NaN"):
        metrics.mean_log_density(jnp.asarray([-jnp.inf, jnp.nan]))


def crps_integral(cdf, y):
    """The definition: the integral of (F(x) - 1{x >= y})^2."""
    below = integrate.quad(lambda x: cdf(x) ** 2, -np.inf, y, epsabs=1e-12)[0]
    return below + integrate.quad(lambda x: (1 - cdf(x)) ** 2, y, np.inf, epsabs=1e-12)[0]


def test_crps_gaussian_equals_the_integral(rng):
    mean, scale, y = rng.normal(size=6), rng.uniform(0.3, 2.0, size=6), rng.normal(size=6)
    expected = [crps_integral(stats.norm(m, s).cdf, v) for m, s, v in zip(mean, scale, y, strict=True)]
    score = metrics.crps_gaussian(mean, scale, y)
    np.testing.assert_allclose(score.value, np.mean(expected), rtol=1e-8)
    np.testing.assert_allclose(score.standard_error, stats.sem(expected), rtol=1e-7)
    # A variance taken for a scale misses by more than 1000 tolerances.
    assert abs(metrics.crps_gaussian(mean, scale**2, y).value / np.mean(expected) - 1) > 1e-3
    shared = metrics.crps_gaussian(mean, 0.7, y).value
    np.testing.assert_allclose(shared, metrics.crps_gaussian(mean, np.full(6, 0.7), y).value, rtol=1e-12)


def test_crps_samples_equals_the_double_sum_and_is_fair(rng):
    """The expectation over ensembles of two equals the exact score; the plain ensemble form is 0.28 too high.

    Beside an offset: in float32 sums of weights of a thousand times 2e5 had lost one digit in a hundred.
    """
    samples, y = rng.normal(size=(7, 3, 2)), rng.normal(size=(3, 2))
    pairs = np.abs(samples[:, None] - samples[None]).sum((0, 1)) / (2 * 7 * 6)
    terms = np.abs(samples - y).mean(0) - pairs
    score = metrics.crps_samples(samples, y)
    np.testing.assert_allclose(score.value, terms.mean(), rtol=1e-12)
    np.testing.assert_allclose(score.standard_error, stats.sem(terms.ravel()), rtol=1e-12)
    score = metrics.crps_samples(rng.normal(size=(2, 100_000)), np.full(100_000, 0.4))
    assert abs(score.value - crps_integral(stats.norm.cdf, 0.4)) < 4.5 * score.standard_error < 0.28 / 10
    samples, y = ((2e5 + rng.normal(size=size)).astype(np.float32) for size in ((1000, 20), 20))
    wanted = metrics.crps_samples(samples.astype(float), y.astype(float)).value
    np.testing.assert_allclose(metrics.crps_samples(samples, y).value, wanted, rtol=1e-5)


def test_interval_coverage_and_accuracy_by_hand():
    score = metrics.interval_coverage(jnp.zeros(5), jnp.ones(5), jnp.asarray([0.0, 1.0, 0.5, -0.1, 1.1]))
    np.testing.assert_allclose(score, [0.6, np.sqrt(0.6 * 0.4 / 5)], rtol=1e-12)
    with pytest.raises(ValueError, match=r"lower must be not greater than upper, but got 1 of 2 greater\. Exchange"):
        metrics.interval_coverage(jnp.asarray([0.0, 2.0]), jnp.ones(2), jnp.ones(2))
    score = metrics.accuracy(jnp.asarray([0.9, 0.4, 0.6, 0.1]), jnp.asarray([1, 0, 0, 0]))
    np.testing.assert_allclose(score, [0.75, np.sqrt(0.75 * 0.25 / 4)], rtol=1e-12)


def test_the_class_that_is_predicted(rng):
    table = rng.uniform(size=(5, 3))
    np.testing.assert_array_equal(predicted_class(jnp.asarray(table)), table.argmax(axis=1))
    np.testing.assert_array_equal(predicted_class(jnp.array([0.2, 0.5, 0.7])), [0, 0, 1])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_scores_can_be_traced_and_their_type_follows_the_inputs(rng, dtype):
    mean, y = (jnp.asarray(rng.uniform(size=8), dtype) for _ in range(2))
    samples, labels = jnp.asarray(rng.uniform(size=(5, 8)), dtype), jnp.asarray(rng.integers(0, 2, size=8))
    calls = {
        "mean_log_density": (y,),
        "rmse": (mean, y),
        "mae": (mean, y),
        "crps_gaussian": (mean, jnp.asarray(0.4, dtype), y),
        "crps_samples": (samples, y),
        "interval_coverage": (y - 0.1, y, mean),
        "pit_gaussian": (mean, jnp.asarray(0.4, dtype), y),
        "pit_samples": (samples, y),
        "pit_uniformity": (y,),
        "calibration_curve": (mean, y),
        "calibration_error": (mean, y),
        "accuracy": (y, labels),
        "expected_calibration_error": (y, labels),
        "concordance": (mean, y, labels == 1),
        "survival_calibration": (y, labels == 1),
    }
    assert set(calls) == {name for name in metrics.__all__ if name.islower()}
    for name, inputs in calls.items():
        score = getattr(metrics, name)
        assert {leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(score, *inputs))} == {jnp.dtype(dtype)}, name


ONE, TWO, NAN = jnp.full(4, 0.5), jnp.full((4, 1), 0.5), jnp.full(4, 0.5).at[2].set(jnp.nan)
LABELS = jnp.zeros(4, int)
OF_DRAWS, OF_CLASSES = (
    (metrics.crps_samples, metrics.pit_samples),
    (metrics.accuracy, metrics.expected_calibration_error),
)


@pytest.mark.parametrize(
    ("scores", "given", "message"),
    [
        (OF_DRAWS, (jnp.ones((3, 4, 1)), ONE), r"samples must be of shape \(S, 4,\), but got shape \(3, 4, 1\)"),
        (OF_DRAWS, (jnp.zeros((0, 4)), ONE), r"samples must be of shape \(S, 4,\), but got shape \(0, 4\)"),
        (OF_DRAWS, (jnp.full((3, 4), jnp.nan), ONE), "samples must be finite"),
        (OF_CLASSES, (ONE, LABELS[:, None]), r"labels must be of shape \(4,\), but got shape \(4, 1\)"),
        (OF_CLASSES, (ONE, ONE), "labels must be whole numbers, but got dtype float64"),
        (OF_CLASSES, (ONE, LABELS.at[1].set(2)), "labels must be between 0 and 1, but got labels from 0 to 2"),
        (OF_CLASSES, (ONE, ["cat", "dog"]), "labels must be an array of real numbers, but got a list"),
        (OF_CLASSES, (ONE, None), "labels must be an array of real numbers, but got None"),
        (OF_CLASSES, (ONE.at[0].set(-1.0), LABELS), r"must be between 0 and 1, but got values from -1 to 0\.5"),
        (OF_CLASSES, (jnp.full((4, 3), 0.3), LABELS), r"rows that sum to 1, but got a row that sums to 0\.9"),
        (OF_CLASSES, (TWO, LABELS), r"probabilities must be of shape \(N,\) or \(N, C\) with C > 1"),
        (OF_CLASSES, (NAN, LABELS), "probabilities must be finite"),
        ((metrics.mean_log_density,), (None,), "log_density must be an array of real numbers, but got None"),
        ((metrics.calibration_error,), (TWO, ONE), r"levels must be of shape \(L,\), but got shape \(4, 1\)"),
        ((metrics.crps_gaussian,), (ONE, 0.0, ONE), r"scale must be positive \(a standard deviation\), but got 0"),
        ((metrics.concordance,), (ONE, ONE, LABELS), "censored must be boolean, but got dtype int64"),
    ],
)
def test_wrong_draws_classes_and_scales_are_named(scores, given, message):
    for score in scores:
        with pytest.raises((ValueError, TypeError), match=message):
            score(*given)


def test_censored_is_one_mark_for_each_datum():
    marks = jnp.array([True, False, True])
    assert check_censored(marks, jnp.zeros(3)) is marks
    for shape in ((4,), (3, 1)):
        with pytest.raises(ValueError, match=r"censored must be of shape \(3,\), one for each datum, but got shape"):
            check_censored(jnp.zeros(shape, bool), jnp.zeros(3))


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
