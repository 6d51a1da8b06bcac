"""Several correlated outputs, not all seen at every input: the linear model of coregionalisation.

Output ``p`` is ``sum_q weights[p, q] g_q(x) + own_p(x)``: Q processes that all outputs share and one of its own for
each, with kernels of their own. One row of ``X`` names its output in ``output``, so missing outputs are rows that are
not there. SVI targets the sparse variational bound; NUTS on the same function the sparse MCMC posterior, exact with
``Z=X``, and sees both signs of each column of ``weights``, which give the same covariance. Outputs of different
likelihoods are one ``observe`` for each (`measured_and_counted`). With one kernel for all,
``kernels.Coregion`` is this model as a single process.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def functions(Z, num_outputs, num_latent):
    """Sample all hyper-parameters of the functions; return ``at(X, output)``, their marginals at rows."""
    typical = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    with numpyro.plate("latent", num_latent):
        shared = numpyro.sample("shared_factor", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("outputs", num_outputs):
        own = numpyro.sample("own_factor", dist.LogNormal(0.0, 0.5))
        variance = numpyro.sample("own", dist.LogNormal(-2.0, 1.0))
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([num_outputs, num_latent]).to_event(2))
    made = jax.vmap(ngp.kernels.Matern52)
    g = ngp.gp("g", made(jnp.ones(num_latent), typical[None] * shared[:, None]), Z, outputs=num_latent)
    with numpyro.plate("outputs", num_outputs):
        h = ngp.gp("h", made(variance, typical[None] * own[:, None]), Z)

    def at(X, output):
        mixed, alone, share = g(X).base_dist, h.at(output, X), weights[output]
        variance = jnp.sum(share**2 * mixed.variance, axis=-1) + alone.variance
        return dist.Normal(jnp.sum(share * mixed.mean, axis=-1) + alone.mean, jnp.sqrt(variance))

    return at


def model(X, output, y=None, *, Z, num_outputs=2, num_latent=2, batch=None):
    """``output`` ``(N,)`` are whole numbers from 0 to ``num_outputs - 1``."""
    at = functions(Z, num_outputs, num_latent)
    with numpyro.plate("outputs", num_outputs):
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        likelihood = ngp.likelihoods.Gaussian(noise[output[idx]])
        ngp.observe("y", at(X[idx], output[idx]), likelihood, obs=None if y is None else y[idx])


def measured_and_counted(X, output, y=None, *, Z, num_latent=2):
    """Outputs of different likelihoods, one ``observe`` for each: 0 is measured with noise, 1 is counted."""
    at, is_count = functions(Z, 2, num_latent), output == 1
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    with numpyro.plate("data", X.shape[0]):
        f = at(X, output)
        with numpyro.handlers.mask(mask=~is_count):
            ngp.observe("measured", f, ngp.likelihoods.Gaussian(noise), obs=y)
        with numpyro.handlers.mask(mask=is_count):
            counts = None if y is None else jnp.where(is_count, y, 0)  # a masked row needs a count too
            ngp.observe("counted", f, ngp.likelihoods.Poisson(), obs=counts)


def simulate(key, num_data=300, num_inducing=15):
    """The second output is the first one's opposite, noisier, and seen only on the left half."""
    at, noise = jax.random.split(key)
    output = (jnp.arange(num_data) >= num_data // 2).astype(int)
    x = 6.0 * jax.random.uniform(at, (num_data,)) - 3.0
    x = jnp.where(output == 1, 0.5 * x - 1.5, x)
    y = (1.0 - 2.0 * output) * jnp.sin(2 * x) + (0.1 + 0.2 * output) * jax.random.normal(noise, (num_data,))
    return {"X": x[:, None], "output": output, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """Natural parameters at the processes, points elsewhere."""
    return ngp.AutoGP(model, {site: ngp.guides.coupled(natural=True) for site in ("g", "h")})


def engine(guide):
    """About 1000 steps."""
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(2e-2), 0.1), Trace_ELBO())
