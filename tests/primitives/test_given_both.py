"""Inducing points for what is global and neighbours for the rest: exact with all neighbours, wherever the points are."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal, norm

import numpyro_gp as ngp
from numpyro_gp.posterior.draws import log_likelihood
from numpyro_gp.programs.trace import split, traced
from tests.precision import x64

RNG = np.random.default_rng(4)
N = 24
X, Z, NEW = RNG.uniform(size=(N, 2)), RNG.uniform(size=(5, 2)), RNG.uniform(size=(3, 2))
Y = np.sin(6 * X[:, 0]) + 0.1 * RNG.normal(size=N)
POINT = {"variance": 1.3, "noise": 0.3, "first": 0.4, "second": 0.7}


def model(p, near, y=Y):
    kernel = ngp.kernels.Matern52(p["variance"], jnp.stack([jnp.asarray(p["first"]), jnp.asarray(p["second"])]))
    return ngp.gp_regression("y", kernel, near, p["noise"] ** 2, obs=y, mean=0.5, inducing=Z, jitter=0.0)


def gram(p, rows=X, more=X):
    r = np.sqrt(5 * (((rows[:, None] - more[None]) / [p["first"], p["second"]]) ** 2).sum(axis=-1))
    return p["variance"] * (1 + r + r**2 / 3) * np.exp(-r)


def exact(p):
    return multivariate_normal(np.full(N, 0.5), gram(p) + p["noise"] ** 2 * np.eye(N)).logpdf(Y)


@pytest.mark.long
@pytest.mark.parametrize("is_double", [True, False])
def test_with_all_earlier_rows_it_is_the_exact_process(is_double):
    with x64(is_double):
        near, tolerance = ngp.neighbours(jnp.asarray(X), N - 1), 1e-8 if is_double else 2e-3

        @jax.jit
        def run(p, near, new):
            value, slope = jax.value_and_grad(lambda p: log_density(model, (p, near), {}, {})[0])(p)
            found = model(p, near)(new)
            return value, slope, found.mean, found.variance

        p = {name: jnp.asarray(value) for name, value in POINT.items()}
        value, slope, mean, variance = run(p, near, jnp.asarray(NEW))
        np.testing.assert_allclose(value, exact(POINT), rtol=tolerance)
        for name, own in POINT.items():
            by_hand = (exact({**POINT, name: own + 1e-5}) - exact({**POINT, name: own - 1e-5})) / 2e-5
            np.testing.assert_allclose(slope[name], by_hand, rtol=1e-6 if is_double else 1e-2)
        covariance, cross = gram(POINT) + 0.09 * np.eye(N), gram(POINT, X, NEW)
        np.testing.assert_allclose(mean, 0.5 + cross.T @ np.linalg.solve(covariance, Y - 0.5), rtol=tolerance)
        expected = 1.3 - (cross * np.linalg.solve(covariance, cross)).sum(axis=0)
        np.testing.assert_allclose(variance, expected, rtol=10 * tolerance)


def test_with_few_the_rest_alone_is_given_neighbours():
    """The density of data whose rest has neighbours, by NumPy; draws are linear in their noise."""
    near = ngp.neighbours(X, 3)
    p = {name: jnp.asarray(value) for name, value in POINT.items()}
    fn = handlers.trace(lambda: model(p, near)).get_trace()["y"]["fn"]
    data, points = fn.data, gram(POINT, Z, Z)
    points += 1e-6 * np.mean(np.diag(points)) * np.eye(5)
    shared = gram(POINT, X, Z) @ np.linalg.solve(points, gram(POINT, Z, X))
    rest, weights = gram(POINT) - shared + 0.09 * np.eye(N), np.eye(N)
    deviations = np.zeros(N)
    for i, row in enumerate(np.asarray(near.index)):
        at = row[row >= 0]
        own = np.linalg.solve(rest[np.ix_(at, at)], rest[at, i]) if len(at) else np.zeros(0)
        weights[i, at] = -own
        deviations[i] = np.sqrt(rest[i, i] - own @ rest[at, i])
    root = np.linalg.solve(weights, np.diag(deviations))
    covariance = shared + root @ root.T
    density = multivariate_normal(np.full(N, 0.5), covariance).logpdf(Y)
    np.testing.assert_allclose(jax.jit(fn.log_prob)(jnp.asarray(Y)), density, rtol=1e-8)
    white, values = np.eye(N + 5)[:, :N], np.eye(N + 5)[:, N:]
    drawn = np.asarray(jax.jit(data.drawn)(jnp.asarray(white), jnp.asarray(values))) - 0.5
    np.testing.assert_allclose(drawn.T @ drawn, covariance, atol=1e-8)
    assert jax.eval_shape(lambda key: fn.sample(key, (2,)), jax.random.key(0)).shape == (2, N)
    assert jax.eval_shape(fn.log_prob, jnp.stack([Y, Y])).shape == (2,)


@pytest.mark.long
def test_a_draw_from_it_is_no_replicate_of_the_data():
    """It is one of the prior: `Posterior.draws` does not take it for new data given these, and has left-out densities."""
    near = ngp.neighbours(X, 4)
    site = handlers.trace(handlers.seed(model, 0)).get_trace(POINT, near)["y"]

    def sampled(near):
        return model({name: numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in POINT}, near)

    posterior = ngp.Posterior.from_mcmc(sampled, {name: jnp.full(2, value) for name, value in POINT.items()})
    assert posterior.draws(jax.random.key(0), near).replicated == {}
    mean, variance = jax.jit(site["fn"].data.left_out)()
    terms = jax.jit(lambda y: log_likelihood(site["fn"], y))(jnp.asarray(Y))
    np.testing.assert_allclose(terms, norm.logpdf(Y, mean, np.sqrt(variance)), rtol=1e-8)


def test_the_pass_over_the_data_is_not_repeated_for_each_chunk_of_new_rows():
    """What a prediction does for each chunk is one factor of each block: the rest is found once for each draw."""
    near, p = ngp.neighbours(X, 4), {name: jnp.asarray(value) for name, value in POINT.items()}

    def at(fixed, p, new):
        found = model(p, fixed[0], fixed[1])(new)
        return found.loc, found.scale

    found = traced(at, (near, jnp.asarray(Y)), p, near.find(NEW, 6))
    count = len(found.constants) + len(jax.tree.leaves((near, jnp.asarray(Y)))) + len(p)
    before, chunk = split(found.program, count)
    assert str(chunk).count("cholesky") == 1
    assert str(before).count("cholesky") >= 3
