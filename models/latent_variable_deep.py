"""Deep GP with latent inputs (Salimbeni et al. 2019): conditional densities p(y | x) that are skewed or have two modes.

SVI with `ImportanceWeightedELBO` targets a bound that tightens with the number of samples; latent inputs are read off
the data by a small network, so that minibatches are cheap. Predictions are mixtures: ask `Prediction` for samples,
quantiles and log densities, not for mean and variance alone. NUTS runs on the same function at small sizes; the latent
inputs have symmetries.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI

import numpyro_gp as ngp


def layer_kernel(number, Z):
    """Lengthscales and variance of one layer."""
    lengthscale = numpyro.sample(f"lengthscale_{number}", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample(f"variance_{number}", ngp.starting.variance_prior())
    return ngp.kernels.RBF(variance, lengthscale)


def model(X, y=None, *, Z, batch=None):
    """Append one latent column, warp, observe; ``Z`` has the latent column too."""
    columns = X.shape[1] + 1
    # Latent inputs carry the spread, so the noise is less than the default of ngp.starting.noise_prior().
    noise = numpyro.sample("noise", dist.LogNormal(-2.0, 1.0))
    inner = ngp.gp("inner", layer_kernel(0, Z), inducing=Z, outputs=columns, mean=ngp.means.identity(columns))
    outer = ngp.gp("outer", layer_kernel(1, Z), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        inputs = ngp.latent_inputs("w", X[idx])
        h = inner.draw("h", inputs)
        ngp.observe("y", outer(h), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=600, num_inducing=30):
    """Two branches, y = ±x, with a little noise."""
    at, sign, noise, latent = jax.random.split(key, 4)
    X = jax.random.uniform(at, (num_data, 1), minval=-1.5, maxval=1.5)
    branch = jnp.where(jax.random.bernoulli(sign, 0.5, (num_data,)), 1.0, -1.0)
    y = branch * X[:, 0] + 0.1 * jax.random.normal(noise, (num_data,))
    Z = ngp.deep.latent_columns(latent, jnp.linspace(-1.5, 1.5, num_inducing)[:, None])
    return {"X": X, "y": y, "Z": Z}


def guide():
    """A network for the latent inputs; natural gradients on the last layer only."""
    recipes = {
        "w": ngp.guides.amortised(ngp.guides.encoder((20, 20))),
        "inner": ngp.guides.coupled(scale=ngp.deep.INNER_SCALE),
        "outer": ngp.guides.coupled(natural=True),
    }
    return ngp.AutoGP(model, recipes)


def engine(guide):
    """About 5000 steps with five importance samples; the natural step grows over the first 1000."""
    step = ngp.optim.ramp(1e-3, 0.1, 1000)
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(5e-3), step), ngp.ImportanceWeightedELBO(5))
