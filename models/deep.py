"""Deep Gaussian process of two layers (Salimbeni and Deisenroth 2017), for functions that one lengthscale does not fit.

SVI targets the doubly stochastic bound: draws of the inner layer, independent beliefs about the layers. The bound is
loose where the layers are strongly dependent a posteriori. The posterior has symmetries and many modes: NUTS runs on
the same function, at small sizes, and its chains need not agree.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, TraceMeanField_ELBO

import numpyro_gp as ngp


def layer_kernel(number, Z):
    """Lengthscales and variance of one layer."""
    lengthscale = numpyro.sample(f"lengthscale_{number}", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample(f"variance_{number}", ngp.starting.variance_prior())
    return ngp.kernels.RBF(variance, lengthscale)


def model(X, y=None, *, Z, batch=None):
    """The inner layer is residual, ``h = x + g(x)``, with as many columns as ``X``, so both layers start at ``Z``."""
    columns = X.shape[1]
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    kernels = [layer_kernel(number, Z) for number in range(2)]
    inner = ngp.gp("inner", kernels[0], inducing=Z, outputs=columns, mean=ngp.means.identity(columns))
    outer = ngp.gp("outer", kernels[1], inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        h = inner.draw("h", X[idx])
        ngp.observe("y", outer(h), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=400, num_inducing=20):
    """A step between a flat and a wavy part."""
    X = jnp.linspace(-2.0, 2.0, num_data)[:, None]
    signal = jnp.where(X[:, 0] < 0, -1.0, 1.0 + 0.5 * jnp.sin(6 * X[:, 0]))
    y = signal + 0.1 * jax.random.normal(key, (num_data,))
    return {"X": X, "y": y, "Z": jnp.linspace(-2.0, 2.0, num_inducing)[:, None]}


def guide():
    """The inner layer starts nearly without noise; natural gradients on the last layer only."""
    recipes = {"inner": ngp.guides.coupled(scale=ngp.deep.INNER_SCALE), "outer": ngp.guides.coupled(natural=True)}
    return ngp.AutoGP(model, recipes)


def engine(guide):
    """About 5000 steps; the natural step grows over the first 500."""
    step = ngp.optim.ramp(1e-3, 0.1, 500)
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(5e-3), step), TraceMeanField_ELBO())
