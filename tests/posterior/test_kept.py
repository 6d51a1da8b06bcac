"""A posterior in a file."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from tests.posterior.test_posterior import CASE, fitted, noisy_model


@pytest.mark.long
def test_a_saved_posterior_predicts_the_same_bits(tmp_path):
    X = jnp.asarray(CASE["Xs"])
    guide, params = fitted(noisy_model, AutoNormal, steps=2)
    svi = ngp.Posterior.from_svi(noisy_model, guide, params)
    draws = {"f": jnp.arange(15.0).reshape(3, 5) / 15, "noise": jnp.array([0.2, 0.3, 0.4])}
    chains = {"num_chains": 3, "extra_fields": {"energy": jnp.arange(3.0)}}
    mcmc = dataclasses.replace(ngp.Posterior.from_mcmc(noisy_model, draws), **chains)
    svi.save(tmp_path / "svi.npz")
    mcmc.save(tmp_path / "mcmc.npz")
    new_guide = ngp.AutoGP(noisy_model, {"f": ngp.guides.coupled(natural=True)}, rest=AutoNormal)
    loaded = {
        "svi": ngp.Posterior.load(tmp_path / "svi.npz", noisy_model, new_guide, CASE["X"], CASE["y"]),
        "mcmc": ngp.Posterior.load(tmp_path / "mcmc.npz", noisy_model),
    }
    for own, other in ((svi, loaded["svi"]), (mcmc, loaded["mcmc"])):
        first, second = (p.predict(jax.random.key(1), X, num_samples=3) for p in (own, other))
        np.testing.assert_array_equal(first.mean, second.mean)
        np.testing.assert_array_equal(first.variance, second.variance)
        assert own.kind == other.kind
    assert loaded["mcmc"].num_chains == 3
    np.testing.assert_array_equal(loaded["mcmc"].extra_fields["energy"], np.arange(3.0))
    with pytest.raises(ValueError, match="guide must be the guide of the fit, but got None"):
        ngp.Posterior.load(tmp_path / "svi.npz", noisy_model)
