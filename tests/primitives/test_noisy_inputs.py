"""Inputs with errors of known spread: what is sampled, under every engine, in minibatches and in predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers

import numpyro_gp as ngp

X = np.linspace(-2.0, 2.0, 12)[:, None]
SCALE = np.linspace(0.1, 0.4, 12)[:, None]
Z = jnp.linspace(-2.5, 2.5, 6)[:, None]
Y = jnp.asarray(np.sin(2 * X[:, 0]))


def model(X, y=None, scale=None, batch=None):
    noise = numpyro.sample("noise", dist.LogNormal(-2.0, 0.5))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), inducing=Z)
    with numpyro.plate("data", len(X), subsample_size=batch) as idx:
        x = numpyro.deterministic("true_x", ngp.noisy_inputs("x", X[idx], scale[idx]))
        ngp.observe("y", f(x), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def test_inputs_move_by_their_own_spread_and_rows_travel_with_minibatches():
    errors, rows = jnp.asarray(np.random.default_rng(0).normal(size=(4, 1))), jnp.array([7, 0, 11, 3])
    fixed = handlers.substitute(handlers.seed(model, 0), data={"data": rows, "x": errors})
    trace = handlers.trace(fixed).get_trace(X, Y, jnp.asarray(SCALE), 4)
    assert_allclose(trace["true_x"]["value"], X[rows] + SCALE[rows] * errors)
    assert_allclose(trace["x"]["fn"].log_prob(errors), -0.5 * (errors[:, 0] ** 2 + np.log(2 * np.pi)))
    assert trace["x"]["scale"] == 3.0


@pytest.mark.parametrize("scale", [0.3, np.array([0.3]), np.full((12, 1), 0.3)])
def test_a_spread_may_be_shared(scale):
    with handlers.seed(rng_seed=0), numpyro.plate("data", 12):
        moved = ngp.noisy_inputs("x", X, scale)
    with handlers.seed(rng_seed=0), numpyro.plate("data", 12):
        assert_allclose(moved, ngp.noisy_inputs("x", X, 0.3))
    assert not np.allclose(moved, X)


@pytest.mark.long
def test_predictions_of_new_rows_integrate_over_their_error():
    """The mean over the error of the input, by SciPy's nodes at a function that is known: sin(x)'s is exp(-s^2/2) sin(X)."""
    f = np.sin(2 * np.asarray(Z))[:, 0]
    basis = ngp.kernels.RBF(1.0, 1.0)
    factor = np.linalg.cholesky(np.asarray(basis.matrix(Z)) + 1e-8 * np.eye(6))
    whitened = np.tile(np.linalg.solve(factor, f), (4000, 1))
    posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.asarray(whitened), "noise": jnp.full(4000, 0.1)})
    new = jnp.array([[0.5], [-1.0]])
    found = posterior.predict(jax.random.key(0), new, scale=jnp.full((2, 1), 0.4), num_samples=4000)
    weights, at = np.linalg.solve(np.asarray(basis.matrix(Z)) + 1e-8 * np.eye(6), f), np.asarray(Z)[:, 0]
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)
    moved = np.asarray(new) + 0.4 * nodes
    values = np.exp(-0.5 * (moved[..., None] - at) ** 2) @ weights
    exact = values @ (mass / mass.sum())
    spread = (values**2) @ (mass / mass.sum()) - exact**2
    assert_allclose(found.mean, exact, atol=4 * np.sqrt(spread.max() / 4000) + 1e-3)
    assert np.all(np.abs(exact - np.exp(-0.5 * (np.asarray(new) - at) ** 2) @ weights) > 0.02)  # the error matters
    known = posterior.predict(jax.random.key(0), new, scale=jnp.zeros((2, 1)), num_samples=4)
    assert_allclose(known.mean, np.exp(-0.5 * (np.asarray(new) - at) ** 2) @ weights, rtol=1e-4)


def test_latent_columns_are_appended_and_scored():
    X = jnp.arange(6.0).reshape(3, 2)
    with handlers.seed(rng_seed=0), handlers.trace() as trace, numpyro.plate("data", 3):
        widened = ngp.latent_inputs("w", X, dim=2)
    np.testing.assert_array_equal(widened, np.hstack([X, trace["w"]["value"]]))
    assert (trace["w"]["fn"].batch_shape, trace["w"]["fn"].event_shape) == ((3,), (2,))


def test_errors():
    for scale, words in (
        (-0.1, "scale must be zero or positive"),
        (np.full((3, 1), 0.1), r"scale must be of shape \(\), \(1,\) or \(12, 1\), but got shape \(3, 1\)"),
        (np.array([np.nan]), "scale must be finite"),
    ):
        with handlers.seed(rng_seed=0), pytest.raises(ValueError, match=words):
            ngp.noisy_inputs("x", X, scale)
    with handlers.seed(rng_seed=0), pytest.raises(TypeError, match="name must be"):
        ngp.noisy_inputs(3, X, 0.1)
