"""One program for chunks of any length, the re-run after a failure too, and what a step must return."""

import numpy as np
import pytest

from numpyro_gp.training.fit import NonFiniteLoss, fit
from tests.oracles.engines import Countdown, data, key

KEY, DATA = key(), data()


@pytest.mark.parametrize("chunk_size", [None, 1, 7, 1000])
def test_update_is_traced_once_for_all_chunks_and_the_short_last_one(chunk_size):
    counting = Countdown()
    result = fit(KEY, counting, 25, np.ones(3), chunk_size=chunk_size, progress=False)
    assert counting.traces == 1
    np.testing.assert_array_equal(result.losses, 100.0 - np.arange(25))
    np.testing.assert_array_equal(result.params["weight"], [26.0, 26.0])


def test_a_failure_and_its_rerun_trace_nothing_new():
    counting = Countdown(bad_step=13)
    with pytest.raises(NonFiniteLoss):
        fit(KEY, counting, 25, DATA, chunk_size=5, progress=False)
    assert counting.traces == 1


def test_a_loss_that_is_no_number_is_refused():
    class Vector(Countdown):
        def update(self, state, data):
            state, loss = super().update(state, data)
            return state, loss * data

    with pytest.raises(TypeError, match="the loss of update must be one real number"):
        fit(KEY, Vector(), 3, DATA, progress=False)
