"""Robust regression: Student-t noise, so that outliers do not pull the function.

SVI targets the sparse variational bound by quadrature. The likelihood is not log-concave: plain parameters and Adam,
no natural gradients. The posterior can have several modes (is this point an outlier?), of which SVI finds one; NUTS on
the same function targets all of the sparse MCMC posterior.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None):
    """The prior of ``df`` (Juárez and Steel 2010) has mean 20; the shift keeps the variance finite."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    df = 2.0 + numpyro.sample("df_above_2", dist.Gamma(2.0, 0.1))
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.StudentT(df, noise), obs=None if y is None else y[idx])


def simulate(key, num_data=200, num_inducing=20):
    """A wave, Gaussian noise, and one row in twenty thrown off by 2."""
    noise, thrown = jax.random.split(key)
    X = jnp.linspace(-3.0, 3.0, num_data)[:, None]
    outlier = jax.random.bernoulli(thrown, 0.05, (num_data,))
    y = jnp.sin(2 * X[:, 0]) + 0.1 * jax.random.normal(noise, (num_data,)) + 2.0 * outlier
    return {"X": X, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """A full covariance with plain parameters."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(scale=0.3)})


def engine(guide):
    """About 2000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
