"""A quantity of an additive process at each draw of a posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.additive import sobol
from numpyro_gp.kernels import RBF, Uniform, ZeroMean
from numpyro_gp.sites import unwrap


def model(X, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.1))
    kernels = {name: ZeroMean(RBF(scale, 0.4), Uniform(0.0, 1.0)).on(d) for d, name in enumerate(("a", "b"))}
    line = jnp.linspace(0.0, 1.0, 4)[:, None] * jnp.ones((1, 2))
    f = ngp.additive_gp("f", kernels, {"a": line, "b": line})
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)


@pytest.mark.long
def test_each_draw_of_a_posterior(rng):
    """The process of draw s is the model's at that draw's values."""
    X = jnp.asarray(rng.uniform(size=(5, 2)))
    stored = {"scale": jnp.array([0.5, 1.0, 2.0]), "f": jnp.asarray(rng.normal(size=(3, 8)))}
    posterior = ngp.Posterior.from_mcmc(model, stored)
    found = sobol.each_draw(posterior, jax.random.key(0), lambda f, key: f(X).loc, X)
    assert found.shape == (3, 5)
    with handlers.seed(rng_seed=0), handlers.substitute(data={k: v[2] for k, v in stored.items()}):
        trace = handlers.trace(model).get_trace(X)
    np.testing.assert_allclose(found[2], unwrap(trace["y"]["fn"]).mean_latent, rtol=1e-9)
    shares = sobol.sample(posterior, jax.random.key(1), X, num_samples=9)
    assert shares.index["a"].shape == (9,)
    np.testing.assert_allclose(sum(shares.index.values()), 1.0, rtol=1e-9)
