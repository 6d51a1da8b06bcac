"""What a verdict judges, against dense matrices and the definition of leaving one out."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism import evidence
from numpyro_gp.criticism.evidence import gather, lengthscales
from numpyro_gp.likelihoods import Censored, Exponential
from numpyro_gp.rows.call import call_of
from numpyro_gp.sites import Observation
from tests.criticism import faults
from tests.criticism.faults import DRAWS, NOISE, X, Z, posterior, y

KNOWN = {"lengthscale": 1.0, "variance": 0.8, "noise": NOISE}
CLUSTERED = Z / 3 - 2


def dense_leave_one_out(covariance, y):
    """From the definition: the Gaussian conditional of each datum given all others, one by one."""
    moments = []
    for n in range(len(y)):
        rest = np.arange(len(y)) != n
        solved = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, n])
        moments.append((solved @ y[rest], covariance[n, n] - solved @ covariance[rest, n]))
    return np.array(moments).T


@pytest.mark.long
def test_residuals_leave_their_datum_out():
    """One draw of known hyper-parameters: exactly, and under ``Q + noise`` with the variance that is left added."""
    one = {name: jnp.asarray([value]) for name, value in KNOWN.items()}
    fit, few = ngp.Posterior.from_mcmc(faults.exact, one), Z[::3]
    K, cross = (np.asarray(faults.kernel(0.8, 1.0).matrix(X, own)) for own in (X, few))
    Q = cross @ np.linalg.solve(np.asarray(faults.kernel(0.8, 1.0).matrix(few)), cross.T)
    for prior, keywords in ((K, {}), (Q, {"Z": few})):
        mean, variance = dense_leave_one_out(prior + NOISE**2 * np.eye(len(X)), np.asarray(y))
        seen = gather(fit, jax.random.key(0), call_of(faults.exact, (X, y), keywords), None).sites["y"]
        z = (np.asarray(y) - mean) / np.sqrt(variance + np.diag(K - prior))
        np.testing.assert_allclose(seen.z, z, rtol=2e-3 if keywords else 1e-8, atol=1e-4 if keywords else 1e-8)


@pytest.mark.long
def test_importance_weights_leave_a_datum_out():
    """Draws of whitened values at known hyper-parameters: nearer to the exact residuals than those of the whole fit."""
    constant = {name: np.full(DRAWS, value) for name, value in KNOWN.items()}
    call = call_of(faults.model, (X, y), {"Z": Z})
    seen = gather(posterior(**constant), jax.random.key(0), call, None).sites["y"]
    one = {name: jnp.asarray(value[:1]) for name, value in constant.items()}
    exact = ngp.Posterior.from_mcmc(faults.exact, one)
    wanted = gather(exact, jax.random.key(0), call_of(faults.exact, (X, y), {"Z": Z}), None).sites["y"].z
    plain = (seen.y - seen.level) / seen.spread
    assert np.sqrt(np.mean((seen.z - wanted) ** 2)) < 0.5 * np.sqrt(np.mean((plain - wanted) ** 2))


def test_what_is_left_unexplained_is_that_of_dense_matrices():
    call = call_of(faults.model, (X, y), {"Z": CLUSTERED})
    own = {name: np.full(DRAWS, value) for name, value in KNOWN.items()}
    fact = gather(posterior(Z=CLUSTERED, **own), jax.random.key(0), call, None).processes["f"]
    kernel = faults.kernel(0.8, 1.0)
    cross, inner = (np.asarray(kernel.matrix(at, CLUSTERED)) for at in (X, CLUSTERED))
    explained = np.einsum("nm,mn->n", cross, np.linalg.solve(inner, cross.T))
    np.testing.assert_allclose(fact.left, np.mean(0.8 - explained), rtol=1e-4)
    np.testing.assert_allclose(fact.prior, 0.8)
    np.testing.assert_allclose(fact.lengthscales, 1.0)
    np.testing.assert_allclose(fact.extent, 6.0)


def test_lengthscales_know_their_columns():
    RBF, Periodic = ngp.kernels.RBF, ngp.kernels.Periodic
    found = lengthscales(2.0 * RBF(1.0, jnp.array([0.5, 3.0])).on([2, 0]) + RBF(1.0, 4.0).on(1), (0, 1, 2))
    assert [(columns, value.tolist()) for columns, value in found] == [((2, 0), [0.5, 3.0]), ((1,), [4.0])]
    assert lengthscales(RBF(1.0, 2.0) * Periodic(1.0, 1.0, 3.0), (0,)) == []


def test_draws_of_what_was_censored_are_not_compared_with_its_bounds():
    """Copies of the times themselves beside bounds that cut them would look like a wrong likelihood."""
    f = dist.Normal(jnp.zeros(3), jnp.ones(3))
    for likelihood, compared in ((Exponential(), True), (Censored(Exponential(), right=jnp.ones(3, bool)), False)):
        fn = Observation(f, likelihood)
        assert (evidence._copies(fn, fn, jax.random.key(0), 2) is not None) == compared
