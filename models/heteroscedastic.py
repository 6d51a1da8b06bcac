"""Regression whose noise depends on the inputs: one process for the mean, one for the log noise variance.

SVI targets the sparse variational bound with independent beliefs about the two processes; its expectation is in closed
form. NUTS on the same function targets the joint sparse MCMC posterior, where they are correlated: the better engine
for small data.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None):
    """The noise scale at x is ``exp(g(x) / 2)``; ``noise`` is its level, where g is at its mean."""
    prior = ngp.starting.lengthscale_prior(Z, ard=False)
    lengthscale = numpyro.sample("lengthscale", prior)
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    # The noise varies more slowly than the function, and by a factor of a few.
    noise_lengthscale = numpyro.sample("noise_lengthscale", dist.LogNormal(prior.loc + 0.5, 0.5))
    noise_variance = numpyro.sample("noise_variance", dist.LogNormal(0.0, 0.5))
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z)
    g = ngp.gp("g", ngp.kernels.RBF(noise_variance, noise_lengthscale), inducing=Z, mean=2 * jnp.log(noise))
    likelihood = ngp.likelihoods.HeteroscedasticGaussian()
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", (f(X[idx]), g(X[idx])), likelihood, obs=None if y is None else y[idx])


def simulate(key, num_data=300, num_inducing=20):
    """A wave whose noise grows from 0.05 to 0.5."""
    X = jnp.linspace(-3.0, 3.0, num_data)[:, None]
    scale = 0.05 + 0.45 * jax.nn.sigmoid(2 * X[:, 0])
    y = jnp.sin(2 * X[:, 0]) + scale * jax.random.normal(key, (num_data,))
    return {"X": X, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """Plain parameters at both sites: the likelihood is not log-concave in (f, g) together."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(scale=0.3), "g": ngp.guides.coupled(scale=0.3)})


def engine(guide):
    """About 3000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
