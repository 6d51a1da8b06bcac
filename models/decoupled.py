"""Sparse regression with an orthogonally decoupled posterior (Salimbeni et al. 2018): many points for the mean alone.

The model is that of sparse_regression; only the guide differs. SVI targets the same variational bound over a larger
family: the inducing inputs ``Z`` carry mean and covariance, at cubic cost, and the further points of the guide carry
mean only, at linear cost with ``columns``. NUTS and SVGD know nothing of it: they target the sparse posterior on ``Z``.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None):
    """One lengthscale for each (standardised) input column."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=1000, num_inducing=20):
    """A rough surface over two inputs, which few inducing points do not resolve."""
    at, noise, centres = jax.random.split(key, 3)
    X = jax.random.normal(at, (num_data, 2))
    y = jnp.sin(4 * X[:, 0]) * jnp.cos(3 * X[:, 1]) + 0.2 * jax.random.normal(noise, (num_data,))
    return {"X": X, "y": y, "Z": ngp.inducing.kmeans(centres, X, num_inducing)}


def guide(X, num_mean=200):
    """Mean points are rows of the data; from about 1000 of them on, pass ``columns=200`` as well."""
    points = ngp.inducing.random_subset(jax.random.key(0), X, min(num_mean, X.shape[0] // 2))
    return ngp.AutoGP(model, {"f": ngp.guides.orthogonal(points, natural=True)})


def engine(guide):
    """About 2000 steps; add ``batch=256`` to the data for large N."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.1), Trace_ELBO())
