"""Edges that use has found: integer inputs, improper priors, lists of guides, offsets."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoGuideList, AutoNormal

import numpyro_gp as ngp
from numpyro_gp.programs.set_up import Feasible

# A path of five nodes: the inverse of its Laplacian plus a half is a covariance.
LAPLACIAN = np.diag([1.0, 2.0, 2.0, 2.0, 1.0]) - np.diag(np.ones(4), 1) - np.diag(np.ones(4), -1)
COVARIANCE = np.linalg.inv(LAPLACIAN + 0.5 * np.eye(5))
NODES = jnp.arange(5)[:, None]
X, y = jnp.array([[0], [2], [4], [2]]), jnp.array([1.0, -1.0, 0.5, -0.8])
REAL = jnp.linspace(-1.0, 1.0, 6)[:, None]


def graph(A, B):
    """A covariance read off a table, which floats cannot index."""
    return jnp.asarray(COVARIANCE)[A[:, 0][:, None], B[:, 0][None, :]]


def regression(kernel):
    def model(X, y=None):
        ngp.gp_regression("y", kernel, X, noise_variance=0.1, obs=y)

    return model


def test_a_kernel_on_nodes_gets_integers_and_regression_is_that_of_the_table():
    posterior = ngp.Posterior.from_mcmc(regression(graph), {"unused": jnp.zeros(1)})
    found = posterior.predict_at(jax.random.key(0), NODES, X, y)
    at = np.asarray(X)[:, 0]
    K = COVARIANCE[np.ix_(at, at)] + 0.1 * np.eye(4)
    np.testing.assert_allclose(found.mean, COVARIANCE[:, at] @ np.linalg.solve(K, np.asarray(y)), rtol=1e-9)


def test_kernels_of_classes_read_integers_as_floats_beside_a_function():
    kernel = ngp.kernels.RBF(1.0, 2.0)
    np.testing.assert_array_equal(kernel.matrix(NODES), kernel.matrix(NODES.astype(float)))
    mixed = 2.0 * (kernel * ngp.kernels.as_kernel(graph)).on(1) + kernel.on(0)
    pairs = jnp.concatenate([NODES[::-1], NODES], axis=1)
    expected = 2.0 * kernel.matrix(NODES) * COVARIANCE + kernel.matrix(NODES[::-1])
    np.testing.assert_allclose(mixed.matrix(pairs), expected, rtol=1e-12)
    np.testing.assert_allclose(mixed.diagonal(pairs), np.diag(expected), rtol=1e-12)
    with pytest.raises(ValueError, match=r"X must be whole numbers, as the inducing inputs are, but got 0\.5"):
        ngp.kernels.as_kernel(graph).of_integers().matrix(jnp.array([[0.5]]))


def test_an_improper_prior_starts_inside_its_support():
    site = dist.ImproperUniform(dist.constraints.interval(2.0, 3.0), (4,), ())
    with Feasible(), handlers.seed(rng_seed=0):
        drawn = numpyro.sample("x", site)
        assert numpyro.sample("y", site, obs=jnp.full(4, 2.5))[0] == 2.5
    assert drawn.shape == (4,)
    assert ((drawn > 2) & (drawn < 3)).all()
    assert np.unique(drawn).size == 4


@pytest.mark.long
def test_improper_priors_under_nuts_and_svi():
    """Of a normal mean with a flat prior the posterior is known: the mean of the data, and their noise over sqrt(N)."""

    def model(y):
        mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
        with numpyro.plate("data", len(y)):
            ngp.observe("y", dist.Delta(jnp.broadcast_to(mean, y.shape)), ngp.likelihoods.Gaussian(1.0), obs=y)

    data = jnp.array([2.0, 3.0, 4.0, 3.0])
    mcmc = MCMC(ngp.NUTS(model), num_warmup=200, num_samples=400, progress_bar=False)
    mcmc.run(jax.random.key(0), data)
    draws = mcmc.get_samples()["mean"]
    assert abs(draws.mean() - 3.0) < 0.15
    assert 0.4 < draws.std() < 0.6
    svi = SVI(model, ngp.AutoGP(model), optax.adam(0.1), Trace_ELBO())
    fit = ngp.fit(jax.random.key(0), svi, 200, data, progress=False)
    np.testing.assert_allclose(fit.params["mean_auto_loc"], 3.0, atol=1e-2)


@pytest.mark.long
def test_a_list_of_guides_that_holds_ours_predicts():
    def model(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), inducing=REAL[::2])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    guide = AutoGuideList(model)
    guide.append(ngp.AutoGP(handlers.block(model, hide=["noise"])))
    guide.append(AutoNormal(handlers.block(model, expose=["noise"])))
    svi = SVI(model, guide, optax.adam(0.05), Trace_ELBO())
    fit = ngp.fit(jax.random.key(0), svi, 5, REAL, REAL[:, 0], progress=False)
    posterior = ngp.Posterior.from_svi(model, guide, fit.params)
    assert posterior.predict(jax.random.key(1), REAL).mean.shape == (6,)
    assert np.ptp(posterior.hyperparameters(jax.random.key(1), REAL, REAL[:, 0])["noise"]) > 0
    with pytest.raises(ValueError, match="params must be the parameters of the guide"):
        ngp.Posterior.from_svi(model, guide, {"f/mean": fit.params["f/mean"]})


@pytest.mark.parametrize("kind", ["outputs", "tuple", "joint", "values"])
def test_an_offset_moves_every_output_of_a_datum_and_no_log_variance(kind):
    normal, offset = dist.Normal(jnp.zeros((4, 2)), jnp.ones((4, 2))), jnp.arange(4.0)
    f = {
        "outputs": normal.to_event(1),
        "tuple": (dist.Normal(jnp.zeros(4), jnp.ones(4)),) * 2,
        "joint": dist.MultivariateNormal(jnp.zeros((4, 2)), jnp.eye(2)),
        "values": dist.Delta(jnp.zeros(4)),
    }[kind]
    likelihood = (
        ngp.likelihoods.Gaussian(1.0) if kind in ("outputs", "values") else ngp.likelihoods.HeteroscedasticGaussian()
    )
    with handlers.seed(rng_seed=0), handlers.trace() as trace, numpyro.plate("data", 4):
        ngp.observe("y", f, likelihood, offset=offset)
    found = trace["y"]["fn"].mean_latent
    wanted = np.tile(offset[:, None], 2) if kind == "outputs" else np.stack([offset, np.zeros(4)], axis=-1)
    np.testing.assert_array_equal(found, offset if kind == "values" else wanted)
