"""Deep Gaussian process of three layers, each with an orthogonally decoupled belief (Salimbeni et al. 2018).

The model is that of deep; only the belief differs. Points orthogonal to the inducing inputs carry more of the mean of
each layer, and the last layer trains by natural gradients. SVI targets the doubly stochastic bound; NUTS and SVGD on
the same function know nothing of the further points.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, TraceMeanField_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, layers, batch=None):
    """Three layers, the inner ones residual."""
    f = layers()
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=500, num_inducing=15):
    """A ridge over two columns of different units, with a fold."""
    at, noise = jax.random.split(key)
    X = jax.random.normal(at, (num_data, 2)) * jnp.array([1.0, 20.0])
    y = jnp.sin(3 * jnp.abs(X[:, 0] + X[:, 1] / 20)) + 0.1 * jax.random.normal(noise, (num_data,))
    layers = ngp.deep.stack(X, "GP-GP-GP", inducing=num_inducing, mean_inducing=num_inducing, mean="orthogonal")
    return {"X": X, "y": y, "layers": layers}


def guide(layers):
    """Inner layers start nearly without noise; natural gradients on the last layer only."""
    return ngp.AutoGP(model, layers.recipes)


def engine(guide):
    """About 5000 steps; the natural step grows over the first 500."""
    step = ngp.optim.ramp(1e-3, 0.1, 500)
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(5e-3), step), TraceMeanField_ELBO())
