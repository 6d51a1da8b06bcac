"""Links by name: the mean of a response at ``f``, its slope and its expectation, and the ``f`` of a probability.

What fits and figures ask for is in NumPy, what programs trace is in JAX, and means are in both.
"""

import math
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, sigmoid
from jax.scipy.special import ndtr

from numpyro_gp.arrays import Array
from numpyro_gp.likelihoods.expectations import composite_cuts, expect
from numpyro_gp.likelihoods.log_normal_cdf import log_ndtr
from numpyro_gp.likelihoods.points import Latent


def normal_cdf(z: Any) -> Any:
    """The normal distribution function, of JAX or NumPy."""
    if isinstance(z, jax.Array):
        return ndtr(z)
    from scipy.special import ndtr as in_numpy  # not at import: only newer versions of NumPyro bring it

    return in_numpy(z)


def mean_of(link: str, f: Any) -> Any:
    """The inverse of the link: ``f``, ``e^f``, ``1 / (1 + e^-f)`` or the normal distribution function."""
    is_jax = isinstance(f, jax.Array)
    if link == "log":
        f = (jnp if is_jax else np).exp(f)
    elif link == "logit":
        f = sigmoid(f) if is_jax else 1 / (1 + np.exp(-f))
    elif link == "probit":
        f = normal_cdf(f)
    return f


def slope_of(link: str, f: np.ndarray) -> np.ndarray:
    """``d mean / d f``."""
    found: np.ndarray = np.ones(np.shape(f))
    if link == "log":
        found = np.exp(f)
    elif link == "logit":
        tail = np.exp(-np.abs(f))
        found = tail / (1 + tail) ** 2
    elif link == "probit":
        found = np.exp(-0.5 * np.square(f)) / np.sqrt(2 * np.pi)
    return found


def link_at(link: str, share: float) -> float:
    """The link of a probability."""
    return NormalDist().inv_cdf(share) if link == "probit" else math.log(share / (1 - share))


def expected_mean(link: str, latent: Latent) -> Array:
    """``E sigmoid(f)`` by the composite rule, or ``E ndtr(f) = ndtr(mean / sqrt(1 + variance))``."""
    if link == "probit":
        return ndtr(latent.mean / jnp.sqrt(1 + latent.variance))
    return expect(sigmoid, latent.mean, latent.variance, cuts=composite_cuts(0.0, 1.0, latent.mean))


def log_link(link: str, f: Array) -> tuple[Array, Array]:
    """``(log p, log(1 - p))`` of ``p = sigmoid(f)`` or ``ndtr(f)``, without forming ``p``."""
    log_cdf = log_sigmoid if link == "logit" else log_ndtr
    return log_cdf(f), log_cdf(-f)
