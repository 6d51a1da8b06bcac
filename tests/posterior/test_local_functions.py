"""Functions of a process by neighbours: Matheron's rule at each row's own neighbours, and rows drawn together."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from tests.posterior.test_near import KEY, NEW, SCALE, X, Y, k, posterior
from tests.precision import x64


@pytest.mark.long
def test_functions_are_prior_draws_corrected_at_the_neighbours_of_each_row():
    """With all rows for neighbours by dense algebra, with few by that of each row; rows alone say what they are."""
    near, own = ngp.neighbours(X, 5), posterior(30)
    f = own.functions(KEY, 30, near, Y, num_features=64)
    assert len(f) == 30
    every = np.asarray(f(NEW))
    prior = [jax.tree.map(lambda leaf, n=n: leaf[n], f.draws.prior) for n in range(30)]
    at_data, at_new = (np.stack([one(jnp.asarray(rows)) for one in prior]) for rows in (X, NEW))
    left = np.asarray(f.draws.data.y)
    weights = np.linalg.solve(k(X, X) + 0.09 * np.eye(60), k(X, NEW))
    np.testing.assert_allclose(every, at_new + left @ weights, rtol=1e-6, atol=1e-7)
    noise = (Y - at_data - left) / 0.3  # standard normal, one for each datum and function
    assert noise.mean() == pytest.approx(0, abs=5 / np.sqrt(noise.size))
    assert noise.var() == pytest.approx(1, abs=5 * np.sqrt(2 / noise.size))
    few = near.find(NEW, 7, lengthscale=SCALE)
    for n, index in enumerate(np.asarray(few.index)[:3]):
        a = np.linalg.solve(k(X[index], X[index]) + 0.09 * np.eye(7), k(X[index], NEW[n : n + 1]))
        np.testing.assert_allclose(f(few)[:, n], at_new[:, n] + (left[:, index] @ a)[:, 0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(f(NEW[3:5]), every[:, 3:5], rtol=1e-9)
    np.testing.assert_allclose(jax.jit(f)(jnp.asarray(NEW[3:5])), every[:, 3:5], rtol=1e-8)  # found by the program


def whole(near, y=None):
    return ngp.gp_regression("y", ngp.kernels.RBF(1.0, jnp.asarray(SCALE)), near, 0.09, mean=0.5, obs=y, inducing=X[:4])


def seen(near, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, jnp.asarray(SCALE)), inducing=jnp.asarray(X[:4]), mean=0.5)
    with numpyro.plate("data", near.size):
        ngp.observe("y", f.given("rest", near[jnp.arange(60)]), ngp.likelihoods.Gaussian(0.3), obs=y)


def guide(near, y=None):
    rng = np.random.default_rng(1)
    numpyro.sample("f", ngp.Belief(ngp.beliefs.Coupled(rng.normal(size=4), 0.3 * np.eye(4) + 0.1 * np.tri(4))))
    rows = ngp.beliefs.PseudoRows(jnp.asarray(rng.normal(size=60)), jnp.asarray(rng.uniform(0, 5, size=60)))
    with numpyro.plate("data", near.size):
        numpyro.sample("rest", ngp.Belief(rows.in_plate((60,))))


@pytest.mark.long
@pytest.mark.parametrize("is_seen", [True, False])
def test_with_inducing_points_and_pseudo_data_they_have_the_moments_of_predictions(is_seen):
    """Functions for ever and rows drawn together, 300 each, from 7 neighbours and from all."""
    near = ngp.neighbours(X, 5, others=True)
    own = ngp.Posterior.from_svi(*((seen, guide) if is_seen else (whole, lambda near, y=None: None)), {})
    gp = {"gp": "rest"} if is_seen else {}
    f = own.functions(KEY, 300, near, Y, num_features=300, **gp) if is_seen else None
    rows = near.find(NEW[:5], 7)
    found = own.predict_at(KEY, rows, near, Y)
    draws = own.function_draws(KEY, NEW[:5], near, Y, num_samples=300, neighbours=60, **gp)
    exact = own.predict_at(KEY, NEW[:5], near, Y, neighbours=60)
    for values, expected in ((draws, exact), *([(f(rows), found)] if f else [])):
        error = np.sqrt(expected.function_variance / len(values))
        np.testing.assert_array_less(np.abs(values.mean(axis=0) - expected.function_mean), 4.5 * error)
        ratio = values.var(axis=0) / expected.function_variance
        np.testing.assert_allclose(ratio, 1, atol=4.5 * np.sqrt(2 / len(values)))


@pytest.mark.long
def test_rows_are_drawn_together_at_one_draw_as_at_many_and_in_single_precision():
    near, own = ngp.neighbours(X, 5), posterior(1)
    assert own.function_draws(KEY, NEW, near, Y, num_samples=3).shape == (1, 23)  # of one stored draw
    gain = np.linalg.solve(k(X, X) + 0.09 * np.eye(60), k(X, NEW))
    covariance = k(NEW, NEW) - gain.T @ k(X, NEW) + 1e-4 * np.eye(23)
    many = posterior(200).function_draws(KEY, NEW, near, Y, neighbours=90)
    many = many + 1e-2 * np.random.default_rng(0).normal(size=many.shape)  # so that the covariance has a factor
    z = np.linalg.solve(np.linalg.cholesky(covariance), (np.asarray(many) - (Y @ gain)[None]).T)
    assert (z**2).mean() == pytest.approx(1, abs=0.1)
    with x64(False):
        rows, y, new, key = ngp.neighbours(jnp.asarray(X), 5), jnp.asarray(Y), jnp.asarray(NEW), jax.random.key(0)
        single = posterior(1).function_draws(key, new, rows, y)
        assert single.dtype == jnp.float32
        assert np.isfinite(single).all()
        f = posterior().functions(key, 1, rows, y, num_features=64)
        values, prior = f(new), jax.tree.map(lambda leaf: leaf[0], f.draws.prior)(new)
        assert values.dtype == jnp.float32
        np.testing.assert_allclose(values[0], prior + np.asarray(f.draws.data.y[0]) @ gain, atol=5e-3)
    with pytest.raises(TypeError, match="X must be rows of inputs where functions are drawn together"):
        own.function_draws(KEY, near.find(NEW, 3), near, Y)
    with pytest.raises(TypeError, match="X must be known where rows have neighbours"):
        jax.jit(lambda rows: own.function_draws(KEY, rows, near, Y))(jnp.asarray(NEW))
    rough = ngp.Posterior.from_mcmc(
        lambda near, y: ngp.gp_regression("y", ngp.kernels.Wiener(1.0, -1.0).on(0), near, 0.1, obs=y),
        {"none": jnp.zeros(1)},
    )
    with pytest.raises(
        TypeError, match=r"the kernel must be one with features.*Draw them.*posterior\.function_draws\("
    ):
        rough.functions(KEY, 1, near, Y)
    with pytest.raises(ValueError, match="neighbours must be left out where there are none among the arguments"):
        own.function_draws(KEY, NEW, X, Y, neighbours=3)


def precise(rows, y=None):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    ngp.gp_regression("y", ngp.kernels.Matern52(1.0, 0.7), rows, 0.02**2, mean=level, obs=y)


@pytest.mark.long
def test_draws_in_single_precision_carry_no_noise_of_a_jitter():
    """With data of noise 0.02 little is left open, and less than the 0.01 that a jitter of 1e-4 stands for."""
    line, new = np.sort(np.random.default_rng(1).uniform(-2, 2, size=150))[:, None], np.linspace(-1.5, 1.5, 40)[:, None]

    def kernel(a, b):
        r = np.sqrt(5) * np.abs(a - b.T) / 0.7
        return (1 + r + r**2 / 3) * np.exp(-r)

    gain = np.linalg.solve(kernel(line, line) + 0.02**2 * np.eye(150), kernel(line, new))
    sd = np.sqrt(np.diag(kernel(new, new) - gain.T @ kernel(line, new)))
    assert np.median(sd) < 0.01
    with x64(False):
        own = ngp.Posterior.from_mcmc(precise, {"level": jnp.zeros(150)})
        x, y, points = (jnp.asarray(one) for one in (line, np.sin(3 * line[:, 0]), new))
        for rows in (x, ngp.neighbours(x, 8)):
            drawn = np.asarray(own.function_draws(jax.random.key(0), points, rows, y), float)
            assert np.sqrt(np.mean(drawn.var(axis=0) / sd**2)) == pytest.approx(1, abs=0.12)
