"""The models of data as people have them under the engines that the gallery's own test does not run."""

import importlib

import jax
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp

NAMES = ["derivatives", "monotone", "point_pattern", "non_stationary"]


pytestmark = pytest.mark.usefixtures("allow_rank_promotion")


def loaded(name):
    module = importlib.import_module(f"models.{name}")
    return module, module.simulate(jax.random.key(0), num_data=12, num_inducing=4)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_nuts_samples_it_and_the_posterior_predicts(name):
    module, data = loaded(name)
    kernel = ngp.NUTS(module.model, max_tree_depth=3)
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=4, num_samples=4, progress_bar=False)
    mcmc.run(jax.random.key(1), **data)
    posterior = ngp.Posterior.from_mcmc(module.model, mcmc)
    unseen = {key: value for key, value in data.items() if key not in ("y", "events", "censored")}
    found = posterior.predict(jax.random.key(2), unseen.pop("X"), **unseen)
    assert found.mean.shape == data["X"].shape[:1]
    assert np.all(np.isfinite(found.mean))
