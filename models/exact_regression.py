"""Exact GP regression: Gaussian noise, up to 1000 rows or so, the function integrated out.

The site "y" scores the data by the log evidence, so every engine works on three hyper-parameters alone. NUTS targets
their exact posterior and is cheap here (`engine` returns SVI for larger data):

    MCMC(NUTS(model), num_warmup=500, num_samples=500).run(key, **simulate(key))

SVI with `guide` targets a log-normal approximation of that posterior, one factor for each hyper-parameter. There are
no inducing inputs and no minibatches: the data are one event. Predict with the data of the fit:

    ngp.Posterior.from_mcmc(model, mcmc).predict_at(key, X_new, X, y)
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp


def model(X, y=None):
    """Regression on standardised data; returns the process given them."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    kernel = ngp.kernels.Matern52(variance, lengthscale)
    # gp_regression takes the noise variance.
    return ngp.gp_regression("y", kernel, X, noise_variance=noise**2, obs=y)


def simulate(key, num_data=200):
    """A wave with noise of scale 0.2."""
    at, noise = jax.random.split(key)
    X = jax.random.uniform(at, (num_data, 1), minval=-3.0, maxval=3.0)
    return {"X": X, "y": jnp.sin(2 * X[:, 0]) + 0.2 * jax.random.normal(noise, (num_data,))}


def guide():
    """Distributions of the hyper-parameters; the function needs none."""
    return AutoNormal(model)


def engine(guide):
    """About 1000 steps."""
    return SVI(model, guide, optax.adam(2e-2), Trace_ELBO(num_particles=4))
