"""New rows of a process that has its data, one after the other and in streams: the numbers of `predict_at`."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from tests.compiling import counted
from tests.posterior.test_near import KEY, NEW, X, Y, by_numpy, model, posterior


@pytest.mark.long
def test_a_predictor_by_neighbours_says_what_predict_at_does():
    near, own = ngp.neighbours(X, 5), posterior(3)
    predictor = own.predictor(KEY, near, Y, neighbours=12)
    first = predictor(NEW[:2])
    with counted() as programs:  # by a tree, in the program of the first
        found = [first, predictor(NEW[2:4]), predictor(NEW[4:5])]
    assert programs.count <= 1  # of the moments of one row
    mean, variance = by_numpy(NEW[:5], 12)
    np.testing.assert_allclose(np.concatenate([one.mean for one in found]), mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(np.concatenate([one.variance for one in found]), variance, rtol=1e-7)
    inside = jax.jit(lambda rows: predictor(rows).mean)(jnp.asarray(NEW[:3]))  # the program looks itself: from all rows
    np.testing.assert_allclose(inside, own.predict_at(KEY, NEW[:3], near, Y).mean, rtol=1e-6)
    with pytest.raises(ValueError, match="inputs must be of at most 2 rows, as the first batch, but got 3 rows"):
        predictor(NEW[:3])


def test_neighbours_inside_an_argument_are_those_of_a_predictor_too():
    """It took the argument for one of new rows, and the first call failed inside of JAX."""
    given = {"near": ngp.neighbours(X, 5), "y": Y}
    own = posterior(1, lambda data: model(data["near"], data["y"]))
    found = own.predictor(KEY, given, neighbours=12)(NEW[:5])
    np.testing.assert_allclose(found.mean, by_numpy(NEW[:5], 12)[0], rtol=1e-7, atol=1e-8)


@pytest.mark.long
def test_streams_of_rows_with_neighbours_and_without():
    near, own = ngp.neighbours(X, 5), posterior(2)
    parts = [NEW[:8], NEW[8:16], NEW[16:]]
    whole = own.predict_at(KEY, NEW, near, Y, neighbours=12)
    found = list(own.predict_at(KEY, iter(parts), near, Y, neighbours=12))
    np.testing.assert_allclose(np.concatenate([one.mean for one in found]), whole.mean, rtol=1e-9)
    exact = own.predict_at(KEY, NEW, X, Y, noise_variance=0.5)
    found = list(own.predict_at(KEY, iter(parts), X, Y, noise_variance=0.5))
    np.testing.assert_allclose(np.concatenate([one.variance for one in found]), exact.variance, rtol=1e-9)


def test_the_parts_of_a_stream_are_cut_on_the_axis_of_rows_behind_that_of_groups():
    """Of a process in a plate of groups ``(G, N)``: every part has the rows it was asked for, a last one that is short too."""

    def model(X, Y=None):
        with numpyro.plate("group", 3):
            scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
            ngp.gp_regression("y", jax.vmap(lambda own: ngp.kernels.RBF(1.0, own))(scale), X, 0.1, obs=Y)

    x, new = np.linspace(0.0, 1.0, 5), np.linspace(0.1, 0.9, 7)
    y, scales = np.random.default_rng(0).normal(size=(3, 5)), np.array([0.3, 0.5, 0.7])
    kernel = lambda a, b, scale: np.exp(-0.5 * ((a[:, None] - b[None]) / scale) ** 2)  # noqa: E731
    expected = [
        kernel(new, x, s) @ np.linalg.solve(kernel(x, x, s) + 0.1 * np.eye(5), own) for s, own in zip(scales, y)
    ]
    own = ngp.Posterior.from_mcmc(model, {"scale": jnp.asarray(scales[None])})
    parts = own.predict_at(KEY, iter([new[:4, None], new[4:, None]]), x[:, None], y)
    np.testing.assert_allclose(np.concatenate([part.mean for part in parts], axis=1), expected, rtol=1e-8, atol=1e-6)
