"""Predictions of new rows without the library's posterior: the same mixture over the same draws, by NumPy."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.arrays import Array
from numpyro_gp.gam.at_rows import ROWS, AtRows
from numpyro_gp.gam.densities import filled
from numpyro_gp.gam.draws import Draws
from numpyro_gp.gam.per_row import at_places, check_rows
from numpyro_gp.posterior import Prediction
from numpyro_gp.sites import Observation


def latent(draws: Draws, at_rows: AtRows, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance ``(S, N)`` of ``f`` at rows, at each draw."""
    level, means, variances, see = at_rows.model.level(X), [], [], at_rows.at(X)
    least = 4 * np.finfo(float).eps
    for scales, lengths, weights in draws.each():
        A, prior = see(scales, lengths)
        means.append(level + weights.mean @ A)
        whole = prior.sum(axis=0)
        variances.append(np.maximum(whole - np.sum(A**2, axis=0) + weights.spread(A), least * whole))
    return np.stack(means), np.stack(variances)


def predicted(draws: Draws, at_rows: AtRows, X: np.ndarray, key: Array) -> Prediction:
    """The mixture over all draws of what each says of new data at encoded rows."""
    chunks, sizes, count = [], [], len(at_rows.model.rows.y)
    check_rows(draws.likelihood, len(X), count)
    for at in at_rows.cuts(len(X)):
        moments = latent(draws, at_rows, X[at])
        for low in range(0, at.stop - at.start, ROWS):
            mean, variance = (filled(one[:, low : low + ROWS].T, ROWS).T for one in moments)
            sizes.append(min(ROWS, at.stop - at.start - low))
            places = filled(at.start + low + np.arange(sizes[-1]), ROWS)
            likelihood = at_places(draws.likelihood, places, count)
            chunks.append(observation(likelihood, *(one.astype(at_rows.dtype) for one in (mean, variance))))
    return Prediction(chunks, sizes, key)


def observation(likelihood: Any, mean: np.ndarray, variance: np.ndarray) -> Observation:
    """New data at each draw, which all leaves have on their first axis; their shapes are those of one draw."""

    def one(likelihood: Any, mean: Array) -> Observation:
        return Observation(dist.Normal(mean, jnp.ones_like(mean)), likelihood)

    own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (likelihood, mean))
    found: Observation = copy.copy(jax.eval_shape(one, *own))
    found.mean_latent, found.variance_latent = jnp.asarray(mean), jnp.asarray(variance)
    found.likelihood = jax.tree.map(jnp.asarray, likelihood)
    return found
