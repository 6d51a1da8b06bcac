"""Binary classification: labels 0 and 1, one latent function, its values turned into probabilities.

SVI targets the sparse variational bound; the likelihood's expectation is a quadrature. NUTS on the same function
targets the sparse MCMC posterior (Hensman et al. 2015), the exact one with ``Z=X``. Predicted means are probabilities.
Labels leave lengthscale and variance open: the belief at "f" follows them (`guides.conditional`), so that their spread
under SVI is that of NUTS.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None):
    """The variance says how sure the labels can be; its prior keeps it moderate."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", dist.LogNormal(1.0, 1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(variance, lengthscale), inducing=Z, mean=level)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Bernoulli(), obs=None if y is None else y[idx])


def simulate(key, num_data=400, num_inducing=20):
    """Label 1 mostly inside a ring."""
    at, label, centres = jax.random.split(key, 3)
    X = jax.random.normal(at, (num_data, 2))
    probability = jax.nn.sigmoid(4.0 * (1.2 - jnp.sum(X**2, axis=1)))
    y = jax.random.bernoulli(label, probability).astype(X.dtype)
    return {"X": X, "y": y, "Z": ngp.inducing.kmeans(centres, X, num_inducing)}


def guide():
    """What the labels say of "f", and a full normal over the hyper-parameters, which it follows."""
    return ngp.AutoGP(model, {"f": ngp.guides.conditional()}, rest=AutoMultivariateNormal)


def engine(guide):
    """About 1000 steps, each with some draws of the hyper-parameters."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.1), Trace_ELBO(num_particles=4))
