"""Recipes of a user's own: what they may return at which site."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

from tests.oracles.engines import INPUTS as X
from tests.oracles.engines import TARGETS as Y
from tests.oracles.engines import recipe_engine


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
