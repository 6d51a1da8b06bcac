"""Values of a fit are those at its inducing inputs: predictions refuse others of the same number."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import numpyro.infer
import optax
import pytest
from numpyro.infer import MCMC, SVI, Trace_ELBO

import numpyro_gp as ngp

KEY = jax.random.key(0)
X = np.random.default_rng(0).uniform(size=(12, 2))
Y, Z, OTHER = np.sin(5 * X[:, 0]), X[:4].copy(), X[4:8].copy()
REFUSAL = "inducing inputs of 'f' must be those of the fit, but got others, up to"


def model(X, y=None, *, Z):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)


def variational(own=model, guide=None):
    return SVI(own, guide or ngp.AutoGP(own), optax.adam(0.01), Trace_ELBO())


def by_fit(Z, svi=None):
    svi = svi or variational()
    result = ngp.fit(KEY, svi, 1, X, Y, Z=Z, progress=False)
    return ngp.Posterior.from_svi(svi.model, svi.guide, result.params)


@cache
def fitted():
    """For tests that ask it and leave it as it is."""
    return by_fit(Z)


@cache
def by_particles():
    svgd = ngp.stein.SVGD(model, optax.adam(0.01), num_stein_particles=1)
    return ngp.Posterior.from_stein(model, svgd, ngp.fit(KEY, svgd, 1, X, Y, Z=Z, progress=False).params)


@pytest.mark.long
@pytest.mark.parametrize("sampler", [ngp.NUTS, numpyro.infer.NUTS])
def test_predictions_from_a_chain_at_other_inducing_inputs_are_refused(sampler):
    mcmc = MCMC(sampler(model), num_warmup=2, num_samples=2, progress_bar=False)
    mcmc.run(KEY, X, Y, Z=Z)
    posterior = ngp.Posterior.from_mcmc(model, mcmc)
    wanted = posterior.predict(KEY, X[:3], Z=Z).mean
    assert jnp.array_equal(posterior.predict(KEY, X[:3], Z=jnp.asarray(Z)).mean, wanted)
    with pytest.raises(ValueError, match=REFUSAL):
        posterior.predict(KEY, X[:3], Z=OTHER)


@pytest.mark.long
def test_a_saved_posterior_knows_them(tmp_path):
    by_particles().save(tmp_path / "particles.npz")
    saved, new_guide = fitted(), ngp.AutoGP(model)
    saved.save(tmp_path / "fit.npz")
    with pytest.raises(TypeError, match=r"args and kwargs must be arguments of the model, but got .*missing .*'X'"):
        ngp.Posterior.load(tmp_path / "fit.npz", model, new_guide, Z=OTHER)
    particles = ngp.Posterior.load(tmp_path / "particles.npz", model)
    loaded = ngp.Posterior.load(tmp_path / "fit.npz", model, new_guide, np.zeros((1, 2)), np.zeros(1), Z=OTHER)
    np.testing.assert_array_equal(loaded.predict(KEY, X, Z=Z).mean, saved.predict(KEY, X, Z=Z).mean)
    for posterior in (particles, loaded):
        posterior.predict(KEY, X[:3], Z=Z)
        with pytest.raises(ValueError, match=REFUSAL):
            posterior.predict(KEY, X[:3], Z=OTHER)


@pytest.mark.long
def test_components_of_an_additive_process_are_named():
    def additive(X, y=None, *, Z):
        kernels = {name: ngp.kernels.RBF(1.0, 1.0).on(column) for column, name in enumerate("ab")}
        f = ngp.additive_gp("f", kernels, Z)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    svi = variational(additive)
    result = ngp.fit(KEY, svi, 1, X, Y, Z={"a": Z, "b": Z}, progress=False)
    posterior = ngp.Posterior.from_svi(additive, svi.guide, result.params)
    with pytest.raises(ValueError, match="inducing inputs of 'f', component 'b' must be"):
        posterior.predict(KEY, X, Z={"a": Z, "b": OTHER})
