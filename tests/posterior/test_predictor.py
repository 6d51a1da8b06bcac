"""Inputs that come one after the other: the numbers of `predict`, one factorisation, and refusals.

Streams, which are made of it: ``test_posterior.py``.
"""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from tests.fits import KERNEL, KEY, NEW, X, Z, fit

POSTERIOR = fit("draws")


def test_a_predictor_says_what_predict_does():
    X, predictor = np.asarray(NEW), POSTERIOR.predictor(KEY)
    found = [predictor(part) for part in (X[:2], X[2:4], X[4:5])]
    whole = POSTERIOR.predict(KEY, X[:5])
    np.testing.assert_allclose(np.concatenate([one.mean for one in found]), whole.mean, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([one.variance for one in found]), whole.variance, rtol=1e-12)
    assert POSTERIOR.predictor(KEY)(X=X[:2]).mean.shape == (2,)
    with pytest.raises(ValueError, match=r"inputs must be of at most 2 rows, as the first batch, but got 5 rows"):
        predictor(X[:5])
    with pytest.raises(TypeError, match="inputs must be a tuple of arrays"):
        predictor("X")


@pytest.mark.long
def test_a_predictor_keeps_nothing_of_a_program_that_it_was_called_in_nor_of_a_call_that_is_refused():
    """First inside of a compiled function, then outside, and the other way round."""
    wanted, predictor = POSTERIOR.predict(KEY, X[:3]).mean, POSTERIOR.predictor(KEY)
    for _ in range(2):
        with pytest.raises(ValueError, match="X must be an array with"):
            predictor(jnp.zeros((4, 2)))
    inside = jax.jit(lambda X: predictor(X).mean)
    for found in (inside(X[:3]), predictor(X[:3]).mean, inside(X[:2]), predictor(X[:3]).mean):
        np.testing.assert_allclose(found, wanted[: len(found)], rtol=1e-12)


@pytest.mark.long
def test_a_compiled_function_returns_a_whole_prediction():
    """Densities, quantiles and draws are those outside, in chunks too; so are those of its arrays on the host."""
    wanted, y = POSTERIOR.predict(KEY, X[:3], chunk_size=2), jnp.zeros(3)
    inside = jax.jit(POSTERIOR.predictor(KEY, chunk_size=2))(X[:3])
    for found in (inside, jax.tree.map(lambda leaf: leaf, inside), copy.copy(inside)):
        assert repr(found) == repr(wanted)
        np.testing.assert_allclose(found.variance, wanted.variance, rtol=1e-12)
        np.testing.assert_allclose(found.log_density(y), wanted.log_density(y), rtol=1e-10)
        np.testing.assert_allclose(found.quantiles([0.1]), wanted.quantiles([0.1]), rtol=1e-8)
        np.testing.assert_allclose(found.sample(5), wanted.sample(5), rtol=1e-10)
    with pytest.raises(ValueError, match=r"y must be of shape \(3,\)"):
        inside.log_density(jnp.zeros(2))


@pytest.mark.long
def test_fewer_rows_of_inputs_that_groups_share():
    """The last part of a stream: the rows of the data are those of this call, beside as many groups."""
    posterior = fit("groups")
    wanted, predictor = posterior.predict(KEY, X[:4]).mean, posterior.predictor(KEY)
    for rows in (slice(4), slice(2), slice(1, 4)):
        np.testing.assert_allclose(predictor(X[rows]).mean, wanted[:, rows], rtol=1e-10)
    stream = [one.mean for one in posterior.predict(KEY, iter([X[:3], X[3:4]]))]
    np.testing.assert_allclose(jnp.concatenate(stream, axis=1), wanted, rtol=1e-10)


def test_a_predictor_of_rows_that_no_array_has_reads_the_arrays_of_each_call():
    """Rows of all groups below each other, which the model takes apart: nothing is cut, and nothing is of another call."""

    def model(X):
        f = ngp.gp("f", KERNEL, Z)
        with numpyro.plate("group", 2, dim=-2), numpyro.plate("data", X.shape[0] // 2):
            ngp.observe("y", f(X.reshape(2, -1, 1)), ngp.likelihoods.Gaussian(0.1))

    posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.linspace(-1.0, 1.0, 2 * len(Z)).reshape(2, -1)})
    predictor = posterior.predictor(KEY)
    for inputs in (X[:6], X[6:]):
        np.testing.assert_allclose(predictor(inputs).mean, posterior.predict(KEY, inputs).mean, rtol=1e-12)


@pytest.mark.long
def test_a_predictor_of_a_process_takes_noise_and_offset_as_predict_at_does():
    """Normal noise adds its variance to that of the function, and an offset is added to the mean."""
    t, new, noise = np.linspace(0.0, 3.0, 6), np.array([0.4, 4.0]), np.array([0.5, 2.0])
    near = ngp.neighbours(t[:, None], 5)

    def model(near, y=None):
        return ngp.gp_regression("y", KERNEL, near, 0.1, obs=y)

    predictor = ngp.Posterior.from_svi(model, lambda *_: None, {}).predictor(KEY, near, np.sin(t))
    for size in (2, 1):
        own = predictor(new[:size, None])
        np.testing.assert_allclose(own.variance, own.function_variance + 0.1, rtol=1e-12)
        other = predictor(new[:size, None], noise_variance=noise[:size])
        np.testing.assert_allclose(other.variance, own.function_variance + noise[:size], rtol=1e-12)
    with pytest.raises(TypeError, match="unexpected keyword argument 'noise'"):
        predictor(new[:, None], noise=noise)
