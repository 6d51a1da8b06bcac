"""Small dense problems with answers typed in NumPy: the same numbers as the library must give, by other means."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import stats

from numpyro_gp import kernels


class Regression(NamedTuple):
    """Gaussian data with known hyper-parameters, and the exact posterior."""

    X: jnp.ndarray
    y: jnp.ndarray
    kernel: kernels.Kernel
    noise: float
    evidence: float
    mean: np.ndarray
    covariance: np.ndarray


def gram(X: np.ndarray, variance: float, lengthscale: float) -> np.ndarray:
    r = np.sqrt(3.0) * np.abs(X[:, 0][:, None] - X[:, 0]) / lengthscale
    return variance * (1 + r) * np.exp(-r)


def regression(seed: int = 0, size: int = 12, noise: float = 0.1) -> Regression:
    """A regression whose exact posterior at the data is computed densely."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-2, 2, (size, 1)), axis=0)
    y = np.sin(2 * X[:, 0]) + np.sqrt(noise) * rng.normal(size=size)
    prior = gram(X, 1.3, 0.8)
    noisy = prior + noise * np.eye(size)
    gain = np.linalg.solve(noisy, prior).T
    return Regression(
        jnp.asarray(X),
        jnp.asarray(y),
        kernels.Matern32(1.3, 0.8),
        noise,
        stats.multivariate_normal(np.zeros(size), noisy).logpdf(y),
        gain @ y,
        prior - gain @ prior,
    )
