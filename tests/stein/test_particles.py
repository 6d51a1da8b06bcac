"""Where particles start: given values, near a point, and drawn from the prior."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

from numpyro_gp.stein import SVGD, Around


def model():
    numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    numpyro.sample("w", dist.Beta(jnp.ones(3), 2.0).to_event(1))


def started(init_particles, n=400, key=0):
    svgd = SVGD(model, optax.sgd(0.1), num_stein_particles=n, init_particles=init_particles)
    return svgd.particles(svgd.init(jax.random.key(key)))


@pytest.mark.long
def test_given_values_are_the_start_and_the_rest_is_drawn():
    particles = started(None)
    assert particles["w"].shape == (400, 3)
    assert abs(particles["rate"].mean() - 4.0) < 4 * 2.0 / 20  # four standard errors
    assert 3.0 < particles["rate"].var() < 5.2
    given = jnp.linspace(1.0, 3.0, 5)
    particles = started({"rate": given}, 5)
    np.testing.assert_allclose(particles["rate"], given, rtol=1e-12)
    assert len(np.unique(np.asarray(particles["w"][:, 0]))) == 5


@pytest.mark.long
def test_around_scatters_in_unconstrained_coordinates():
    particles = started(Around({"rate": 2.0}, 0.1))
    logs = np.log(np.asarray(particles["rate"]))
    assert abs(logs.mean() - np.log(2.0)) < 4 * 0.1 / 20
    assert 0.08 < logs.std() < 0.12
    np.testing.assert_allclose(started(Around({"rate": 2.0}, 0.0), 3)["rate"], 2.0, rtol=1e-12)
    inside = started(Around({"w": jnp.array([0.2, 0.3, 0.5])}), 4)["w"]
    assert inside.shape == (4, 3)
    assert 0 < inside.min() <= inside.max() < 1


@pytest.mark.long
def test_a_start_inside_a_compiled_function():
    svgd = SVGD(model, optax.sgd(0.1), num_stein_particles=3, init_particles=Around({"rate": 2.0}, 0.0))
    state = jax.jit(lambda key: svgd.init(key).optim_state)(jax.random.key(0))
    np.testing.assert_allclose(svgd.optim.get_params(state)["rate_auto_loc"], np.log(2.0), rtol=1e-12)


@pytest.mark.long
def test_messages():
    """What ``contracts/misuses_after.py`` does not have."""
    for start, message in (
        ({"rate": jnp.ones(2)}, r"init_particles\['rate'\] must be of shape \(3,\), the 3 particles"),
        (Around({"rate": jnp.ones(3)}), r"must be of shape \(\), one value for all particles, but got shape \(3,\)"),
        ({"rate": jnp.array([1.0, jnp.nan, 1.0])}, r"init_particles\['rate'\] must be finite"),
        (Around({"rate": 0.0}), r"init_particles\['rate'\] must be inside the support of the site, but got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            started(start, 3)
