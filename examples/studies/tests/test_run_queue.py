"""The queue of runs: plateaus, order, what a stop costs, and rows that several processes append."""

import numpy as np
import pytest

from examples.tools.run_queue import gain_of_doubling, is_flat, thinned

pytestmark = pytest.mark.experiments


def test_gains_plateaus_and_thinned_curves():
    """A fall of 0.3 log(t) gains 0.3 log 2 = 0.2079; the plain difference of the quarters' means would be 0.102."""
    gain, _ = gain_of_doubling(5 - 0.3 * np.log(np.arange(1, 20001)))
    np.testing.assert_allclose(gain, 0.3 * np.log(2), rtol=1e-3)
    steps, noise = np.arange(1, 4001), np.random.default_rng(0).normal(size=4000)
    assert is_flat(np.exp(-steps / 100) + 3)
    assert not is_flat(-1e-5 * steps)  # 0.02 with twice the steps
    assert is_flat(3 + 0.05 * noise)
    assert not is_flat(3 - 0.02 * np.log(steps) + 0.05 * noise)
    assert not is_flat(3 + 0.5 * noise)  # too noisy to tell
    assert not is_flat(np.full(79, 3.0))  # too short to tell
    assert is_flat(np.full(80, 3.0))
    assert thinned(np.arange(100.0))[:2] == [0.5, 2.5]
    assert len(thinned(np.arange(1234.0))) == 50
    assert (thinned([4.0, 2.0]), thinned([])) == ([4.0, 2.0], [])


def test_error_of_the_gain_is_that_of_repeated_curves():
    """Quarters of 100 independent losses: error of a mean 0.1, of two sqrt(2) of it, times log 2 / 0.3398."""
    curves = np.random.default_rng(1).normal(size=(400, 400))
    gains, errors = np.array([gain_of_doubling(curve) for curve in curves]).T
    expected = np.log(2) / 0.33979 * np.sqrt(2) / 10
    np.testing.assert_allclose(gains.std(), expected, rtol=0.12)
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2)), expected, rtol=0.05)
