"""Families as SciPy knows them, and fits whose draws are made up: no engine is run, and every number is known."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.gam.answers.draws import Dense, Draws
from numpyro_gp.gam.model.features import TermFeatures
from numpyro_gp.gam.model.term_kernels import count_lengthscales

LAWS = {  # of data at ``f``, given the numbers of the likelihood
    "gaussian": stats.norm,
    "student_t": lambda f, df, scale: stats.t(df, f, scale),
    "poisson": lambda f: stats.poisson(np.exp(f)),
    "negative_binomial": lambda f, r: stats.nbinom(r, r / (r + np.exp(f))),
    "bernoulli": lambda f: stats.bernoulli(expit(f)),
    "binomial": lambda f, trials: stats.binom(trials, expit(f)),
    "gamma": lambda f, a: stats.gamma(a, scale=np.exp(f) / a),
    "exponential": lambda f: stats.expon(scale=np.exp(f)),
    "beta": lambda f, k: stats.beta(k * expit(f), k * expit(-f)),
}


def log_density(family, y, f, *numbers):
    """By SciPy, of labels also where ``f`` is far."""
    if family == "bernoulli":
        return -np.logaddexp(0, (1 - 2 * y) * f)
    law = LAWS[family](f, *numbers)
    return law.logpmf(y) if hasattr(law, "pmf") else law.logpdf(y)


def dense_posterior(rng, size):
    """A normal distribution of whitened values whose covariance is below that of the prior."""
    half = np.linalg.cholesky(np.linalg.inv(np.eye(size) + np.cov(rng.normal(size=(size, 30))))).T
    return Dense(0.3 * rng.normal(size=size), half)


def draws_of(model, likelihood, size=2, seed=0, is_dense=False):
    """Draws with points for the whitened values; leaves of the likelihood have the draws on their first axis."""
    rng, term_features = np.random.default_rng(seed), TermFeatures(model)
    lengths = sum(len(part.term.columns) for part in model.layout.read_terms if part.term.kind in ("s", "te", "ti"))
    make = (
        (lambda: dense_posterior(rng, sum(model.sizes)))
        if is_dense
        else lambda: Dense.point(0.5 * rng.normal(size=sum(model.sizes)))
    )
    posteriors, scales = [make() for _ in range(size)], rng.uniform(0.3, 0.6, (size, len(term_features.sizes)))
    numbers = rng.uniform(0.5, 2.0, (size, lengths)) if is_dense else np.ones((size, lengths))
    return Draws(term_features, scales, numbers, likelihood, {}, posteriors, None)


def as_draws(term_features, found, posteriors):
    """Draws of hyper-parameters with a normal distribution of the whitened values beside each."""
    scales, lengths = np.asarray(found.scales, float), np.asarray(found.lengths, float)
    return Draws(term_features, scales, lengths, found.likelihood, found.values, posteriors, found.log_density)


def repeated(likelihood, size=2):
    """A likelihood that is the same at each draw."""
    return jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf, float)[None], size, axis=0), likelihood)


def fit_of(model, likelihood, size=2, is_dense=False):
    """A fit with these draws and no posterior."""
    fit = ngp.gam.Fit(model, None, None, None, "nuts", size, (), jax.random.key(0))
    draws = draws_of(model, likelihood, size, is_dense=is_dense)
    vars(fit).update(_drawn={None: draws}, _term_features=draws.term_features)
    return fit


def kernel_of_term(model, part, variance, lengthscales):
    """The kernel of one term in JAX, of the kernels of all: what others have for hyper-parameters is one."""
    parts = model.layout.read_terms
    variances = jnp.stack([jnp.asarray(variance if own is part else 1.0) for own in parts])
    given = list(lengthscales)[: count_lengthscales(part)]
    lengths = [one for own in parts for one in (given if own is part else [1.0] * count_lengthscales(own))]
    found = model.kernel_data.kernels(variances, jnp.asarray(lengths, variances.dtype))
    return found[part.name]
