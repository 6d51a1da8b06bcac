"""GP regression by neighbours: Gaussian noise, thousands to millions of rows, no inducing inputs.

Each row is given the nearest of the rows before it. SVI with minibatches targets the product of these densities, as
NUTS, SVGD and MAP do on the same function with ``batch=None``: a proper density of the data, that of the exact process
where each row has all earlier ones. The function is integrated out, so engines see the hyper-parameters alone.
Find the neighbours once, before the model, and predict new rows from the data nearest to them:

    near = ngp.neighbours(X, 16)
    result = ngp.fit(key, engine(guide()), 1000, near, y, batch=256)   # finds them anew as it learns lengthscales
    ngp.Posterior.from_svi(model, guide, result.params).predict_at(key, X_new, near, y)
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp


def model(near, y=None, *, batch=None):
    """One lengthscale for each (standardised) input column; ``y`` are all data, and ``near[idx]`` some of the rows."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(near.inputs))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    kernel = ngp.kernels.Matern52(variance, lengthscale)
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        return ngp.gp_regression("y", kernel, near[idx], noise**2, obs=y)


def simulate(key, num_data=1000, num_neighbours=16):
    """A surface over two inputs with noise of scale 0.2."""
    at, noise = jax.random.split(key)
    X = jax.random.normal(at, (num_data, 2))
    y = jnp.sin(2 * X[:, 0]) * jnp.cos(X[:, 1]) + 0.2 * jax.random.normal(noise, (num_data,))
    return {"near": ngp.neighbours(X, num_neighbours), "y": y}


def guide():
    """Points; `AutoNormal` for distributions of the hyper-parameters."""
    return AutoDelta(model)


def engine(guide):
    """1000 to 1500 steps; add ``batch=256`` to the data for large N."""
    return SVI(model, guide, optax.adam(0.03), Trace_ELBO())
