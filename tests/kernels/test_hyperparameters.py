"""Shapes of hyper-parameters, as rows that multiply inputs; what is refused stands in `test_refusals.py`."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.kernels.base import inner_products, nonnegative_scalar, per_input, positive_per_input


def test_a_value_for_each_input_is_a_row():
    X = jnp.ones((4, 2))
    assert per_input("h", jnp.asarray(3.0), X).shape == (1, 1)
    assert per_input("h", positive_per_input("h", [1.0, 2.0]), X).tolist() == [[1.0, 2.0]]
    assert nonnegative_scalar("h", 0.0) == 0.0


def test_inner_products_are_in_full_precision(rng):
    """Inputs rounded to bfloat16, as accelerators do by default, would be off by 0.01."""
    A, B = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    found = inner_products(jnp.asarray(A), jnp.asarray(B))
    np.testing.assert_allclose(found, A.astype(float) @ B.T.astype(float), atol=1e-5)
