"""Survival: times to an event, some of them cut short by the end of the study, with a risk that bends with the inputs.

Given the function, times are Weibull with scale ``exp(f)``: inputs stretch time. A row that is censored says that the
event came later than ``y``. SVI targets the sparse variational bound, NUTS on the same function the sparse MCMC
posterior. Predict without ``y`` and ``censored``: ``prediction.survival(times)`` is the chance to last longer.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, censored=None, *, Z, batch=None):
    """``level`` is the log of the scale of time far from the data; a ``shape`` above 1 is a risk that grows."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", dist.LogNormal(-1.0, 1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 3.0))
    shape = numpyro.sample("shape", dist.LogNormal(0.0, 0.5))
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z, mean=level)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        right = None if censored is None else censored[idx]
        times = ngp.likelihoods.Censored(lambda f: dist.Weibull(jnp.exp(f), shape), right=right)
        ngp.observe("y", f(X[idx]), times, obs=None if y is None else y[idx])


def simulate(key, num_data=200, num_inducing=12):
    """Times of scale ``exp(1 + sin 2x)`` and shape 1.5; a study whose length leaves some 40 % of them open."""
    event, end = jax.random.split(key)
    X = jnp.linspace(-3.0, 3.0, num_data)[:, None]
    scale = jnp.exp(1.0 + jnp.sin(2 * X[:, 0]))
    times = scale * jax.random.exponential(event, (num_data,)) ** (1 / 1.5)
    limit = jax.random.uniform(end, (num_data,), minval=0.5, maxval=6.0)
    y, censored = jnp.minimum(times, limit), times > limit
    return {"X": X, "y": y, "censored": censored, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """A full covariance with Adam: natural steps of waiting times can overshoot."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(scale=0.3)})


def engine(guide):
    """About 1500 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
