"""Small models and fits that the tests of what comes after a fit share, each made once in a process and not before."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO

import numpyro_gp as ngp
from tests.oracles.problems import regression

KEY = jax.random.key(0)
# Twelve rows of one column, a Matern-3/2 of variance 1.3 and lengthscale 0.8, and the dense posterior of them.
PROBLEM = regression()
X, Y, KERNEL = PROBLEM.X, PROBLEM.y, PROBLEM.kernel
Z, NEW = X[::3], X + 0.13
GAUSSIAN = ngp.likelihoods.Gaussian


def noise() -> Any:
    return numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))


def sparse(X, y=None, Z=Z, batch=None, mask=True):
    """Inducing inputs, and a noise with a prior."""
    scale, f = noise(), ngp.gp("f", KERNEL, Z)
    numpyro.deterministic("precision", scale**-2)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx, handlers.mask(mask=mask):
        ngp.observe("y", f(X[idx]), GAUSSIAN(scale), obs=None if y is None else y[idx])


def known(X, y=None):
    """The same with all hyper-parameters known."""
    f = ngp.gp("f", KERNEL, Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), GAUSSIAN(0.4), obs=y)


def exact(X, y=None, inducing=None, count=None):
    """The function integrated out: exactly, or by the collapsed bound; with ``count`` each datum has a variance."""
    variance = noise() * (1.0 if count is None else jnp.ones(count))
    ngp.gp_regression("y", KERNEL, X, variance, obs=y, inducing=inducing, jitter=0.0)


def outputs(X, y=None, mask=True):
    f = ngp.gp("f", KERNEL, Z, outputs=2)
    with numpyro.plate("data", X.shape[0]), handlers.mask(mask=mask):
        ngp.observe("y", f(X), GAUSSIAN(0.4), obs=y)


def level(X, y=None, c=0.0):
    """A level and nothing else: predictions are the level that a posterior has, and ``c``."""
    own = numpyro.sample("level", dist.Normal(0.0, 10.0))
    with numpyro.plate("data", len(X)):
        ngp.observe("y", dist.Delta(own + jnp.zeros(len(X))), GAUSSIAN(0.1), obs=y, offset=c)


def counts(X, y=None):
    f = ngp.gp("f", KERNEL, Z, mean=0.5)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Poisson(), obs=y)


def deep(X, y=None):
    inner = ngp.gp("inner", KERNEL, Z, outputs=2)
    outer = ngp.gp("outer", ngp.kernels.RBF(1.0, 1.0), jnp.concatenate([Z, Z**2], axis=1))
    with numpyro.plate("data", len(X)):
        ngp.observe("y", outer(inner.draw("noise", X)), GAUSSIAN(0.3), obs=y)


def groups(X, y=None, count=3):
    """A function for each of the groups, of rows that they share."""
    with numpyro.plate("groups", count, dim=-2):
        f = ngp.gp("f", KERNEL, Z)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), GAUSSIAN(0.1), obs=y)


# ------------------------------------------------------------------------------------- ways to a posterior


def at_start(model: Callable[..., Any], guide: Any, *args: Any, **changed: Any) -> ngp.Posterior:
    """A guide that was not trained, but for the parameters that are given; ``None`` is `AutoGP` of the model."""
    guide = ngp.AutoGP(model) if guide is None else guide
    svi = SVI(model, guide, optax.sgd(0.1), Trace_ELBO())
    params = svi.get_params(svi.init(KEY, *args))
    return ngp.Posterior.from_svi(model, guide, {**params, **changed})


def trained(model: Callable[..., Any], recipe: Any, *args: Any, steps: int = 3, rate: float = 0.05) -> ngp.Posterior:
    """`AutoGP` with a recipe of natural parameters at ``f``, after whole natural steps."""
    guide = ngp.AutoGP(model, {"f": recipe})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(rate), 1.0), Trace_ELBO())
    return ngp.Posterior.from_svi(model, guide, ngp.fit(KEY, svi, steps, *args, progress=False).params)


def chain(model: Callable[..., Any], *args: Any, draws: int = 200, num_chains: int = 1) -> ngp.Posterior:
    """Of NUTS, with what ArviZ looks at."""
    extra = ("energy", "diverging", "num_steps", "potential_energy")
    options = {"num_warmup": 150, "num_samples": draws, "num_chains": num_chains, "chain_method": "sequential"}
    mcmc = MCMC(NUTS(model), **options, progress_bar=False)
    mcmc.run(KEY, *args, extra_fields=extra)
    return ngp.Posterior.from_mcmc(model, mcmc)


def particles(model: Callable[..., Any], *args: Any, count: int = 30, steps: int = 150) -> ngp.Posterior:
    svgd = ngp.stein.SVGD(model, optax.adam(0.05), ngp.stein.RBF(), count)
    return ngp.Posterior.from_stein(model, svgd, svgd.run(KEY, steps, *args, progress_bar=False).params)


def normal(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


# ------------------------------------------------------------------------------------- the catalogue

FITS: dict[str, Callable[[], ngp.Posterior]] = {
    # Of `sparse` by three engines, and as a chain of three draws that no engine made.
    "coupled": lambda: trained(sparse, ngp.guides.coupled(natural=True), X, Y),
    "NUTS": lambda: chain(sparse, X, Y, draws=60, num_chains=2),
    "Stein": lambda: particles(sparse, X, Y),
    "draws": lambda: ngp.Posterior.from_mcmc(sparse, {"f": normal(3, 4), "noise": jnp.array([0.2, 0.3, 0.4])}),
    # Of `known`: one natural step is exact.
    "optimum": lambda: trained(known, ngp.guides.coupled(natural=True), X, Y, steps=1),
    "start": lambda: at_start(known, None, X, Y),
    # Draws of other models.
    "exact": lambda: ngp.Posterior.from_mcmc(exact, {"noise": jnp.array([0.1, 0.4])}),
    "outputs": lambda: ngp.Posterior.from_mcmc(outputs, {"f": normal(6, 2, 4, seed=2)}),
    "counts": lambda: ngp.Posterior.from_mcmc(counts, {"f": normal(3, 4)}),
    "groups": lambda: ngp.Posterior.from_mcmc(groups, {"f": normal(2, 3, 1, 4)}),
    "deep": lambda: ngp.Posterior.from_mcmc(deep, {"inner": normal(3, 2, 4), "outer": normal(3, 4)}),
}


@cache
def fit(name: str) -> ngp.Posterior:
    return FITS[name]()
