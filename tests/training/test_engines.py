"""What an engine is to ``fit``: the name of its loss, and the particles and keys of a step."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import numpyro_gp as ngp
from numpyro_gp.training.faults import traits_of
from tests.oracles.engines import Countdown, data, key, model

KEY, DATA = key(), data()


def shared_model(y):
    shift = numpyro.param("shift", 0.5)
    location = numpyro.sample("location", dist.Normal(shift, 1.0))
    numpyro.sample("y", dist.Normal(location, 1.0), obs=y[0])


def test_nothing_is_assumed_of_a_foreign_engine():
    """Not even of one that has a model, a guide and particles of another sense."""
    foreign = Countdown(bad_step=3)
    foreign.model, foreign.guide, foreign.num_stein_particles = model, model, 5
    assert traits_of(foreign).loss_name == "loss"
    with pytest.raises(ngp.NonFiniteLoss, match=r"were finite before this step\. Try a larger jitter") as info:
        ngp.fit(KEY, foreign, 9, DATA, progress=False)
    assert info.value.sites == ()


@pytest.mark.long
def test_the_bar_names_the_loss(capfd):
    svgd = ngp.stein.SVGD(shared_model, optax.sgd(0.1), num_stein_particles=2)
    ngp.fit(KEY, svgd, 2, jnp.ones(1))
    assert "Stein force 1.8" in capfd.readouterr().err
