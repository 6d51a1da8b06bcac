"""Deep GP with latent inputs (Salimbeni et al. 2019): conditional densities p(y | x) that are skewed or have two modes.

SVI with `ImportanceWeightedELBO` targets a bound that tightens with the number of samples; latent inputs are read off
the data by a small network, so that minibatches are cheap. Predictions are mixtures: ask `Prediction` for samples,
quantiles and log densities, not for mean and variance alone. NUTS runs on the same function at small sizes; the latent
inputs have symmetries.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI

import numpyro_gp as ngp


def model(X, y=None, *, layers, batch=None):
    """Append one latent column, warp, observe."""
    f = layers()
    # Latent inputs carry the spread, so the noise is less than the default of ngp.starting.noise_prior().
    noise = numpyro.sample("noise", dist.LogNormal(-2.0, 1.0))
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=600, num_inducing=30):
    """Two branches, y = ±x, with a little noise."""
    at, sign, noise = jax.random.split(key, 3)
    X = jax.random.uniform(at, (num_data, 1), minval=-1.5, maxval=1.5)
    branch = jnp.where(jax.random.bernoulli(sign, 0.5, (num_data,)), 1.0, -1.0)
    y = branch * X[:, 0] + 0.1 * jax.random.normal(noise, (num_data,))
    return {"X": X, "y": y, "layers": ngp.deep.stack(X, "LV-GP-GP", inducing=num_inducing, y=y)}


def guide(layers):
    """A network for the latent inputs; natural gradients on the last layer only."""
    return ngp.AutoGP(model, layers.recipes)


def engine(guide):
    """About 5000 steps with five importance samples; the natural step grows over the first 1000."""
    step = ngp.optim.ramp(1e-3, 0.1, 1000)
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(5e-3), step), ngp.ImportanceWeightedELBO(5))


def draw_density(key, posterior, X, y, layers, num_samples=300):
    """The density of y above each x, with the data; on one column of inputs."""
    at, levels = jnp.linspace(X.min(), X.max(), 80), jnp.linspace(y.min(), y.max(), 60)
    prediction = posterior.predict(key, at[:, None], layers=layers, num_samples=num_samples)
    figure, axis = plt.subplots(layout="constrained")
    shades = axis.pcolormesh(at, levels, ngp.conditional_density.density_on_grid(prediction, levels), cmap="cividis")
    figure.colorbar(shades, ax=axis, label="density of y")
    axis.plot(X[:, 0], y, ".", color="white", markersize=1.5)
    return axis
