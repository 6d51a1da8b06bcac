"""A classifier with two constrained hyper-parameters, that the tests of particles share.

One is a Weibull, drawn by one formula: samplers of Gamma and Beta take a third of a second to compile, in every program.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import numpyro_gp as ngp

KEY = jax.random.key(3)
X = jnp.linspace(-1.0, 1.0, 12)[:, None]
Y = jnp.sin(3 * X[:, 0])
LABELS = (Y > 0).astype(float)


def hyper():
    lengthscale = numpyro.sample("lengthscale", dist.Weibull(1.0, 2.0))
    weights = numpyro.sample("weights", dist.Beta(jnp.ones(2), 2.0).to_event(1))
    return lengthscale, weights


def gp_model(X, y=None, batch=None):
    lengthscale, weights = hyper()
    f = ngp.gp("f", ngp.kernels.Matern32(weights[0], lengthscale), X[::3])
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as index:
        ngp.observe("y", f(X[index]), ngp.likelihoods.Bernoulli(), obs=None if y is None else y[index])


def state_of(svgd, *args, **kwargs):
    return jax.tree.map(jnp.asarray, svgd.init(KEY, *args, **kwargs))
