"""The process by neighbours that a user holds: it pickles, and its marginals have slopes in new rows."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.primitives.neighbours.local_process import _nearest
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


def test_nearest_rows_inside_of_a_program_are_those_of_a_search_in_units_of_the_lengthscales():
    near = ngp.neighbours(X, 8, lengthscale=np.array([0.05, 20.0]))
    found = jax.jit(lambda new: _nearest(near, new, 5))(jnp.asarray(NEW))
    wanted = [np.argsort(np.sum(((X - new) / [0.05, 20.0]) ** 2, axis=1))[:5] for new in NEW]
    np.testing.assert_array_equal(found, wanted)
