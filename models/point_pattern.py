"""Events on a line without bins: a log-Gaussian Cox process, whose log intensity is a process.

SVI targets the sparse variational bound, in closed form, of events and nodes together; NUTS on the same function
targets the sparse MCMC posterior. `ngp.thinned` draws patterns from a posterior function.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, events=None, *, weights, Z, batch=None):
    """``X`` are the nodes of the integral, of these weights; events are ``(E, 1)``."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", dist.LogNormal(-0.5, 0.5))
    level = numpyro.sample("level", dist.Normal(1.0, 2.0))
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z, mean=level)
    ngp.point_pattern("y", f, X, weights, events, batch=batch)


def intensity(X):
    """Two rushes in a day of twelve hours."""
    return 4 + 30 * jnp.exp(-2 * (X[..., 0] - 3) ** 2) + 20 * jnp.exp(-((X[..., 0] - 8) ** 2))


def simulate(key, num_data=60, num_inducing=15):
    """A pattern of some 120 events, and as many nodes as ``num_data``."""
    X = (jnp.arange(num_data) + 0.5)[:, None] * 12 / num_data
    events = ngp.thinned(key, lambda points: jnp.log(intensity(points)), [0.0], [12.0])
    Z = jnp.linspace(0.0, 12.0, num_inducing)[:, None]
    return {"X": X, "events": jnp.asarray(events), "weights": 12 / num_data, "Z": Z}


def guide():
    """The usual belief."""
    return ngp.AutoGP(model)


def engine(guide):
    """About 2000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
