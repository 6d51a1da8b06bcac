"""What scores refuse, by the name of the argument."""

import jax
import jax.numpy as jnp
import pytest

from numpyro_gp.criticism import metrics
from numpyro_gp.criticism.score_checks import check_censored

ONE, TWO = jnp.full(4, 0.5), jnp.full((4, 1), 0.5)
LABELS = jnp.zeros(4, int)
CALLS = {
    "rmse": (lambda a, b: metrics.rmse(a, b), "mean"),
    "mae": (lambda a, b: metrics.mae(a, b), "mean"),
    "crps_gaussian": (lambda a, b: metrics.crps_gaussian(a, 1.0, b), "mean"),
    "crps_scale": (lambda a, b: metrics.crps_gaussian(b, a, b), "scale"),
    "pit_gaussian": (lambda a, b: metrics.pit_gaussian(a, 1.0, b), "mean"),
    "coverage_lower": (lambda a, b: metrics.interval_coverage(a, b, b), "lower"),
    "coverage_upper": (lambda a, b: metrics.interval_coverage(b, a, b), "upper"),
}


@pytest.mark.parametrize(("score", "name"), CALLS.values(), ids=CALLS.keys())
def test_column_beside_vector_and_nan_are_refused(score, name):
    for run in (score, jax.jit(score)):
        with pytest.raises(ValueError, match=rf"{name} must be of the shape of y, \(4,\), but got shape \(4, 1\)"):
            run(TWO, ONE)
        with pytest.raises(ValueError, match=rf"{name} must be of the shape of y, \(4, 1\), but got shape \(4,\)"):
            run(ONE, TWO)
    with pytest.raises(ValueError, match=rf"{name} must be finite, but got 1 NaN .*index \(2,\)"):
        score(ONE.at[2].set(jnp.nan), ONE)
    with pytest.raises(ValueError, match="must be finite"):
        score(ONE, ONE.at[2].set(jnp.nan))
    with pytest.raises(ValueError, match=r"must be a non-empty array with one entry per datum, but got shape \(0,\)"):
        score(jnp.zeros(0), jnp.zeros(0)) if name != "scale" else metrics.crps_gaussian([], 1.0, jnp.zeros(0))


@pytest.mark.parametrize("score", [metrics.crps_samples, metrics.pit_samples])
def test_wrong_samples_are_named(score):
    with pytest.raises(ValueError, match=r"samples must be of shape \(S, 4,\), but got shape \(3, 4, 1\)"):
        score(jnp.ones((3, 4, 1)), ONE)
    with pytest.raises(ValueError, match="samples must be finite"):
        score(jnp.full((3, 4), jnp.nan), ONE)
    with pytest.raises(ValueError, match="samples must be at least 2 draws on the first axis"):
        metrics.crps_samples(jnp.ones((1, 4)), ONE)


@pytest.mark.parametrize("score", [metrics.accuracy, metrics.expected_calibration_error])
def test_wrong_classes_are_named(score):
    with pytest.raises(ValueError, match=r"labels must be of shape \(4,\), but got shape \(4, 1\)"):
        score(ONE, LABELS[:, None])
    with pytest.raises(TypeError, match="labels must be whole numbers, but got dtype float64"):
        score(ONE, ONE)
    with pytest.raises(ValueError, match="labels must be between 0 and 1, but got labels from 0 to 2"):
        score(ONE, LABELS.at[1].set(2))
    with pytest.raises(ValueError, match=r"probabilities must be between 0 and 1, but got values from -1 to 0\.5"):
        score(ONE.at[0].set(-1.0), LABELS)
    with pytest.raises(ValueError, match=r"probabilities must be rows that sum to 1, but got a row that sums to 0\.9"):
        score(jnp.full((4, 3), 0.3), LABELS)
    with pytest.raises(ValueError, match=r"probabilities must be of shape \(N,\) or \(N, C\) with C > 1"):
        score(TWO, LABELS)
    with pytest.raises(ValueError, match="probabilities must be finite"):
        score(ONE.at[0].set(jnp.nan), LABELS)


@pytest.mark.parametrize("wrong", [["cat", "dog"], None])
def test_what_is_no_array_of_numbers_is_named(wrong):
    with pytest.raises(TypeError, match=r"labels must be an array of real numbers, but got (a list|None)"):
        metrics.accuracy(ONE, wrong)
    with pytest.raises(TypeError, match=r"log_density must be an array of real numbers, but got (a list|None)"):
        metrics.mean_log_density(wrong)


def test_wrong_probabilities_and_scales_are_named():
    with pytest.raises(ValueError, match="pit must be between 0 and 1"):
        metrics.pit_uniformity(2.0 * ONE + 0.5)
    with pytest.raises(ValueError, match=r"levels must be of shape \(L,\), but got shape \(4, 1\)"):
        metrics.calibration_error(TWO, ONE)
    with pytest.raises(ValueError, match=r"scale must be positive \(a standard deviation\), but got 0"):
        metrics.crps_gaussian(ONE, 0.0, ONE)
    with pytest.raises(ValueError, match="bins must be at least 1"):
        metrics.expected_calibration_error(ONE, LABELS, bins=0)


def test_censored_is_one_mark_for_each_datum():
    marks = jnp.array([True, False, True])
    assert check_censored(marks, jnp.zeros(3)) is marks
    for shape in ((4,), (3, 1)):
        with pytest.raises(ValueError, match=r"censored must be of shape \(3,\), one for each datum, but got shape"):
            check_censored(jnp.zeros(shape, bool), jnp.zeros(3))
