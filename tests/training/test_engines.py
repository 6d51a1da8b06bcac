"""What an engine is to ``fit``: the name of its loss, and the particles and keys of a step."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.contrib.einstein as einstein
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.training.faults import traits_of
from tests.oracles.engines import Countdown, data, engine, key, model

KEY, DATA = key(), data()


class OwnSVI(SVI):
    """A user's subclass."""


def shared_model(y):
    shift = numpyro.param("shift", 0.5)
    location = numpyro.sample("location", dist.Normal(shift, 1.0))
    numpyro.sample("y", dist.Normal(location, 1.0), obs=y[0])


ENGINES = {
    "SVI": (engine, "loss", 1),
    "SVI with particles": (lambda: SVI(model, lambda y: None, optax.sgd(0.1), Trace_ELBO(3)), "loss", 3),
    "a subclass": (lambda: OwnSVI(model, lambda y: None, optax.sgd(0.1), Trace_ELBO()), "loss", 1),
    "NumPyro's SVGD": (
        lambda: einstein.SVGD(shared_model, numpyro.optim.SGD(0.1), einstein.RBFKernel(), 4),
        "Stein force",
        4,
    ),
    "annealed": (
        lambda: einstein.ASVGD(shared_model, numpyro.optim.SGD(0.1), einstein.RBFKernel(), 2),
        "Stein force",
        2,
    ),
    "our SVGD": (lambda: ngp.stein.SVGD(shared_model, optax.sgd(0.1), num_stein_particles=4), "Stein force", 4),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_says_what_its_loss_is_and_how_many_particles_a_step_has(name):
    make, loss_name, count = ENGINES[name]
    instance = make()
    state = instance.init(KEY, *((10,) if name == "annealed" else ()), DATA)
    assert traits_of(instance).loss_name == loss_name
    particles, params = traits_of(instance).particles(instance, state), instance.get_params(state)
    assert len(particles) == count
    for number, particle in enumerate(particles):
        assert set(particle.free) == set(params)
        if "location_auto_loc" in params:  # of each Stein particle its own, and the model's parameters of all
            np.testing.assert_array_equal(particle.free["location_auto_loc"], params["location_auto_loc"][number])
            assert float(particle.free["shift"]) == 0.5


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
