"""Deep Gaussian processes by name, for the examples: "GP-GP", "LV-GP", "LV-GP-GP", "GP-LV-GP", ...

A model is an ordinary function: each "GP" but the last is drawn from, each "LV" appends one latent input. Inner layers
are residual, ``F + g P^T`` with ``P`` the principal directions of the inputs. Hyper-parameters, inducing inputs and
noise have weak priors and are fitted as points.
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
from numpyro_gp.starting.deep import INNER_SCALE, latent_columns, mix, principal_directions

INNER_WIDTH = 5


def build(name, X, num_inducing, *, seed=0, latent=None, inner=INNER_SCALE, carry_latent=False, noise=0.3):
    """Model and guide of a chain of layers, for data inputs ``X`` ``(N, D)``.

    ``latent`` is the recipe of latent inputs (None: an encoder), ``inner`` the standard deviation of inner layers'
    whitened values at the start. ``carry_latent`` lets inner layers pass latent inputs on beside the data's;
    otherwise their mean cuts them off.
    """
    kinds = name.split("-")
    key = jax.random.key(seed)
    distinct = len(np.unique(np.asarray(X), axis=0))
    Z = jnp.asarray(ngp.inducing.kmeans(key, X, min(num_inducing, distinct)))
    if kinds[0] == "LV" and carry_latent:  # the latent column makes repeated centres different points
        Z = jnp.resize(Z, (num_inducing, X.shape[1]))
    starts, inputs, mixing, width, H = [], [], [], X.shape[1], X
    directions = principal_directions(X, min(INNER_WIDTH, X.shape[1]))
    for number, kind in enumerate(kinds):
        if kind == "LV":
            Z, H = (latent_columns(jax.random.fold_in(key, number), A) for A in (Z, H))
            continue
        starts.append(Z)
        inputs.append(varied(H))
        width = Z.shape[1] if carry_latent else X.shape[1]
        mixing.append(jnp.eye(width) if carry_latent else directions)
        Z, H = Z[:, :width], H[:, :width]

    def model(X, y=None, batch=None):
        scale = numpyro.sample("scale", dist.LogNormal(jnp.log(noise), 1.0))
        priors = []
        for number, start in enumerate(starts):
            length = numpyro.sample(f"length_{number}", ngp.starting.lengthscale_prior(inputs[number]))
            variance = numpyro.sample(f"variance_{number}", ngp.starting.variance_prior())
            points = numpyro.sample(f"Z_{number}", dist.Normal(start, 1.0).to_event(2))
            priors.append((ngp.kernels.RBF(variance, length), points))
        widths = [P.shape[1] for P in mixing[:-1]] + [None]
        layers = [ngp.gp(f"f_{i}", *prior, outputs=widths[i]) for i, prior in enumerate(priors)]
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
            h, number = X[idx], 0
            for position, kind in enumerate(kinds[:-1]):
                if kind == "LV":
                    h = ngp.latent_inputs(f"w_{position}", h)
                else:
                    P = mixing[number]
                    h = h[..., : P.shape[0]] + mix(layers[number].draw(f"e_{number}", h), P)
                    number += 1
            ngp.observe("y", layers[-1](h), ngp.likelihoods.Gaussian(scale), obs=None if y is None else y[idx])

    recipes = {f"f_{number}": ngp.guides.coupled(scale=inner) for number in range(len(starts) - 1)}
    recipes[f"f_{len(starts) - 1}"] = ngp.guides.coupled(natural=True)
    latent = latent or ngp.guides.amortised(ngp.guides.encoder())
    recipes |= {f"w_{i}": latent for i, kind in enumerate(kinds) if kind == "LV"}
    return model, ngp.AutoGP(model, recipes)


def varied(points):
    """Points whose constant columns, which have no scale of their own, get that of standardised ones."""
    signs = jnp.where(jnp.arange(len(points)) % 2 == 0, 1.0, -1.0)[:, None]
    return jnp.where(jnp.ptp(points, axis=0, keepdims=True) == 0, signs, points)


def engine(model, guide, *, samples=1, adam=5e-3, natural=0.1, ramp=1000):
    """Natural gradients on the last layer, Adam (a rate or a schedule) elsewhere, ``samples`` importance samples."""
    objective = TraceMeanField_ELBO() if samples == 1 else ngp.ImportanceWeightedELBO(samples)
    step = ngp.optim.ramp(1e-3, natural, ramp)
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(adam), step), objective)


def mean_bound(model, params, losses, X):
    """Mean bound of some losses without the prior density of the inducing inputs, which are points.

    That is no part of a bound on the evidence, and tells depths apart by itself: on letters it is 184 nats a layer.
    """
    sites = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(jnp.asarray(X[:2]))
    points = {name: params[f"{name}_auto_loc"] for name in sites if name.startswith("Z_")}
    return -float(np.mean(losses)) - sum(float(sites[name]["fn"].log_prob(Z)) for name, Z in points.items())


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
    posterior = ngp.Posterior.from_svi(model, guide, params)
    prediction = posterior.predict(jax.random.key(seed), jnp.asarray(X), num_samples=num_samples)
    density = float(jnp.mean(prediction.log_density(jnp.asarray(y))))
    return prediction, density, float(np.sqrt(np.mean((np.asarray(prediction.mean) - np.asarray(y)) ** 2)))
