"""Posteriors made of draws, good ones and ones with one fault each, for the tests of a verdict."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import numpyro_gp as ngp
from numpyro_gp.beliefs.gaussian_data import GaussianData

DRAWS, NOISE = 200, 0.3
X = jnp.linspace(-3.0, 3.0, 90)[:, None]
Z = jnp.linspace(-3.0, 3.0, 15)[:, None]
CURVE = jnp.sin(2 * X[:, 0])
y = CURVE + NOISE * np.random.default_rng(0).standard_normal(90)


def kernel(variance, lengthscale):
    return ngp.kernels.Matern52(variance, lengthscale)


def model(X, y=None, *, Z):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    f = ngp.gp("f", kernel(variance, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def around(value, spread=0.1, seed=0):
    return value * np.exp(spread * np.random.default_rng(seed).standard_normal(DRAWS))


@jax.jit
def whitened(X, y, Z, lengthscale, variance, noise):
    """Whitened values drawn from their exact posterior given each draw of the hyper-parameters."""

    def one(key, lengthscale, variance, noise):
        basis = ngp.beliefs.Basis.build(kernel(variance, lengthscale), Z)
        data = GaussianData.build(basis, X, noise**2)
        mean, factor, _ = data.optimum(y / data.scale)
        return mean + factor @ jax.random.normal(key, mean.shape)

    return jax.vmap(one)(jax.random.split(jax.random.key(0), len(noise)), lengthscale, variance, noise)


def hyperparameters(**others):
    """Draws of all three, as a good fit has them, but for the others."""
    good = {"lengthscale": around(1.0, 0.15, 1), "variance": around(0.8, 0.3, 2), "noise": around(NOISE, 0.07, 3)}
    return {name: jnp.asarray(others.get(name, own)) for name, own in good.items()}


def fixed(X, y=None, *, Z):
    """The same process with hyper-parameters that are known."""
    f = ngp.gp("f", kernel(0.8, 1.0), inducing=Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(NOISE), obs=y)


def variational(scale=1.0):
    """The exact belief of `fixed`, or one that is too narrow, as a guide written by hand."""
    basis = ngp.beliefs.Basis.build(kernel(0.8, 1.0), Z)
    data = GaussianData.build(basis, X, jnp.asarray(NOISE**2))
    mean, factor, _ = data.optimum(y / data.scale)

    def guide(X, y=None, *, Z):
        numpyro.sample("f", ngp.Belief(ngp.beliefs.Coupled(mean, scale * factor)))

    return ngp.Posterior.from_svi(fixed, guide, {})


def counts(X, y=None, *, Z):
    """Counts whose logarithm is a process about 1.5."""
    f = ngp.gp("f", kernel(0.5, 1.0), inducing=Z, mean=1.5)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Poisson(), obs=y)


@jax.jit
def of_counts(y):
    """Whitened values drawn from Laplace's approximation, which 90 counts of some size make exact enough."""
    features = ngp.beliefs.Basis.build(kernel(0.5, 1.0), Z).features(X)

    def newton(v, _):
        rate = jnp.exp(1.5 + features.T @ v)
        curvature = (features * rate) @ features.T + jnp.eye(len(v))
        return v + jnp.linalg.solve(curvature, features @ (y - rate) - v), curvature

    mode, curvatures = jax.lax.scan(newton, jnp.zeros(len(Z)), length=30)
    noise = jax.random.normal(jax.random.key(0), (len(Z), DRAWS))
    return mode + jnp.linalg.solve(jnp.linalg.cholesky(curvatures[-1]).T, noise).T


def posterior_of_counts(y):
    return ngp.Posterior.from_mcmc(counts, {"f": of_counts(y)})


RATE = np.exp(1.5 + 0.7 * np.asarray(CURVE))


def exact(X, y=None, *, Z=None):
    """The function integrated out: exactly, or by the collapsed bound."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    ngp.gp_regression("y", kernel(variance, lengthscale), X, noise_variance=noise**2, inducing=Z, obs=y)


def posterior(y=y, Z=Z, chains=1, diverging=None, f=None, **others):
    """A posterior of the model by draws, with the whitened values that data and hyper-parameters give."""
    own = hyperparameters(**others)
    points = whitened(X, y, Z, **own) if f is None else f
    found = ngp.Posterior.from_mcmc(model, {**own, "f": points})
    extra = {} if diverging is None else {"diverging": diverging}
    return dataclasses.replace(found, num_chains=chains, extra_fields=extra)
