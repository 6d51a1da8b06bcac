"""Batches of a stream: their parts, their rows, and arguments of the model."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.rows.batches import put_on_device


def test_a_batch_that_is_short_is_filled_with_copies_of_its_last_row():
    np.testing.assert_array_equal(put_on_device(jnp.array([1.0, 2.0]), 3, None), [1.0, 2.0, 2.0])
    whole = jnp.array([1.0, 2.0])
    assert put_on_device(whole, 2, None) is whole
