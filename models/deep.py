"""Deep Gaussian process (Salimbeni and Deisenroth 2017), for functions that one lengthscale does not fit.

The layers are decoupled (Havasi et al. 2018): more points carry the mean of each than its covariance. SVI targets the
doubly stochastic bound: draws of the inner layers, independent beliefs about the layers. The bound is loose where they
are strongly dependent a posteriori. The posterior has symmetries and many modes: NUTS runs on the same function, at
small sizes, and its chains need not agree. It knows nothing of the points of the mean.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, TraceMeanField_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, layers, batch=None):
    """The inner layer is residual, ``h = x + g(x)``, with as many columns as ``X``."""
    f = layers()
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=400, num_inducing=10):
    """A step between a flat and a wavy part; other layers are other words, as "GP-GP-GP" or [10, 10]."""
    X = jnp.linspace(-2.0, 2.0, num_data)[:, None]
    signal = jnp.where(X[:, 0] < 0, -1.0, 1.0 + 0.5 * jnp.sin(6 * X[:, 0]))
    layers = ngp.deep.stack(X, "GP-GP", inducing=num_inducing, mean_inducing=3 * num_inducing)
    return {"X": X, "y": signal + 0.1 * jax.random.normal(key, (num_data,)), "layers": layers}


def guide(layers):
    """The inner layer starts nearly without noise."""
    return ngp.AutoGP(model, layers.recipes)


def engine(guide):
    """About 5000 steps."""
    return SVI(model, guide, optax.adam(1e-2), TraceMeanField_ELBO())
