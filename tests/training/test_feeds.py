"""Which arrays go to which step: whole data, streams, and what the model's own arguments are."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_gp.rows.feeds import Stream, Whole
from numpyro_gp.training.feeds import Given, feed_of, latent_shapes
from tests.oracles.engines import data, engine, key


def test_whole_data_and_streams():
    feed, calls = feed_of(engine(), None, key(), Given((data(),), {"batch": 2}, None, None))
    assert isinstance(feed, Whole)
    assert (calls.part, calls.placement) == (None, None)
    with calls.opened(feed.arrays()) as (args, kwargs):
        np.testing.assert_array_equal(args[0], data())
        assert kwargs == {"batch": 2}
    feed, calls = feed_of(engine(), [(np.ones(3),)], key(), Given((), {}, 9, None))
    assert isinstance(feed, Stream)
    assert calls.part == ("data", 9, 3)


def test_num_data_reaches_a_model_that_asks_for_it():
    class Asking:
        static_kwargs = None

        @staticmethod
        def model(y, num_data=None):
            with numpyro.plate("data", num_data, subsample_size=len(y)):
                numpyro.sample("y", dist.Normal(jnp.zeros(3), 1.0), obs=y)

    feed, calls = feed_of(Asking(), [(np.ones(3),)], key(), Given((), {}, 9, None))
    assert calls.merge(feed.arrays())[1] == {"num_data": 9}
    with pytest.raises(TypeError, match="args and kwargs must be arguments of the model"):
        feed_of(engine(), None, key(), Given((data(),), {}, 9, None))


def test_shapes_of_latent_sites_outside_of_plates():
    frame = ("plate",)
    site = {"type": "sample", "is_observed": False, "fn": dist.Normal(jnp.zeros(3), 1.0), "cond_indep_stack": ()}
    trace = {"f": site, "y": {**site, "is_observed": True}, "w": {**site, "cond_indep_stack": frame}}
    assert latent_shapes(trace) == {"f": (3,)}
