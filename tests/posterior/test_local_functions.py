"""Functions of a process by neighbours: Matheron's rule at each row's own neighbours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from tests.posterior.test_near import KEY, NEW, SCALE, X, Y, posterior
from tests.precision import x64


def correlation(a, b):
    return np.exp(-0.5 * (((a[:, None] - b[None]) / SCALE) ** 2).sum(axis=-1))


def test_functions_are_prior_draws_corrected_at_the_neighbours_of_each_row():
    """With all rows for neighbours by dense algebra, with few by that of each row; rows alone say what they are."""
    near, own = ngp.neighbours(X, 5), posterior(30)
    f = own.functions(KEY, 30, near, Y, num_features=64)
    assert len(f) == 30
    every = np.asarray(f(NEW))
    prior = [jax.tree.map(lambda leaf, n=n: leaf[n], f.draws.prior) for n in range(30)]
    at_data, at_new = (np.stack([one(jnp.asarray(rows)) for one in prior]) for rows in (X, NEW))
    left = np.asarray(f.draws.left)
    weights = np.linalg.solve(correlation(X, X) + 0.09 * np.eye(60), correlation(X, NEW))
    np.testing.assert_allclose(every, at_new + left @ weights, rtol=1e-6, atol=1e-7)
    noise = (Y - at_data - left) / 0.3  # standard normal, one for each datum and function
    assert noise.mean() == pytest.approx(0, abs=5 / np.sqrt(noise.size))
    assert noise.var() == pytest.approx(1, abs=5 * np.sqrt(2 / noise.size))
    few = near.find(NEW, 7, lengthscale=SCALE)
    for n, index in enumerate(np.asarray(few.index)[:3]):
        a = np.linalg.solve(correlation(X[index], X[index]) + 0.09 * np.eye(7), correlation(X[index], NEW[n : n + 1]))
        np.testing.assert_allclose(f(few)[:, n], at_new[:, n] + (left[:, index] @ a)[:, 0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(f(NEW[3:5]), every[:, 3:5], rtol=1e-9)
    np.testing.assert_allclose(jax.jit(f)(jnp.asarray(NEW[3:5])), every[:, 3:5], rtol=1e-8)  # found by the program


def test_single_precision_and_what_is_refused():
    def both(near, y=None):
        return ngp.gp_regression("y", ngp.kernels.RBF(1.0, 0.5), near, 0.1, obs=y, inducing=X[:3])

    with pytest.raises(ValueError, match="the process must be one with a basis, or with Gaussian data by neighbours"):
        ngp.Posterior.from_mcmc(both, {"unused": np.zeros(1)}).functions(KEY, 1, ngp.neighbours(X, 5), Y)
    with x64(False):
        new, near = jnp.asarray(NEW), ngp.neighbours(jnp.asarray(X), 5)
        f = posterior().functions(jax.random.key(0), 1, near, jnp.asarray(Y), num_features=64)
        values, prior = f(new), jax.tree.map(lambda leaf: leaf[0], f.draws.prior)(new)
        assert values.dtype == jnp.float32
        weights = np.linalg.solve(correlation(X, X) + 0.09 * np.eye(60), correlation(X, NEW))
        np.testing.assert_allclose(values[0], prior + np.asarray(f.draws.left[0]) @ weights, atol=5e-3)
