"""Classification into C classes: one latent function a class, the softmax of their values.

SVI targets the sparse variational bound with independent beliefs about the functions; up to three classes the
expectation is a product quadrature. NUTS on the same function targets the sparse MCMC posterior. Predicted means are
the probabilities ``(N, C)``.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, num_classes=3, batch=None):
    """All classes share kernel and inducing inputs; labels are 0, …, C - 1."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", dist.LogNormal(1.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(variance, lengthscale), inducing=Z, outputs=num_classes)
    likelihood = ngp.likelihoods.Softmax(num_classes)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), likelihood, obs=None if y is None else y[idx])


def simulate(key, num_data=400, num_inducing=20):
    """Three sectors of the plane with blurred borders."""
    at, label, centres = jax.random.split(key, 3)
    X = jax.random.normal(at, (num_data, 2))
    angles = 2 * jnp.pi * jnp.arange(3) / 3
    directions = jnp.stack([jnp.cos(angles), jnp.sin(angles)])
    y = jax.random.categorical(label, 4.0 * X @ directions, axis=1)
    return {"X": X, "y": y, "Z": ngp.inducing.kmeans(centres, X, num_inducing)}


def guide():
    """Natural parameters at "f", points elsewhere."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})


def engine(guide):
    """About 1000 steps."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.1), Trace_ELBO())
