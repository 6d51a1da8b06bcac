"""Shapes of hyper-parameters: what is asked for, and the cure for the commonest mistakes."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.kernels.hyperparameters import (
    inner_products,
    nonnegative_scalar,
    per_input,
    positive_per_input,
    positive_scalar,
)


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (positive_scalar, -1.0, "h must be positive"),
        (positive_scalar, [1.0, 2.0], r"h must be a scalar, but got shape \(2,\). For a batch of kernels use"),
        (nonnegative_scalar, -1.0, "h must be"),
        (positive_per_input, np.ones((2, 3)), r"h must be a scalar or one value for each input, shape \(D,\)"),
        (positive_per_input, np.ones((3, 1)), r"plate\(..., dim=-2\) has an axis for rows: take h\[..., 0\]"),
    ],
)
def test_refusals(check, value, message):
    with pytest.raises(ValueError, match=message):
        check("h", value)


def test_what_passes():
    assert nonnegative_scalar("h", 0.0) == 0.0
    assert positive_per_input("h", [1.0, 2.0]).shape == (2,)


def test_a_value_for_each_input_is_a_row():
    X = jnp.ones((4, 2))
    assert per_input("h", jnp.asarray(3.0), X).shape == (1, 1)
    assert per_input("h", jnp.array([1.0, 2.0]), X).tolist() == [[1.0, 2.0]]
    with pytest.raises(ValueError, match=r"h must be a scalar or of shape \(2,\), one value for each column"):
        per_input("h", jnp.ones(3), X)


def test_inner_products_are_in_full_precision(rng):
    """Inputs rounded to bfloat16, as accelerators do by default, would be off by 0.01."""
    A, B = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_allclose(
        inner_products(jnp.asarray(A), jnp.asarray(B)), A.astype(float) @ B.T.astype(float), atol=1e-5
    )
