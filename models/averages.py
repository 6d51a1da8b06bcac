"""Data that are averages: over bins, regions or windows of exposure, with predictions of any of them and of points.

Each row has the points that it averages over and their weights. SVI targets the sparse variational bound, minibatches
included; NUTS on the same function targets the sparse MCMC posterior.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None):
    """``X`` are averages, or plain inputs in a prediction of the function itself."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def bins(edges, nodes=5):
    """Averages between neighbouring edges, by the midpoints of as many equal parts."""
    parts = (jnp.arange(nodes) + 0.5) / nodes
    return ngp.functionals.Average((edges[:-1, None] + jnp.diff(edges)[:, None] * parts[None, :])[..., None])


def simulate(key, num_data=40, num_inducing=20):
    """A wave seen through bins, the widest a seventh of its length."""
    widths = 0.3 + jax.random.uniform(key, (num_data,))
    X = bins(jnp.concatenate([jnp.zeros(1), jnp.cumsum(widths)]) * 6 / jnp.sum(widths) - 3)
    y = X.of(lambda points: jnp.sin(4 * points[..., 0])) + 0.1 * jax.random.normal(
        jax.random.split(key)[0], (num_data,)
    )
    return {"X": X, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """The usual belief."""
    return ngp.AutoGP(model)


def engine(guide):
    """About 2000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
