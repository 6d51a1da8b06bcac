"""Additive model (functional ANOVA): main effects and an interaction, each with mean zero over the rows.

A formula is the model: `ngp.gam.model` makes an ordinary NumPyro model function of it. SVI targets the sparse
variational bound, by a belief that follows the hyper-parameters and keeps the covariance between terms; NUTS on the
same function targets the sparse MCMC posterior. ``ngp.gam(FORMULA, data)`` fits it in one line, with a summary and a
figure. The same model with its kernels written out is ``additive_by_hand``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp

FORMULA = "y ~ s(x0) + s(x1) + ti(x0, x1)"


def model(X, y=None, *, gam, batch=None):
    """Inputs ``X`` as ``gam.encode`` makes them; ``gam`` is what ``ngp.gam.model`` returns."""
    gam(X, y, batch=batch)


def simulate(key, num_data=400):
    """A wave in x0, a line in x1, a weak product."""
    at, noise = jax.random.split(key)
    x = np.asarray(jax.random.uniform(at, (num_data, 2)))
    signal = np.sin(2 * np.pi * x[:, 0]) + x[:, 1] - 0.5 + 2 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5)
    y = signal + 0.2 * np.asarray(jax.random.normal(noise, (num_data,)))
    gam = ngp.gam.model(FORMULA, {"x0": x[:, 0], "x1": x[:, 1], "y": y})
    X, y = gam.arguments
    return {"X": X, "y": jnp.asarray(y), "gam": gam}


def guide():
    """The full covariance over all terms, which follows the hyper-parameters; those have covariances too."""
    return ngp.AutoGP(model, {"f": ngp.guides.conditional()}, AutoMultivariateNormal)


def engine(guide):
    """About 500 steps."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(2e-2), 0.1), Trace_ELBO())
