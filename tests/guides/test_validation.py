"""NumPyro's checks of distributions, which it leaves out where values are traced."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from numpyro_gp.programs.set_up import in_one_program


def run(model):
    with numpyro.validation_enabled():
        in_one_program(lambda: handlers.seed(model, jax.random.key(0))())


def test_a_parameter_that_a_distribution_refuses():
    def model():
        shift = numpyro.sample("shift", dist.Uniform(-3.0, -2.0))
        numpyro.sample("x", dist.Normal(jnp.zeros(2), shift).to_event(1))

    with pytest.raises(ValueError, match="Normal distribution got invalid scale parameter"):
        run(model)


def test_data_outside_of_the_support():
    def model(y):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.Exponential(rate), obs=y)

    run(lambda: model(jnp.asarray(1.0)))
    with pytest.warns(UserWarning, match="Out-of-support values"):
        run(lambda: model(jnp.asarray(-1.0)))


def test_validation_that_is_switched_off_says_nothing():
    def model():
        return numpyro.sample("x", dist.Normal(0.0, -jnp.ones(()) * jnp.exp(1.0), validate_args=False))

    with numpyro.validation_enabled(False):
        drawn = in_one_program(lambda: handlers.seed(model, jax.random.key(0))())
    assert jnp.isfinite(drawn)
