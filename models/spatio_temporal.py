"""Space and time: inputs (longitude, latitude, time); a slow field, a season, and a field that changes with time.

SVI targets the sparse variational bound; NUTS on the same function the sparse MCMC posterior, exact with ``Z=X``. The
inducing inputs live in space-time: a few hundred of them resolve only smooth fields. The period is known, so fixed.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp

SPACE, TIME = [0, 1], 2


def model(X, y=None, *, Z, period=1.0, batch=None):
    """Space in units of its spread; time in units of ``period``'s."""
    region = numpyro.sample("region", ngp.starting.lengthscale_prior(Z[:, :TIME]))
    slow = numpyro.sample("slow", dist.LogNormal(1.0, 0.5))
    season = numpyro.sample("season", dist.LogNormal(0.0, 0.5))
    memory = numpyro.sample("memory", ngp.starting.lengthscale_prior(Z[:, TIME:]))
    variance = numpyro.sample("variance", dist.LogNormal(-0.5, 1.0).expand([3]).to_event(1))
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    in_space = ngp.kernels.Matern32(1.0, region).on(SPACE)
    kernel = (
        variance[0] * ngp.kernels.RBF(1.0, slow).on(TIME)
        + variance[1] * ngp.kernels.Periodic(1.0, season, period).on(TIME)
        + variance[2] * in_space * ngp.kernels.Matern32(1.0, memory).on(TIME)
    )
    f = ngp.gp("f", kernel, inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=600, num_inducing=60):
    """Stations anywhere, three years: a trend, a season and a drifting pattern."""
    at, noise, centres = jax.random.split(key, 3)
    X = jax.random.uniform(at, (num_data, 3), minval=jnp.array([-1.0, -1.0, 0.0]), maxval=jnp.array([1.0, 1.0, 3.0]))
    signal = 0.3 * X[:, 2] + jnp.sin(2 * jnp.pi * X[:, 2]) + 0.7 * jnp.sin(2 * X[:, 0] + X[:, 1] - X[:, 2])
    y = signal + 0.2 * jax.random.normal(noise, (num_data,))
    return {"X": X, "y": y - jnp.mean(y), "Z": ngp.inducing.kmeans(centres, X, num_inducing)}


def guide():
    """Natural parameters at "f", points elsewhere."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})


def engine(guide):
    """About 2000 steps; add ``batch=256`` to the data for large N."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.1), Trace_ELBO())
