"""What is read off the sites of a model: roles, latent sites of one datum, and the distribution inside."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.sites import in_plate, is_latent, local_sites, role, unwrap


def model(X, y):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((2, 3)))
    with numpyro.plate("data", len(X)):
        inputs = ngp.latent_inputs("w", X)
        values = f.draw("noise", inputs)
        numpyro.sample("y", dist.Normal(values, scale), obs=y)


def test_roles_and_local_sites():
    """A process, a latent input and the noise of a draw are the library's; the scale and the data are the user's."""
    with handlers.seed(rng_seed=0):
        trace = handlers.trace(model).get_trace(jnp.zeros((4, 2)), jnp.zeros(4))
    sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
    assert {name: role(site) for name, site in sites.items()} == {
        "scale": None, "f": "gp", "w": "latent", "noise": "noise", "y": None,
    }  # fmt: skip
    assert [name for name, site in sites.items() if not is_latent(site)] == ["y"]
    assert [name for name, site in sites.items() if in_plate(site, "data")] == ["w", "noise", "y"]
    assert list(local_sites(trace, "data")) == ["w"]
    assert local_sites(trace, "rows") == {}


def test_the_distribution_inside():
    inside = dist.Normal(jnp.zeros(3), 1.0)
    assert unwrap(inside.to_event(1).mask(False).expand((4,))) is inside
