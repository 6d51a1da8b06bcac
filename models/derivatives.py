"""Measured slopes beside measured values: a function of several inputs from its values and its gradients.

Rows are of two kinds, in one array; each kind has a noise of its own. SVI targets the sparse variational bound; NUTS on
the same function targets the sparse MCMC posterior, which is exact where inducing values and slopes are those measured.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, is_slope, batch=None):
    """``X`` has values and slopes, ``is_slope`` says which; `rows` makes both. ``Z`` may hold slopes too."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z.terms.points[:, 0]))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior().expand([2]).to_event(1))
    f = ngp.gp("f", ngp.kernels.RBF(variance, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        likelihood = ngp.likelihoods.Gaussian(noise[is_slope[idx]])
        ngp.observe("y", f(X[idx]), likelihood, obs=None if y is None else y[idx])


def rows(points):
    """Values at points ``(n, D)``, then the slopes in each of the D inputs, and which rows are slopes."""
    columns = range(points.shape[1])
    found = ngp.functionals.stack([points, *(ngp.functionals.Derivative(points, column) for column in columns)])
    return found, (jnp.arange(len(found)) >= len(points)).astype(int)


def simulate(key, num_data=60, num_inducing=20):
    """A wave over a plane: a third of the rows are its values, the others its slopes."""
    key_x, key_noise = jax.random.split(key)
    X, is_slope = rows(jax.random.uniform(key_x, (num_data // 3, 2), minval=-1.0))
    y = X.of(lambda points: jnp.sin(3 * points[..., 0] + points[..., 1]))
    y = y + jnp.array([0.02, 0.1])[is_slope] * jax.random.normal(key_noise, y.shape)
    return {"X": X, "y": y, "Z": X[jnp.linspace(0, len(X) - 1, num_inducing).astype(int)], "is_slope": is_slope}


def guide():
    """The usual belief, about values and slopes alike."""
    return ngp.AutoGP(model)


def engine(guide):
    """About 2000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
