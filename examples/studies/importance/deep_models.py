"""Deep Gaussian processes by name, for the examples: "GP-GP", "LV-GP", "LV-GP-GP", "GP-LV-GP", ...

`ngp.deep.stack` makes the layers. Inner ones are residual, ``F + g P^T`` with ``P`` the principal directions of the
inputs. Hyper-parameters have weak priors and are fitted as points; inducing inputs are parameters.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, TraceMeanField_ELBO

import numpyro_gp as ngp

INNER_WIDTH = 5


def build(
    name,
    X,
    num_inducing,
    *,
    seed=0,
    latent=None,
    inner=ngp.deep.INNER_SCALE,
    carry_latent=False,
    mixing=INNER_WIDTH,
    noise=0.3,
    start=None,
    joined="concatenate",
):
    """Model and guide of a chain of layers, for data inputs ``X`` ``(N, D)``.

    ``latent`` is the recipe of latent inputs (None: an encoder), ``inner`` the standard deviation of inner layers'
    whitened values at the start. ``carry_latent`` lets inner layers pass latent inputs on beside the data's;
    otherwise their mean cuts them off. They mix ``mixing`` functions, None is one for each column. ``start`` is the
    number of one of the stack's ``starts``, ``joined`` how its latent inputs join the others.
    """
    key, columns = jax.random.key(seed), X.shape[1]
    distinct = len(np.unique(np.asarray(X), axis=0))
    Z = ngp.inducing.kmeans(key, X, min(num_inducing, distinct))
    carries = carry_latent and name.startswith("LV")
    if carries:  # the latent column makes repeated centres different points
        Z = jnp.resize(Z, (num_inducing, columns))
    width, mixing = None if carry_latent else columns, mixing and min(mixing, columns + carries)
    layers = ngp.deep.stack(X, name, Z, width=width, mixing=mixing, latent=joined, key=key)

    def model(X, y=None, batch=None):
        scale = numpyro.sample("scale", dist.LogNormal(jnp.log(noise), 1.0))
        f = layers()
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
            ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(scale), obs=None if y is None else y[idx])

    recipe = ngp.guides.coupled(scale=inner)
    own = layers.recipes if start is None else layers.starts[start]
    recipes = own | {f"f_{number}": recipe for number in range(name.count("GP") - 1)}
    if latent is not None:
        recipes |= {f"f_latent_{number}": latent for number in range(name.count("LV"))}
    return model, ngp.AutoGP(model, recipes)


def engine(model, guide, *, samples=1, adam=5e-3, natural=0.1, ramp=1000):
    """Natural gradients on the last layer, Adam (a rate or a schedule) elsewhere, ``samples`` importance samples."""
    objective = TraceMeanField_ELBO() if samples == 1 else ngp.ImportanceWeightedELBO(samples)
    step = ngp.optim.ramp(1e-3, natural, ramp)
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(adam), step), objective)


def train(model, guide, X, y, *, steps, batch, samples=1, seed=0, adam=5e-3, natural=0.1, ramp=1000, progress=False):
    """Fit with natural gradients on the last layer and Adam elsewhere; returns result and seconds.

    The rate of Adam decays by a cosine, where ``adam`` is not a schedule.
    """
    rate = adam if callable(adam) else optax.cosine_decay_schedule(adam, steps, alpha=0.05)
    ramp = min(ramp, max(1, steps // 2))
    svi = engine(model, guide, samples=samples, adam=rate, natural=natural, ramp=ramp)
    start = time.perf_counter()
    batch = None if batch is None or batch >= len(X) else batch
    result = ngp.fit(jax.random.key(seed), svi, steps, jnp.asarray(X), jnp.asarray(y), batch=batch, progress=progress)
    return result, time.perf_counter() - start


def score(model, guide, params, X, y, *, num_samples, seed=1):
    """Prediction, mean test log density and RMSE."""
    posterior, key = ngp.Posterior.from_svi(model, guide, params), jax.random.key(seed)
    X, y = jnp.asarray(X), jnp.asarray(y)
    prediction = posterior.predict(key, X, num_samples=num_samples)
    densities = log_density(posterior, prediction, X, y, num_samples=num_samples, seed=seed)
    return prediction, float(np.mean(densities)), float(np.sqrt(np.mean((np.asarray(prediction.mean - y)) ** 2)))


def log_density(posterior, prediction, X, y, *, num_samples, seed=1):
    """Test log density of each row: with latent inputs from the guide where there are some, else of a prediction."""
    if not any(name.startswith("f_latent") for name in posterior.source.params):
        return np.asarray(prediction.log_density(y))
    key = jax.random.key(seed)
    return np.asarray(ngp.conditional_density.log_density(key, posterior, X, y, num_samples=num_samples))
