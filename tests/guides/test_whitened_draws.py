"""Draws of beliefs that read their basis stand on the basis of each draw of the hyper-parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoDelta, AutoNormal

import numpyro_gp as ngp

X = jnp.linspace(-1, 1, 6)[:, None]
Y, Z, SHIFT = X[:, 0], X[::2], jnp.array([30.0, -30.0, 20.0])
PRECISION = 1e4 * jnp.eye(3)  # so much that v is L^-1 shift / 1e4, all but certain


def model(X, y=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, lengthscale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


def guide_of(rest):
    guide = ngp.AutoGP(model, {"f": lambda name, prior: ngp.beliefs.Conditional(SHIFT, PRECISION)}, rest=rest)
    with numpyro.handlers.seed(rng_seed=0):
        guide(X, X[:, 0])
    names = {"lengthscale_auto_loc": jnp.asarray(0.3)}
    more = {} if rest is AutoDelta else {"lengthscale_auto_scale": jnp.asarray(0.8)}
    return guide, names | more


@pytest.mark.long
def test_each_draw_has_its_own_basis():
    guide, params = guide_of(AutoNormal)
    found = guide.sample_posterior(jax.random.key(0), params, X, Y, sample_shape=(2, 3))
    lengthscales = found["lengthscale"].ravel()
    assert np.ptp(np.log(lengthscales)) > 0.5
    for v, lengthscale in zip(found["f"].reshape(-1, 3), lengthscales, strict=True):
        u = ngp.beliefs.Basis.build(ngp.kernels.Matern52(1.0, lengthscale), Z).factor @ v
        np.testing.assert_allclose(u, SHIFT / 1e4, atol=0.06)
    alone = guide.sample_posterior(jax.random.key(0), params, X, Y)
    assert alone["f"].shape == (3,)


@pytest.mark.long
def test_median_and_quantiles_stand_at_the_medians():
    guide, params = guide_of(AutoNormal)
    basis = ngp.beliefs.Basis.build(ngp.kernels.Matern52(1.0, jnp.exp(0.3)), Z)
    mean, scale = ngp.beliefs.Conditional(SHIFT, PRECISION).whitened_moments(basis)
    np.testing.assert_allclose(guide.median(params, X, Y)["f"], mean, atol=1e-9)
    low = guide.quantiles(params, [0.15865525393145707, 0.5], X, Y)["f"]
    np.testing.assert_allclose(low, jnp.stack([mean - scale, mean]), atol=1e-8)
    guide, params = guide_of(AutoDelta)
    with pytest.raises(TypeError, match=r"args must be those of the model: whitened values of \['f'\] follow"):
        guide.sample_posterior(jax.random.key(0), params)
