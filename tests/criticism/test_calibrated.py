"""Calibration against SciPy and numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from numpyro_gp.criticism import metrics


def test_pit_values(rng):
    mean, scale, y = rng.normal(size=9), rng.uniform(0.3, 2.0, size=9), rng.normal(size=9)
    np.testing.assert_allclose(metrics.pit_gaussian(mean, scale, y), stats.norm(mean, scale).cdf(y), rtol=1e-10)
    samples = np.asarray([[1.0, 1.0], [2.0, 2.0], [3.0, 2.0]])
    np.testing.assert_allclose(metrics.pit_samples(samples, [2.5, 2.0]), [2.5 / 4, (1 + 1 + 0.5) / 4], rtol=1e-12)
    samples, y = rng.normal(size=(4, 20_000)), rng.normal(size=20_000)
    counts = np.unique(np.asarray(metrics.pit_samples(samples, y)), return_counts=True)[1]
    assert len(counts) == 5  # S + 1 ranks, none forgotten
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("rate", [0.1, 1.0, 30.0])
def test_randomised_values_of_counts_are_uniform(rng, rate):
    """Mid-ranks of a right prediction of counts gather in the middle: a distance of 0.45 at a rate of 0.1."""
    samples, y = rng.poisson(rate, size=(200, 4000)), rng.poisson(rate, size=4000)
    pit = metrics.pit_samples(samples, y, jax.random.key(0))
    assert stats.kstest(np.asarray(pit), "uniform").pvalue > 1e-3
    assert metrics.calibration_error(np.linspace(0.05, 0.95, 19), pit) < 0.02
    with pytest.raises(TypeError, match="key must be one JAX random key"):
        metrics.pit_samples(samples, y, 0)


@pytest.mark.parametrize("size", [10, 20, 500])
def test_uniformity_equals_scipy(rng, size):
    """The plain limit, without the correction for N, is off by up to 0.08 at N = 10."""
    for power in (1.0, 1.1, 1.5):
        values = rng.uniform(size=size) ** power
        expected, got = stats.kstest(values, "uniform"), metrics.pit_uniformity(values)
        np.testing.assert_allclose(got.distance, expected.statistic, rtol=1e-12)
        np.testing.assert_allclose(got.p_value, expected.pvalue, rtol=0, atol=0.003)
    assert metrics.pit_uniformity((jnp.arange(100.0) + 0.5) / 100).p_value == 1.0


def test_calibration_by_hand(rng):
    """And of a right prediction: ``E|B(t)|`` averaged over the unit interval is sqrt(2 / pi) pi / 8 = 0.3133."""
    pit, levels = jnp.asarray([0.1, 0.2, 0.2, 0.9]), jnp.asarray([0.2, 0.5, 0.9])
    np.testing.assert_allclose(metrics.calibration_curve(levels, pit), [0.75, 0.75, 1.0])
    np.testing.assert_allclose(metrics.calibration_error(levels, pit), (0.55 + 0.25 + 0.1) / 3, rtol=1e-12)
    levels = np.linspace(0.005, 0.995, 100)
    errors = [float(metrics.calibration_error(levels, rng.uniform(size=400))) for _ in range(60)]
    assert abs(np.mean(errors) * 20 - 0.3133) < 4.5 * 20 * stats.sem(errors)


def test_calibration_of_classes_by_hand():
    p, labels = jnp.asarray([0.1, 0.1, 0.7, 0.7, 0.7, 1.0, 0.0]), jnp.asarray([0, 1, 1, 1, 0, 1, 0])
    # Bins (0, .1]: 0.0, 0.1, 0.1 with one event; (.6, .7]: three with two; (.9, 1]: one with one.
    expected = (abs(1 - 0.2) + abs(2 - 2.1) + 0.0) / 7
    np.testing.assert_allclose(metrics.expected_calibration_error(p, labels), expected, rtol=1e-12)
    np.testing.assert_allclose(metrics.expected_calibration_error(p, labels, bins=1), abs(4 - 3.3) / 7, rtol=1e-12)
    p = jnp.asarray([[0.8, 0.1, 0.1], [0.15, 0.75, 0.1], [0.2, 0.2, 0.6], [0.55, 0.25, 0.2]])
    labels = jnp.asarray([0, 2, 2, 1])
    # Top-label bins: (.7, .8] holds 0.8 (right) and 0.75 (wrong); (.5, .6] 0.6 (right) and 0.55 (wrong).
    expected = (abs(1 - 1.55) + abs(1 - 1.15)) / 4
    np.testing.assert_allclose(metrics.expected_calibration_error(p, labels), expected, rtol=1e-12)
    assert metrics.accuracy(p, labels).value == 0.5


def test_bin_edges_belong_to_the_bin_below():
    # 0.7 * 10 is 7.000000000000001: a bin found by that product would be the next one.
    for edge in np.arange(1, 11) / 10:
        p = jnp.asarray([edge, edge - 0.05])
        labels = jnp.asarray([1, 0])
        expected = abs(1 - (2 * edge - 0.05)) / 2  # one bin for both; two bins would add the gaps
        np.testing.assert_allclose(metrics.expected_calibration_error(p, labels), expected, rtol=1e-12, atol=1e-15)
