"""Counts: events in time or space with a smooth log rate, more variable than Poisson.

The likelihood is negative binomial with mean ``exp(f)`` and variance ``mean + mean^2 / r``; put `Poisson()` in its
place where counts are not over-dispersed. SVI targets the sparse variational bound; NUTS on the same function the
sparse MCMC posterior, exact with ``Z=X``. Exposures are an offset:
``ngp.observe(..., offset=jnp.log(exposure[idx]))``.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None):
    """``level`` is the log rate far from the data."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", dist.LogNormal(-1.0, 1.0))
    level = numpyro.sample("level", dist.Normal(1.0, 1.0))
    r = numpyro.sample("r", dist.LogNormal(2.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern32(variance, lengthscale), inducing=Z, mean=level)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.NegativeBinomial(r), obs=None if y is None else y[idx])


def simulate(key, num_data=300, num_inducing=20):
    """Poisson counts whose rate rises and falls twice."""
    X = jnp.linspace(-3.0, 3.0, num_data)[:, None]
    y = jax.random.poisson(key, jnp.exp(1.0 + jnp.sin(2 * X[:, 0]))).astype(X.dtype)
    return {"X": X, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """Adam on a full covariance: the first natural steps of counts can overshoot."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(scale=0.3)})


def engine(guide):
    """About 2000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
