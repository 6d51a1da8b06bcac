"""Additive model (functional ANOVA): main effects and an interaction, each with mean zero over the inputs' range.

SVI targets the sparse variational bound; `coupled` keeps the covariance between components, `block_diagonal` sets it to
zero and `structured` lies between. NUTS on the same function targets the sparse MCMC posterior. After the fit:
``ngp.effects``, ``ngp.plot_effects`` and ``ngp.sobol``; the mean-zero kernels make the decomposition unique.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp

COMPONENTS = {"x0": [0], "x1": [1], "x0:x1": [0, 1]}


def model(X, y=None, *, Z, batch=None):
    """Inputs in [0, 1]; ``Z`` is a dictionary with the keys of ``COMPONENTS``."""
    count = len(COMPONENTS)
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z["x0:x1"]))
    # Half-normal scales let a component vanish.
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([count]).to_event(1))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    measure = ngp.kernels.Uniform(0.0, 1.0)
    kernels = {}
    for number, (name, columns) in enumerate(COMPONENTS.items()):
        base = ngp.kernels.RBF(1.0, lengthscale[jnp.array(columns)])
        kernels[name] = scale[number] ** 2 * ngp.kernels.ZeroMean(base, measure).on(columns)
    f = ngp.additive_gp("f", kernels, Z, mean=level)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=400, num_inducing=15):
    """A wave in x0, a line in x1, a weak product."""
    at, noise, centres = jax.random.split(key, 3)
    X = jax.random.uniform(at, (num_data, 2))
    signal = jnp.sin(2 * jnp.pi * X[:, 0]) + X[:, 1] - 0.5 + 2 * (X[:, 0] - 0.5) * (X[:, 1] - 0.5)
    y = signal + 0.2 * jax.random.normal(noise, (num_data,))
    # Each component reads its own columns: a grid for main effects, centres of the data for the interaction.
    line = jnp.linspace(0.0, 1.0, num_inducing)[:, None] * jnp.ones((1, 2))
    return {"X": X, "y": y, "Z": {"x0": line, "x1": line, "x0:x1": ngp.inducing.kmeans(centres, X, num_inducing)}}


def guide():
    """The full covariance over all components, with natural parameters; points elsewhere."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})


def engine(guide):
    """About 1000 steps."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(2e-2), 0.1), Trace_ELBO())
