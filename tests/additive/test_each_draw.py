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


def test_two_processes_under_one_key_have_noise_of_their_own():
    """Each had the same key: draws of the shares of ``f`` and ``g`` moved together as if one knew of the other."""

    def model(X, y=None):
        kernel, points = {"a": ZeroMean(RBF(1.0, 0.4), Uniform(0.0, 1.0))}, {"a": jnp.linspace(0.0, 1.0, 4)[:, None]}
        f, g = (ngp.additive_gp(name, kernel, points) for name in "fg")
        with numpyro.plate("data", len(X)):
            ngp.observe("y", (f(X), g(X)), lambda f, g: dist.Normal(f + g, 1.0), obs=y)

    posterior, X = ngp.Posterior.from_mcmc(model, {name: jnp.zeros((300, 4)) for name in "fg"}), jnp.zeros((2, 1))
    normal = lambda f, key: jax.random.normal(key)  # noqa: E731
    f, g = (sobol.each_draw(posterior, jax.random.key(0), normal, X, site=name) for name in "fg")
    assert abs(np.corrcoef(f, g)[0, 1]) < 0.2
