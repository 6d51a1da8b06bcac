"""Ramps, and which parameters take which step."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import numpyro_gp as ngp


@pytest.mark.parametrize("kind", ["log", "linear"])
def test_ramps(kind):
    schedule = ngp.optim.ramp(1e-4, 0.1, 100, kind)
    np.testing.assert_allclose([schedule(0), schedule(100), schedule(1000)], [1e-4, 0.1, 0.1], rtol=1e-6)
    middle = 1e-4 * np.sqrt(1000.0) if kind == "log" else 0.5 * (1e-4 + 0.1)
    np.testing.assert_allclose(schedule(50), middle, rtol=1e-6)


@pytest.mark.parametrize("step", [0.5, ngp.optim.ramp(0.5, 0.6, 10, "linear"), optax.constant_schedule(0.5)])
def test_natural_parameters_take_plain_steps_and_the_rest_its_own(step):
    params = {"f/natural_shift": jnp.ones(2), "a/f/natural_precision": jnp.eye(2), "noise": jnp.ones(())}
    grads = {"f/natural_shift": jnp.ones(2), "a/f/natural_precision": jnp.eye(2), "noise": jnp.ones(())}
    optimiser = ngp.optim.natural_gradient(optax.sgd(0.01), step)
    updates, _ = optimiser.update(grads, optimiser.init(params), params)
    np.testing.assert_allclose(updates["f/natural_shift"], -0.5)
    np.testing.assert_allclose(updates["a/f/natural_precision"], -0.5 * np.eye(2))
    np.testing.assert_allclose(updates["noise"], -0.01)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ngp.optim.natural_gradient("adam"), TypeError, "rest must be an optax optimiser"),
        (lambda: ngp.optim.natural_gradient(optax.adam(0.1), 0.0), ValueError, "step must be positive"),
        (lambda: ngp.optim.natural_gradient(optax.adam(0.1), 2.0), ValueError, "step must be at most 1, but got 2.0"),
        (
            lambda: ngp.optim.natural_gradient(optax.adam(0.1)).init({"f/mean": jnp.ones(2)}),
            ValueError,
            r"guide must be one with natural parameters.*natural=True",
        ),
        (lambda: ngp.optim.ramp(-1.0, 0.1, 5), ValueError, "initial must be positive"),
        (lambda: ngp.optim.ramp(0.1, 0.1, 0), ValueError, "num_steps must be at least 1"),
        (lambda: ngp.optim.ramp(0.1, 0.1, 5, "cubic"), ValueError, "kind must be one of 'log', 'linear'"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
