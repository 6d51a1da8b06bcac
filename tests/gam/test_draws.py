"""What draws of a fit mean: their densities, and which distribution of the terms stands beside them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.answers.draws import guide_draws

RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=30), "z": RNG.normal(size=30), "n": RNG.poisson(2.0, 30), "y": RNG.normal(size=30)}


@pytest.mark.long
def test_draws_have_the_distribution_of_the_fit_and_its_density():
    """By mean and deviation over 4000 draws; the ratio is that of densities by SciPy."""
    model = ngp.gam.model("y ~ linear(x)", DATA)
    loc, root = np.array([0.1, -0.2]), np.array([[0.3, 0.0], [0.2, 0.1]])
    found = guide_draws(model, jax.random.key(0), loc, root, 4000)
    logs = np.log(np.column_stack([found.values["f_scale"][:, 0], found.values["noise"]]))
    np.testing.assert_allclose(logs.mean(axis=0), loc, atol=5 * 0.3 / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(logs.T), root @ root.T, atol=0.01)
    prior = stats.halfnorm(0, model.start.size).logpdf(np.exp(logs[:, 0])) + logs[:, 0]
    prior = prior + stats.norm(np.log(model.start.noise), 1.0).logpdf(logs[:, 1])
    fit = stats.multivariate_normal(loc, root @ root.T).logpdf(logs)
    np.testing.assert_allclose(found.log_density, prior - fit, rtol=1e-5, atol=1e-5)
    other = guide_draws(model, jax.random.key(1), loc, root, 4000)
    assert np.abs(np.corrcoef(other.values["noise"], found.values["noise"])[0, 1]) < 5 / np.sqrt(4000)


@pytest.mark.long
def test_draws_of_a_chain_have_the_numbers_of_all_rows():
    """As a likelihood of one row they were refused."""
    scale = jnp.linspace(0.5, 2.0, 30)
    model = ngp.gam.model("y ~ linear(x)", DATA, ngp.likelihoods.Gaussian(scale))
    posterior = ngp.Posterior.from_mcmc(model, {"f_scale": jnp.ones((3, 1)), "f": jnp.zeros((3, 2))})
    draws = ngp.gam.Fit(model, posterior, None, None, "nuts", 3, (), jax.random.key(0))._draws()
    np.testing.assert_allclose(draws.likelihood.scale, np.tile(scale, (3, 1)))
