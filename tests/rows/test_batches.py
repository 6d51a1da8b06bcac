"""Batches that are short, and some rows that stand for all."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.rows.batches import put_on_device, some_rows


def test_a_batch_that_is_short_is_filled_with_copies_of_its_last_row():
    np.testing.assert_array_equal(put_on_device(jnp.array([1.0, 2.0]), 3, None), [1.0, 2.0, 2.0])
    whole = jnp.array([1.0, 2.0])
    assert put_on_device(whole, 2, None) is whole


def test_all_rows_where_they_are_few():
    np.testing.assert_array_equal(some_rows(3, 100), [0, 1, 2])
    np.testing.assert_array_equal(some_rows(3, 3), [0, 1, 2])
    assert len(some_rows(3, 0)) == 1


@pytest.mark.parametrize("units", [2, 3, 4, 7, 12])
def test_units_that_alternate_have_equal_shares(units):
    """Every k-th row may be of one unit; a share of p of n rows is off by sqrt(p (1 - p) / n)."""
    rows = some_rows(5000 * units, 5000)
    assert len(np.unique(rows)) == 5000
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, some_rows(5000 * units, 5000))
    shares = np.bincount(rows % units) / 5000
    np.testing.assert_allclose(shares, 1 / units, atol=4 * np.sqrt((units - 1) / units**2 / 5000))
