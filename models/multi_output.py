"""Several correlated outputs, not all seen at every input: the intrinsic model of coregionalisation.

One row of ``X`` is (input, code of the output), so missing outputs are rows that are not there. SVI targets the sparse
variational bound; NUTS on the same function the sparse MCMC posterior, exact with ``Z=X``, and sees both signs of
``weights``, which give the same covariance. Independent outputs that are all seen everywhere need only
``ngp.gp(..., outputs=P)``.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def model(X, y=None, *, Z, num_outputs=2, batch=None):
    """Covariance ``k(x, x') B[i, j]`` with ``B = weights weights^T + diag(own)``; a noise scale for each output."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z[:, :1]))
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([num_outputs, 1]).to_event(2))
    own = numpyro.sample("own", dist.LogNormal(-1.0, 1.0).expand([num_outputs]).to_event(1))
    noise = numpyro.sample("noise", ngp.starting.noise_prior().expand([num_outputs]).to_event(1))
    kernel = ngp.kernels.Matern52(1.0, lengthscale).on(0) * ngp.kernels.Coregion(weights, own).on(1)
    f = ngp.gp("f", kernel, inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        rows = X[idx]
        likelihood = ngp.likelihoods.Gaussian(noise[rows[:, 1].astype(int)])
        ngp.observe("y", f(rows), likelihood, obs=None if y is None else y[idx])


def simulate(key, num_data=300, num_inducing=30):
    """The second output is the first one's opposite, noisier, and seen only on the left half."""
    at, noise = jax.random.split(key)
    half = num_data // 2
    code = (jnp.arange(num_data) >= half).astype(float)
    x = 6.0 * jax.random.uniform(at, (num_data,)) - 3.0
    x = jnp.where(code == 1, 0.5 * x - 1.5, x)
    y = (1.0 - 2.0 * code) * jnp.sin(2 * x) + (0.1 + 0.2 * code) * jax.random.normal(noise, (num_data,))
    grid = jnp.linspace(-3.0, 3.0, num_inducing // 2)
    Z = jnp.concatenate([jnp.stack([grid, jnp.full_like(grid, output)], axis=1) for output in (0.0, 1.0)])
    return {"X": jnp.stack([x, code], axis=1), "y": y, "Z": Z}


def guide():
    """Natural parameters at "f", points elsewhere."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})


def engine(guide):
    """About 1000 steps."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(2e-2), 0.1), Trace_ELBO())
