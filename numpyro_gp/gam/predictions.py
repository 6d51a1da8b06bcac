"""Predictions of new rows without the library's posterior: the same mixture over the same draws, by NumPy."""

import copy
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.arrays import Array
from numpyro_gp.gam.draws import Draws
from numpyro_gp.gam.model import offset_at
from numpyro_gp.gam.per_row import at_rows, check_rows, trials_at, with_trials
from numpyro_gp.gam.responses import NewData
from numpyro_gp.gam.term_features import ROWS
from numpyro_gp.likelihoods import Binomial, Likelihood
from numpyro_gp.posterior import Prediction
from numpyro_gp.rows.cuts import padded
from numpyro_gp.sites import Observation

# Steps of the precision of JAX at the level of the data, in parts of the noise, above which the level is kept apart.
FINE = 1e-3


def latent(draws: Draws, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance ``(S, N)`` of ``f`` at rows, at each draw."""
    offset, means, variances = offset_at(draws.model, X), [], []
    least = 4 * np.finfo(float).eps
    for term_posterior, (A, prior, _) in draws.at(X):
        means.append(offset + term_posterior.mean @ A)
        whole = prior.sum(axis=0)
        variances.append(np.maximum(whole - np.sum(A**2, axis=0) + term_posterior.row_variances(A), least * whole))
    return np.stack(means), np.stack(variances)


def in_parts(draws: Draws, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """At most `ROWS` rows at a time, with mean and variance ``(S, N)`` of ``f`` there."""
    for at in draws.term_features.cuts(len(X)):
        mean, variance = latent(draws, X[at])
        for low in range(0, mean.shape[1], ROWS):
            own = slice(low, min(low + ROWS, mean.shape[1]))
            yield slice(at.start + low, at.start + own.stop), mean[:, own], variance[:, own]


def predicted(draws: Draws, X: np.ndarray, key: Array) -> Prediction:
    """The mixture over all draws of what each says of new data at encoded rows."""
    chunks, sizes, model = [], [], draws.model
    count, dtype = len(model.rows.y), draws.term_features.dtype
    check_rows(draws.likelihood, len(X), count)
    offset, is_location = np.broadcast_to(offset_at(model, X), len(X)), model.family.link == "identity"
    step = float(np.abs(offset).max() * jnp.finfo(dtype).eps)
    level = offset if is_location and step > FINE * float(model.start.noise) else None
    for rows, mean, variance in in_parts(draws, X):
        own = mean if level is None else mean - level[rows]
        mean, variance = (padded(one, 0, ROWS, axis=1).astype(dtype) for one in (own, variance))
        places = padded(np.arange(rows.start, rows.stop), 0, ROWS)
        likelihood = at_rows(draws.likelihood, model.layout, X[places], places, count)
        chunks.append(observation(likelihood, mean, variance))
        sizes.append(rows.stop - rows.start)
    is_named = isinstance(model.family.spec, str)
    return Prediction(chunks, sizes, key, quantiles=quantiles_of_rows if is_named else None, level=level)


def quantiles_of_rows(chunk: Observation, rows: int, levels: np.ndarray, num_samples: int) -> np.ndarray:
    """`quantiles_at` for the first rows of a chunk of predictions."""
    likelihood, trials = jax.tree.map(np.asarray, chunk.likelihood), None
    if isinstance(likelihood, Binomial):  # trials of draws and rows, the same at each draw
        every = np.asarray(likelihood.trials)
        likelihood, trials = with_trials(likelihood, every[:, 0]), every[0, :rows]
    mean, variance = (np.asarray(one, float)[:, :rows] for one in (chunk.mean_latent, chunk.variance_latent))
    return NewData(likelihood).of_trials(trials).quantiles(mean, variance, levels, num_samples)


def quantiles_at(draws: Draws, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles ``(levels, N)`` of new data of a named family at encoded rows, by NumPy, which compiles nothing."""
    new_data, layout, found = NewData(draws.likelihood), draws.model.layout, []
    for rows, mean, variance in in_parts(draws, X):
        found.append(new_data.of_trials(trials_at(layout, X[rows])).quantiles(mean, variance, levels))
    return np.concatenate(found, axis=1).astype(float)


def observation(likelihood: Likelihood, mean: np.ndarray, variance: np.ndarray) -> Observation:
    """New data at each draw, which all leaves have on their first axis; their shapes are those of one draw."""

    def one(likelihood: Likelihood, mean: Array) -> Observation:
        return Observation(dist.Normal(mean, jnp.ones_like(mean)), likelihood)

    own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (likelihood, mean))
    found: Observation = copy.copy(jax.eval_shape(one, *own))
    found.mean_latent, found.variance_latent = jnp.asarray(mean), jnp.asarray(variance)
    found.likelihood = jax.tree.map(jnp.asarray, likelihood)
    return found
