"""Small inference engines with known behaviour, for tests of the training loop."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp


def key():
    return jax.random.key(3)


def data():
    return jnp.asarray([0.5, 1.5, -0.3, 2.2])


def model(y, batch=None):
    location = numpyro.sample("location", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", y.shape[0], subsample_size=batch) as rows:
        numpyro.sample("y", dist.Normal(location, 1.0), obs=y[rows])


def guide(y, batch=None):
    scale = numpyro.param("scale", 1.0, constraint=constraints.positive)
    numpyro.sample("location", dist.Normal(numpyro.param("centre", 0.0), scale))


def engine(optimiser=None):
    return SVI(model, guide, optimiser or optax.adam(0.05), Trace_ELBO())


class Countdown:
    """An engine whose loss is ``100 - step``: no model, no guide, and a count of its traces."""

    def __init__(self, bad_step=None, bad="loss"):
        self.traces, self.bad_step, self.bad = 0, bad_step, bad

    def init(self, key, data):
        return {"step": 0, "weight": jnp.ones(2), "key": key}

    def update(self, state, data):
        self.traces += 1
        step, is_bad = state["step"], state["step"] == (-1 if self.bad_step is None else self.bad_step)
        loss = jnp.where(is_bad & (self.bad == "loss"), jnp.nan, 100.0 - step + 0.0 * jnp.sum(data))
        weight = jnp.where(is_bad & (self.bad == "weight"), jnp.nan, state["weight"] + 1.0)
        return {"step": step + 1, "weight": weight, "key": jax.random.split(state["key"])[0]}, loss

    def get_params(self, state):
        return {"weight": state["weight"]}


def same(left, right):
    """Bit for bit equality of two results, keys and dtypes included."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# A regression like the README's, small.
INPUTS = jnp.linspace(-1.0, 1.0, 6)[:, None]
TARGETS = jnp.sin(3.0 * INPUTS[:, 0])


def regression(X, y=None, *, Z):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, lengthscale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def belief_engine(rest=AutoDelta, model=regression):
    """SVI with a coupled belief at the site ``f`` and an autoguide of the rest."""
    return SVI(model, ngp.AutoGP(model, {"f": ngp.guides.coupled()}, rest), optax.adam(0.01), Trace_ELBO())


def recipe_engine(recipes, rest=AutoDelta, model=regression, rate=0.01):
    """SVI with recipes of a user's own."""
    return SVI(model, ngp.AutoGP(model, recipes, rest), optax.adam(rate), Trace_ELBO())
