"""Batches of a stream: their parts, their rows, and arguments of the model."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.rows.batches import layout_of, put_on_device
from numpyro_gp.rows.call import Arguments, call_of
from numpyro_gp.rows.feeds import Feed, feed_of
from tests.oracles.engines import engine
from tests.rows.test_feeds import KEY


def test_parts_of_a_batch():
    array = jnp.ones(3)
    assert layout_of("b", {"X": np.ones((3, 2), np.float32)}, None).columns == {"['X']": (jnp.float32, (2,))}
    assert Feed(call_of(None, (array,), {}), None).arrays()[0] is array
    stream = feed_of(engine(), KEY, Arguments((), {}), [(np.arange(3.0),), (np.ones(2),)], 9)
    stream.prefetch()
    batch, counts = stream.arrays()
    np.testing.assert_array_equal(batch, np.ones(3))  # a copy of the last row
    assert (counts.tolist(), stream.rows) == ([2, 2, 5], 3)  # two batches of five rows


def test_a_batch_that_is_short_is_filled_with_copies_of_its_last_row():
    np.testing.assert_array_equal(put_on_device(jnp.array([1.0, 2.0]), 3, None), [1.0, 2.0, 2.0])
    whole = jnp.array([1.0, 2.0])
    assert put_on_device(whole, 2, None) is whole


def test_arrays_of_a_batch_have_the_same_rows():
    for other in (np.ones(2), np.asarray(1.0)):
        with pytest.raises(ValueError, match="b must be arrays with the same number of rows, but got rows"):
            layout_of("b", (np.ones(3), other), None)
