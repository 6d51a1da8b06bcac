"""Recipes of a user's own: what they may return at which site, and hyper-parameters that have one."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import numpyro_gp as ngp
from numpyro_gp.guides.other_sites import site_quantiles
from tests.oracles.engines import INPUTS as X
from tests.oracles.engines import TARGETS as Y
from tests.oracles.engines import recipe_engine


@pytest.mark.long
def test_a_distribution_with_a_spread_is_no_recipe_of_a_process():
    """Predictions dropped its variance: 1e-6 for 0.81. A point stays one."""

    def spread(name, prior):
        return dist.Normal(numpyro.param("loc", jnp.zeros(prior.event_shape)), 0.9).to_event(1)

    message = r"recipe of site 'f' must be one that returns a belief, or a Delta.*returned a Normal. Return a belief"
    with pytest.raises(TypeError, match=message):
        recipe_engine({"f": spread}).init(jax.random.key(0), X, Y, Z=X[::2])
    svi = recipe_engine({"f": lambda name, prior: dist.Delta(jnp.ones(prior.event_shape), event_dim=1)})
    params = svi.get_params(svi.init(jax.random.key(0), X, Y, Z=X[::2]))
    assert jnp.all(svi.guide.beliefs(params)["f"] == 1.0)


# A LogNormal whose moments are known: E n = exp(a + s^2 / 2), E n^2 = exp(2 a + 2 s^2).
CENTRE, WIDTH = -0.4, 0.5


def lognormal(name, prior):
    return dist.LogNormal(numpyro.param("centre", CENTRE), numpyro.param("width", WIDTH))


def posterior_of(recipes):
    """A posterior where the fit starts, with the noise at a recipe's distribution."""
    svi = recipe_engine(recipes)
    params = svi.get_params(svi.init(jax.random.key(0), X, Y, Z=X[::2]))
    return ngp.Posterior.from_svi(svi.model, svi.guide, params)


@pytest.mark.long
@pytest.mark.statistical
def test_a_hyperparameter_with_a_recipe_is_drawn_from_it():
    """It trained, and predictions and hyperparameters failed: the posterior had no draws of the site."""
    posterior, key = posterior_of({"noise": lognormal}), jax.random.key(1)
    assert posterior.source.is_random
    drawn = np.log(posterior.hyperparameters(key, X, Y, Z=X[::2], num_samples=4000)["noise"])
    np.testing.assert_allclose((drawn.mean(), drawn.std()), (CENTRE, WIDTH), atol=4 * WIDTH / 4000**0.5)
    found = posterior.predict(key, X[:2], Z=X[::2], num_samples=4000)
    # At the start the belief is the prior, N(0, 1) at every input, and the jitter of 1e-6.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    noise, weights = np.exp(CENTRE + WIDTH * nodes), weights / weights.sum()
    y = np.array([0.3, -2.0])
    density = np.array([weights @ scipy.stats.norm.pdf(at, 0.0, np.sqrt(1.0 + noise**2)) for at in y])
    np.testing.assert_allclose(found.log_density(y), np.log(density), atol=0.01)
    np.testing.assert_allclose(found.variance, 1.0 + np.exp(2 * CENTRE + 2 * WIDTH**2), rtol=0.04)


@pytest.mark.long
def test_answers_about_a_hyperparameter_with_a_recipe():
    """Its median and quantiles were those of a Normal with the same moments: a median of the mean, and below zero."""
    posterior = posterior_of({"noise": lognormal})
    guide, params = posterior.guide, posterior.params
    levels = [0.01, 0.5, 0.9]
    found = guide.quantiles(params, levels)["noise"]
    np.testing.assert_allclose(found, scipy.stats.lognorm.ppf(levels, WIDTH, scale=np.exp(CENTRE)), rtol=1e-6)
    np.testing.assert_allclose(guide.median(params)["noise"], np.exp(CENTRE), rtol=1e-6)
    left = {name: value for name, value in params.items() if name != "width"}
    without = ngp.Posterior.from_svi(posterior.model, guide, left)
    for call in (lambda key: without.predict(key, X, Z=X[::2]), lambda key: without.draws(key, X, Y, Z=X[::2])):
        with pytest.raises(ValueError, match="params must be the parameters of the guide, 'width' among them"):
            call(jax.random.key(1))
    point = posterior_of({"noise": lambda name, prior: dist.Delta(numpyro.param("at", 0.7))})
    assert not point.source.is_random
    assert point.guide.median(point.params)["noise"] == 0.7


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: dist.Normal(jnp.ones((2, 3)), 2.0).to_event(1), scipy.stats.norm(1.0, 2.0)),
        (lambda: dist.Exponential(3.0).expand([4]), scipy.stats.expon(scale=1 / 3)),
        (lambda: dist.MultivariateNormal(jnp.ones(2), jnp.array([[4.0, 1.0], [1.0, 4.0]])), scipy.stats.norm(1.0, 2.0)),
    ],
)
def test_quantiles_of_each_entry(build, expected):
    fn, levels = build(), np.array([0.1, 0.7])
    found = site_quantiles("x", fn, jnp.asarray(levels))
    assert found.shape == levels.shape + fn.shape()
    wanted = expected.ppf(levels).reshape((-1,) + (1,) * len(fn.shape()))
    np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), rtol=1e-5)
    with pytest.raises(ValueError, match="distribution of site 'x' must be one whose quantiles are known, but got Dir"):
        site_quantiles("x", dist.Dirichlet(jnp.ones(3)), jnp.asarray(levels))
