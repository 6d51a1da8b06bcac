"""A function that never falls: the signs of its slopes at virtual inputs, by a probit, beside data of any likelihood.

SVI targets the sparse variational bound of data and signs; NUTS on the same function targets the sparse MCMC posterior
of both. A convex function takes `ngp.functionals.convex` in the same place.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None, tolerance=0.02):
    """Virtual inputs are the inducing inputs. With ``tolerance=None`` the function may fall."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.RBF(variance, lengthscale), inducing=Z)
    if tolerance is not None:
        ngp.functionals.monotone("up", f, Z, tolerance=tolerance)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=30, num_inducing=15):
    """A dose and its response, which saturates, with much noise."""
    key_x, key_noise = jax.random.split(key)
    X = jnp.sort(jax.random.uniform(key_x, (num_data, 1), minval=-2.0, maxval=2.0), axis=0)
    y = jnp.tanh(2 * X[:, 0]) + 0.4 * jax.random.normal(key_noise, (num_data,))
    return {"X": X, "y": y, "Z": jnp.linspace(-2.0, 2.0, num_inducing)[:, None]}


def guide():
    """A narrow belief to start with: a wide one begins with slopes of both signs."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(scale=0.1)})


def engine(guide):
    """About 3000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
