"""One curve for each group (patient, star, station): a shared curve, and each group's own departure from it.

Groups have a lengthscale and a variance of their own, drawn from a population: partial pooling. One row of ``X`` names
its group in ``group``, so groups may be ragged; new groups, ``predict(..., new="groups")``, are predicted from the
population and the shared curve. SVI targets the sparse variational bound, with normal factors for the
hyper-parameters, which are narrower than their posterior; NUTS on the same function the sparse MCMC posterior of
Hensman et al. (2015), exact only with all inputs in ``Z``.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp


def model(X, group, y=None, *, Z, num_groups=8, batch=None):
    """``group`` ``(N,)`` are whole numbers from 0 to ``num_groups - 1``."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    spread = numpyro.sample("spread", dist.HalfNormal(0.5))
    typical = numpyro.sample("typical", dist.LogNormal(-1.0, 0.5))
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    with numpyro.plate("groups", num_groups):
        factor = numpyro.sample("factor", dist.LogNormal(0.0, 0.3))
        departure = numpyro.sample("departure", dist.Normal(0.0, 1.0))
        variances = typical * jnp.exp(spread * departure)
        # A batch of kernels is a kernel whose leaves have a leading axis: vmap of the constructor, or kernels.stack.
        kernels = jax.vmap(ngp.kernels.Matern52)(variances, lengthscale[None] * factor[:, None])
        own = ngp.gp("own", kernels, inducing=Z)
    shared = ngp.gp("shared", ngp.kernels.Matern52(1.0, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        common, departs = shared(X[idx]), own.at(group[idx], X[idx])
        f = dist.Normal(common.loc + departs.loc, jnp.sqrt(common.variance + departs.variance))
        ngp.observe("y", f, ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=400, num_inducing=15, num_groups=8):
    """A common wave with a slope for each group; later groups have fewer rows, the last has none."""
    at, which, noise = jax.random.split(key, 3)
    chances = jnp.arange(num_groups - 1, -1, -1.0)
    group = jax.random.choice(which, num_groups, (num_data,), p=chances / jnp.sum(chances))
    x = jax.random.uniform(at, (num_data,), minval=-3.0, maxval=3.0)
    slope = jnp.linspace(-0.5, 0.5, num_groups)[group]
    y = jnp.sin(1.5 * x) + slope * x + 0.1 * jax.random.normal(noise, (num_data,))
    return {"X": x[:, None], "group": group, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """Beliefs that follow the hyper-parameters, at "shared" and, for each group, at "own"; normal factors elsewhere."""
    recipes = {site: ngp.guides.conditional() for site in ("shared", "own")}
    return ngp.AutoGP(model, recipes, rest=AutoNormal)


def engine(guide):
    """About 1000 steps; add ``batch=256`` to the data for many rows."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.1), Trace_ELBO())
