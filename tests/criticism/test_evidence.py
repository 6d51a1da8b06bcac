"""What a verdict judges, against dense matrices and the definition of leaving one out."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism import evidence
from numpyro_gp.criticism.evidence import distance_lengthscales, gather
from numpyro_gp.likelihoods import Censored, Exponential
from numpyro_gp.rows.call import call_of
from numpyro_gp.sites import Observation
from tests.criticism import faults
from tests.criticism.faults import DRAWS, NOISE, X, Z, posterior, y

KNOWN = {"lengthscale": 1.0, "variance": 0.8, "noise": NOISE}
CLUSTERED, KEY = Z / 3 - 2, jax.random.key(0)


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
def test_what_is_left_unexplained_is_that_of_dense_matrices():
    call = call_of(faults.model, (X, y), {"Z": CLUSTERED})
    own = {name: np.full(DRAWS, value) for name, value in KNOWN.items()}
    fact = gather(posterior(Z=CLUSTERED, **own), KEY, call, None).processes["f"]
    kernel = faults.kernel(0.8, 1.0)
    cross, inner = (np.asarray(kernel.matrix(at, CLUSTERED)) for at in (X, CLUSTERED))
    explained = np.einsum("nm,mn->n", cross, np.linalg.solve(inner, cross.T))
    np.testing.assert_allclose(fact.left, np.mean(0.8 - explained), rtol=1e-4)
    kernel = faults.kernel(0.8, 0.5)
    cross, inner = (np.asarray(kernel.matrix(at, CLUSTERED)) for at in (X, CLUSTERED))
    explained = np.einsum("nm,mn->n", cross, np.linalg.solve(inner, cross.T))
    np.testing.assert_allclose(fact.at_half, np.mean(0.8 - explained), rtol=1e-4)
    for found, wanted in ((fact.prior, 0.8), (fact.lengthscales, 1.0), (fact.extent, 6.0)):
        np.testing.assert_allclose(found, wanted)


def test_lengthscales_know_their_columns():
    RBF, Periodic = ngp.kernels.RBF, ngp.kernels.Periodic
    found = distance_lengthscales(2.0 * RBF(1.0, jnp.array([0.5, 3.0])).on([2, 0]) + RBF(1.0, 4.0).on(1), (0, 1, 2))
    assert [(columns, value.tolist()) for columns, value in found] == [((2, 0), [0.5, 3.0]), ((1,), [4.0])]
    assert distance_lengthscales(RBF(1.0, 2.0) * Periodic(1.0, 1.0, 3.0), (0,)) == []


def test_draws_of_what_was_censored_are_not_compared_with_its_bounds():
    """Copies of the times themselves beside bounds that cut them would look like a wrong likelihood."""
    f = dist.Normal(jnp.zeros(3), jnp.ones(3))
    for likelihood, compared in ((Exponential(), True), (Censored(Exponential(), right=jnp.ones(3, bool)), False)):
        fn = Observation(f, likelihood)
        assert (evidence._copies(fn, fn, jax.random.key(0), 2) is not None) == compared


def over(inputs, points, noise=0.5):
    """A model of rows that are no plain inputs."""

    def model(X, y=None):
        f = ngp.gp("f", 2.0 * ngp.kernels.RBF(1.0, 0.7), points)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(inputs(X)), ngp.likelihoods.Gaussian(noise), obs=y)

    return model


@pytest.mark.long
def test_lengthscales_of_functionals_are_beside_the_extent_of_their_points():
    """Rows of slopes hold weights and directions too, which do not vary: the extent would be zero."""
    points = 100.0 + 2.0 * jnp.linspace(0.0, 1.0, 8)[:, None]
    rows = ngp.functionals.stack([points, ngp.functionals.Derivative(points, 0)])
    model = over(lambda rows: rows, points[::3])
    fit = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((2, 3))})
    fact = gather(fit, KEY, call_of(model, (rows, jnp.zeros(16)), {}), None).processes["f"]
    np.testing.assert_allclose(fact.lengthscales, [[0.7]] * 2)
    np.testing.assert_allclose(fact.extent, [[2.0]] * 2)


def test_events_and_nodes_are_not_judged_as_data(capsys):
    """Their ones and zeros are no counts of cells: intervals held 21 % of them under a fit that was right."""
    nodes, events = (jnp.arange(20) + 0.5)[:, None] / 20, jnp.linspace(0.02, 0.98, 25)[:, None]

    def model(events=None):
        f = ngp.gp("f", ngp.kernels.Matern52(1.0, 0.5), nodes[::2], mean=jnp.log(25.0))
        ngp.point_pattern("y", f, nodes, 0.05, events)

    fit = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((20, 10))})
    assert ngp.diagnose.verdict(fit, events) == ()
    assert "inducing inputs and lengthscales. Such data are not judged" in capsys.readouterr().out


@pytest.mark.long
def test_data_with_latent_inputs_of_their_own_are_not_judged():
    """They are drawn with the datum seen; intervals of the gallery's conditional density held 13 %. Noise is looked at."""
    model = over(lambda X: ngp.noisy_inputs("x", X, 0.3), Z[::5])
    fit = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((4, 3)), "x": jnp.zeros((4, len(X), 1))})
    seen = gather(fit, KEY, call_of(model, (X, y), {}), None).sites["y"]
    assert (seen.z.size, seen.pit.size, seen.y.size) == (0, 0, len(X))
    np.testing.assert_allclose(seen.noise, 0.5)


@pytest.mark.long
def test_copies_of_two_sites_have_noise_of_their_own():
    """Two sites with equal data and rates had the same copies, number for number."""

    def model(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.7), jnp.linspace(0.0, 1.0, 3)[:, None])
        with numpyro.plate("data", len(X)):
            mean = f(X).loc
            for name in "yz":
                numpyro.sample(name, dist.Poisson(jnp.exp(mean)), obs=y)

    fit = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((5, 3))})
    seen = gather(fit, KEY, call_of(model, (jnp.linspace(0.0, 1.0, 40)[:, None], jnp.ones(40)), {}), None).sites
    level = np.stack([seen[name].level for name in "yz"])
    assert abs(np.corrcoef(level)[0, 1]) < 0.5
