"""As many draws as a measured error asks for: latent inputs against quadrature, and what is said at the cap."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import stats

import numpyro_gp as ngp
from tests.fits import at_start, fit, known, normal

KEY = jax.random.key(0)
Z = np.random.default_rng(0).normal(size=(6, 2))
MEAN = 2 * np.random.default_rng(1).normal(size=6)
X, Y = np.linspace(-1.0, 1.0, 5)[:, None], np.array([0.0, 0.5, -0.5, 1.0, -1.0])


def model(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, jnp.array([1.0, 0.7])), jnp.asarray(Z))
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.1), obs=y)


@functools.cache
def posterior():
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(scale=0.1)})
    return at_start(model, guide, jnp.asarray(X), jnp.asarray(Y), **{"f/mean": jnp.asarray(MEAN)})


def quadrature():
    """log of the integral of N(w; 0, 1) N(y; m(x, w), v(x, w) + 0.01) over w, by 2001 points."""

    def kernel(A, B):
        return np.exp(-0.5 * (((A[:, None] - B[None]) / np.array([1.0, 0.7])) ** 2).sum(-1))

    w, factor = np.linspace(-6, 6, 2001), np.linalg.cholesky(kernel(Z, Z) + 1e-6 * np.eye(6))
    found = []
    for x, y in zip(X[:, 0], Y, strict=True):
        whitened = np.linalg.solve(factor, kernel(Z, np.c_[np.full_like(w, x), w]))
        variance = 1 - (1 - 0.01) * (whitened**2).sum(0) + 0.01
        found.append(np.trapezoid(stats.norm.pdf(w) * stats.norm.pdf(y, MEAN @ whitened, np.sqrt(variance)), w))
    return np.log(found)


@pytest.mark.long
def test_latent_inputs_are_drawn_until_the_log_density_is_that_of_quadrature():
    few = posterior().predict(KEY, jnp.asarray(X))
    assert few.num_draws == 100
    assert np.abs(few.log_density(Y) - quadrature()).max() > 0.1
    many = posterior().predict(KEY, jnp.asarray(X), tolerance=0.04)
    off, error = np.asarray(many.log_density(Y)) - quadrature(), np.asarray(many.log_density_error(Y))
    assert (np.abs(off) < 3.5 * error).all()
    assert 0.01 < error.max() < 0.06
    assert 500 < many.num_draws < 2000
    drawn = np.stack([many.log_density_error(y) for y in many.sample(8)])
    assert np.sqrt(np.mean(drawn**2)) <= 0.04


@pytest.mark.long
def test_it_is_said_where_the_most_draws_do_not_suffice():
    own, rows = posterior(), jnp.asarray(X)
    with pytest.warns(UserWarning, match=r"with 100 draws, above tolerance=0.04. About \d+ draws would do"):
        assert own.predict(KEY, rows, tolerance=0.04, num_samples=100).num_draws == 100
    with pytest.raises(ValueError, match="tolerance must be positive"):
        own.predict(KEY, rows, tolerance=0.0)
    with pytest.raises(ValueError, match="tolerance must be None for an iterator"):
        own.predict(KEY, iter([rows]), tolerance=0.1)


def test_stored_draws_are_the_most_and_what_is_certain_is_not_measured():
    chains = ngp.Posterior.from_mcmc(known, {"f": 3 * normal(4, 4)})
    with pytest.warns(UserWarning, match="with 4 draws, above tolerance=0.01"):
        assert chains.predict(KEY, jnp.asarray(X), tolerance=0.01).num_draws == 4
    # Here a warning is an error.
    assert fit("start").predict(KEY, jnp.asarray(X), tolerance=0.01).num_draws == 1
