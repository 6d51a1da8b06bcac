"""What a posterior is before it answers: which draws it takes, and its parts."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.posterior.sources import StoredDraws
from numpyro_gp.posterior.tracing import Fitted


def test_a_posterior_is_over_other_arrays_what_it_was():
    draws = {"f": jnp.arange(30.0).reshape(10, 3)}
    posterior = ngp.Posterior.from_mcmc(lambda X: None, draws)
    assert isinstance(posterior, Fitted)
    assert (posterior.num_draws, posterior.guide, dict(posterior.params)) == (10, None, {})
    assert posterior.fitted_model is posterior.model
    other = posterior.at(StoredDraws({"f": -draws["f"]}, {}))
    assert type(other) is ngp.Posterior
    assert dataclasses.replace(other, source=posterior.source).samples is posterior.samples
    np.testing.assert_array_equal(other.values(None, 4)["f"], -draws["f"][4])


@pytest.mark.parametrize(("wanted", "found"), [(None, range(10)), (4, [0, 3, 6, 9]), (1, [0]), (50, range(10))])
def test_draws_are_spread_evenly_over_those_stored(wanted, found):
    posterior = ngp.Posterior.from_mcmc(lambda X: None, {"f": jnp.zeros((10, 3))})
    np.testing.assert_array_equal(posterior.spread(wanted, is_random=True), list(found))
