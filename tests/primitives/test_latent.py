"""Latent input columns."""

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers

import numpyro_gp as ngp


def test_columns_are_appended_and_scored():
    X = jnp.arange(6.0).reshape(3, 2)
    with handlers.seed(rng_seed=0), handlers.trace() as trace, numpyro.plate("data", 3):
        widened = ngp.latent_inputs("w", X, dim=2)
    np.testing.assert_array_equal(widened[:, :2], X)
    np.testing.assert_array_equal(widened[:, 2:], trace["w"]["value"])
    assert (trace["w"]["fn"].batch_shape, trace["w"]["fn"].event_shape) == ((3,), (2,))
