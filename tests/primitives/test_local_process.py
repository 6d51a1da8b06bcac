"""The process by neighbours that a user holds: it pickles, and its marginals have slopes in new rows."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

import numpyro_gp as ngp
from tests.primitives.test_given_neighbours import NEW, X, Y, model


def test_the_process_is_a_value():
    near = ngp.neighbours(X, 8)
    f = handlers.seed(lambda: model(near, Y, is_whole=True), 0)()
    again = pickle.loads(pickle.dumps(f))
    np.testing.assert_array_equal(f(NEW).mean, again(NEW).mean)
    slope, step = jax.grad(lambda new: f(new).mean.sum())(jnp.asarray(NEW)), np.zeros((4, 2))
    step[2, 1] = 1e-5
    rows = near.find(NEW, 30).index
    up, down = (f(ngp.neighbours(X, 8).find(NEW + s * step, 30)).mean.sum() for s in (1, -1))
    np.testing.assert_allclose(slope[2, 1], (up - down) / 2e-5, rtol=1e-6)
    assert rows.shape == (4, 30)
