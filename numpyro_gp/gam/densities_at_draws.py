"""Densities of named families at draws of the function, in NumPy: what a summary asks of them compiles nothing.

Their expected log densities are those of `densities.py`; at a function without variance they are the log densities
themselves. Families that are not here, and likelihoods of the user's, are compiled.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from numpyro_gp.gam import densities
from numpyro_gp.gam.densities import ExpectedDensities, softplus
from numpyro_gp.likelihoods.links import normal_cdf


class AtDraws(NamedTuple):
    """A family with a parameter or none, at data and functions whose shapes broadcast.

    Attributes
    ----------
    expected : callable
        ``(y, mean, variance, *parameter) -> ExpectedDensities``.
    mean : callable
        ``(mean, variance)`` of ``f`` to the expected response.
    below : callable
        ``(y, f, *parameter)`` to ``P(Y <= y | f)``, and ``P(Y < y | f)`` where ``y`` counts, else the same.
    """

    expected: Callable[..., ExpectedDensities]
    mean: Callable[[np.ndarray, np.ndarray], np.ndarray]
    below: Callable[..., tuple[np.ndarray, np.ndarray]]

    def log_prob(self, y: np.ndarray, f: np.ndarray, *parameter: np.ndarray) -> np.ndarray:
        """``log p(y | f)``."""
        return self.expected(y, f, np.zeros(()), *parameter).value


def _of_normal(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, scale: np.ndarray) -> ExpectedDensities:
    """``log N(y; f, scale^2)``."""
    away = (y - mean) / scale**2
    value = -0.5 * ((y - mean) * away + variance / scale**2 + np.log(2 * np.pi * scale**2))
    return ExpectedDensities(value, away, -0.5 / scale**2)


def _exp(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.exp(mean + 0.5 * variance)
    return found


def _sigmoid(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """``E sigmoid(f)``, the slope of ``E softplus(f)``."""
    return softplus(mean, variance)[1]


def _until(steps: Callable[..., np.ndarray]) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Of counts, from ``P(Y <= y)`` for ``y`` from 0 on."""

    def both(y: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return steps(y, *given), np.where(y > 0, steps(np.maximum(y - 1, 0), *given), 0.0)

    return both


def _below_normal(y: np.ndarray, f: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = normal_cdf((y - f) / scale)
    return found, found


def _poisson_steps(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    from scipy.special import gammaincc

    found: np.ndarray = gammaincc(y + 1, np.exp(f))
    return found


def _negative_binomial_steps(y: np.ndarray, f: np.ndarray, r: np.ndarray) -> np.ndarray:
    from scipy.special import betainc

    found: np.ndarray = betainc(r, y + 1, 1 / (1 + np.exp(f - np.log(r))))
    return found


def _bernoulli_steps(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.where(y > 0, 1.0, 1 - softplus(f, np.zeros(()))[1])
    return found


def _below_gamma(y: np.ndarray, f: np.ndarray, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from scipy.special import gammainc

    found = gammainc(shape, shape * y * np.exp(-f))
    return found, found


def _below_exponential(y: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = -np.expm1(-y * np.exp(-f))
    return found, found


AT_DRAWS = {
    "gaussian": AtDraws(_of_normal, lambda mean, variance: mean + 0 * variance, _below_normal),
    "poisson": AtDraws(densities.poisson, _exp, _until(_poisson_steps)),
    "negative_binomial": AtDraws(densities.negative_binomial, _exp, _until(_negative_binomial_steps)),
    "bernoulli": AtDraws(densities.bernoulli, _sigmoid, _until(_bernoulli_steps)),
    "gamma": AtDraws(densities.gamma, _exp, _below_gamma),
    "exponential": AtDraws(densities.exponential, _exp, _below_exponential),
}
