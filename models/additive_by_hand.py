"""An additive model written out: the kernels, priors and inducing inputs that a formula would choose.

It is the model of ``additive``, for those who change a part of it. Each component has mean zero over the rows, which
makes the sum unique. SVI targets the sparse variational bound; `coupled` keeps the covariance between components,
`block_diagonal` sets it to zero and `structured` lies between. NUTS on the same function targets the sparse MCMC
posterior. After the fit: ``ngp.effects``, ``ngp.plot_effects`` and ``ngp.sobol``.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp

COMPONENTS = {"x0": [0], "x1": [1], "x0:x1": [0, 1]}


def kernels_of(scales, lengthscales, measures):
    """A kernel for each component: a product over its columns of kernels without their means."""
    found, places = {}, iter(lengthscales)
    for scale, (name, columns) in zip(scales, COMPONENTS.items(), strict=True):
        curves = [ngp.kernels.ZeroMean(ngp.kernels.Matern52(1.0, next(places)), measures[d]).on(d) for d in columns]
        found[name] = scale**2 * (curves[0] if len(curves) == 1 else curves[0] * curves[1])
    return found


def model(X, y=None, *, Z, measures, batch=None):
    """``Z`` is a dictionary with the keys of ``COMPONENTS``; ``measures`` are those of the columns of all rows."""
    # Half-normal scales let a component vanish; there is a lengthscale for each column of each component.
    scales = numpyro.sample("scale", dist.HalfNormal(1.0).expand([3]).to_event(1))
    medians = jnp.array([0.6, 0.6, 0.8, 0.8])
    lengthscales = numpyro.sample("lengthscale", dist.LogNormal(jnp.log(medians), 0.8).to_event(1))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.additive_gp("f", kernels_of(scales, lengthscales, measures), Z, mean=level)
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
    inducing = {"x0": line, "x1": line, "x0:x1": ngp.inducing.kmeans(centres, X, num_inducing)}
    return {"X": X, "y": y, "Z": inducing, "measures": [ngp.kernels.Empirical.of(column) for column in X.T]}


def guide():
    """The full covariance over all components, with natural parameters; points elsewhere."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})


def engine(guide):
    """About 1000 steps."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(2e-2), 0.1), Trace_ELBO())
