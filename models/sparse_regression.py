"""Sparse GP regression: Gaussian noise, many rows, minibatches.

SVI targets the sparse variational bound (never above the log evidence): a full Gaussian over the inducing values and a
point for each hyper-parameter (``rest=AutoNormal`` for distributions). NUTS on the same function targets the sparse
MCMC posterior of Hensman et al. (2015), exact only with ``Z=X``; use small data and ``batch=None`` there.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None):
    """One lengthscale for each (standardised) input column."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=1000, num_inducing=30):
    """A surface over two inputs with noise of scale 0.2."""
    at, noise, centres = jax.random.split(key, 3)
    X = jax.random.normal(at, (num_data, 2))
    y = jnp.sin(2 * X[:, 0]) * jnp.cos(X[:, 1]) + 0.2 * jax.random.normal(noise, (num_data,))
    return {"X": X, "y": y, "Z": ngp.inducing.kmeans(centres, X, num_inducing)}


def guide():
    """Natural parameters at "f", points elsewhere."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})


def engine(guide):
    """About 1000 steps; add ``batch=256`` to the data for large N."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.1), Trace_ELBO())
