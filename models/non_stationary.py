"""A function that is calm in one place and wild in another: its lengthscale is a process of its own.

The kernel is Gibbs's, and ``g`` is the log of its lengthscale, drawn as one function that the kernel reads wherever it
is asked. SVI targets the sparse variational bound over both, with a draw of ``g`` at each step; NUTS the sparse MCMC
posterior of both. For a size that changes put `Modulated` in its place, for a break `change_points`.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, batch=None):
    """``level`` is the log lengthscale where ``g`` is zero; ``g`` itself is smooth, a fifth of the range long."""
    level = numpyro.sample("level", dist.Normal(jnp.log(jnp.ptp(Z) / 10), 1.0))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    g = ngp.gp("g", ngp.kernels.RBF(1.0, jnp.ptp(Z) / 5), inducing=Z[::3], mean=level)
    log_lengthscale = g.function("g_draw", num_features=64)
    f = ngp.gp("f", ngp.kernels.Gibbs(variance, log_lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=200, num_inducing=30):
    """A chirp, slow on the left and fast on the right."""
    X = jnp.linspace(-3.0, 3.0, num_data)[:, None]
    y = jnp.sin(jnp.exp(0.5 * X[:, 0] + 1.3)) + 0.1 * jax.random.normal(key, (num_data,))
    return {"X": X, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """Full covariances that start narrow, so that the first draws of ``g`` are alike."""
    return ngp.AutoGP(model, {name: ngp.guides.coupled(scale=0.1) for name in ("f", "g")})


def engine(guide):
    """About 2000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
