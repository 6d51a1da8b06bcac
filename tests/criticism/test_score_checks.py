"""What scores refuse, by the name of the argument; more of it in ``contracts/misuses_after.py``."""

import jax.numpy as jnp
import pytest

from numpyro_gp.criticism import metrics
from numpyro_gp.criticism.metrics import check_censored

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
