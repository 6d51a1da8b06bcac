"""A posterior in a file: what is beside its numbers. Predictions of every kind of model: ``saved_is_loaded`` of the net."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from tests.fits import Z, fit, known


def test_chains_and_what_belongs_to_them_are_saved_and_a_fit_needs_its_guide(tmp_path):
    chains = {"num_chains": 3, "extra_fields": {"energy": jnp.arange(3.0)}}
    posterior = dataclasses.replace(ngp.Posterior.from_mcmc(known, {"f": jnp.ones((3, len(Z)))}), **chains)
    posterior.save(tmp_path / "mcmc.npz")
    loaded = ngp.Posterior.load(tmp_path / "mcmc.npz", known)
    assert (loaded.kind, loaded.num_chains) == ("mcmc", 3)
    np.testing.assert_array_equal(loaded.extra_fields["energy"], np.arange(3.0))
    fit("start").save(tmp_path / "svi.npz")
    with pytest.raises(ValueError, match="guide must be the guide of the fit, but got None"):
        ngp.Posterior.load(tmp_path / "svi.npz", known)
