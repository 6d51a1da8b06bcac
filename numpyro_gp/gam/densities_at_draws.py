"""Densities of named families at draws of the function, in NumPy: what a summary asks of them compiles nothing.

Their expected log densities are those of `densities.py`; at a function without variance they are the log densities
themselves. Likelihoods that no family has are compiled.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import scipy

from numpyro_gp.gam.densities import bernoulli, exponential, gamma, negative_binomial, poisson, sigmoid, softplus
from numpyro_gp.gam.densities_by_nodes import ExpectedDensities, beta_value, student_t_value
from numpyro_gp.gam.family import NAMED
from numpyro_gp.likelihoods.links import mean_of, normal_cdf


class AtDraws(NamedTuple):
    """A family with its parameters, at data and functions whose shapes broadcast.

    Attributes
    ----------
    expected : callable
        ``(y, mean, variance, *parameters)`` to the expected log density.
    mean : callable
        ``(mean, variance, *parameters)`` of ``f`` to the expected response.
    until : callable
        ``(y, f, *parameters)`` to ``P(Y <= y | f)``.
    is_discrete : bool
        Whether data are numbers of something, whose log density is that of a mass.
    """

    expected: Callable[..., np.ndarray]
    mean: Callable[..., np.ndarray]
    until: Callable[..., np.ndarray]
    is_discrete: bool = False

    def log_prob(self, y: np.ndarray, f: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
        """``log p(y | f)``."""
        return self.expected(y, f, np.zeros(()), *parameters)


def _value_of(function: Callable[..., ExpectedDensities]) -> Callable[..., np.ndarray]:
    return lambda *given: function(*given).value


def _of_normal(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """``log N(y; f, scale^2)``."""
    away = (y - mean) / scale**2
    return -0.5 * ((y - mean) * away + variance / scale**2 + np.log(2 * np.pi * scale**2))


def _of_binomial(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """``log C(n, y) + y f - n E softplus(f)``."""
    from scipy.special import gammaln

    constant = gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)
    return constant + y * mean - trials * softplus(mean, variance)[0]


def _same(mean: np.ndarray, variance: np.ndarray, *parameters: object) -> np.ndarray:  # noqa: ARG001
    return mean + 0 * variance


def _exp(mean: np.ndarray, variance: np.ndarray, *parameters: object) -> np.ndarray:  # noqa: ARG001
    return np.exp(mean + 0.5 * variance)


def _sigmoid(mean: np.ndarray, variance: np.ndarray, *parameters: object) -> np.ndarray:  # noqa: ARG001
    return sigmoid(mean, variance)


def _until_binomial(y: np.ndarray, f: np.ndarray, trials: np.ndarray) -> np.ndarray:
    return np.where(y < trials, scipy.special.betainc(np.maximum(trials - y, 1), y + 1, mean_of("logit", -f)), 1.0)


def _until_beta(y: np.ndarray, f: np.ndarray, k: np.ndarray) -> np.ndarray:
    return scipy.special.betainc(*(np.maximum(k * mean_of("logit", one), np.finfo(float).tiny) for one in (f, -f)), y)


AT_DRAWS = {
    "gaussian": AtDraws(_of_normal, _same, lambda y, f, sd: normal_cdf((y - f) / sd)),
    "student_t": AtDraws(student_t_value, _same, lambda y, f, df, sd: scipy.special.stdtr(df, (y - f) / sd)),
    "poisson": AtDraws(_value_of(poisson), _exp, lambda y, f: scipy.special.gammaincc(y + 1, np.exp(f)), True),
    "negative_binomial": AtDraws(
        _value_of(negative_binomial),
        _exp,
        lambda y, f, r: scipy.special.betainc(r, y + 1, 1 / (1 + np.exp(f - np.log(r)))),
        True,
    ),
    "bernoulli": AtDraws(_value_of(bernoulli), _sigmoid, lambda y, f: np.where(y > 0, 1.0, mean_of("logit", -f)), True),
    "binomial": AtDraws(_of_binomial, lambda *given: given[2] * _sigmoid(*given), _until_binomial, True),
    "gamma": AtDraws(_value_of(gamma), _exp, lambda y, f, a: scipy.special.gammainc(a, a * y * np.exp(-f))),
    "exponential": AtDraws(_value_of(exponential), _exp, lambda y, f: -np.expm1(-y * np.exp(-f))),
    "beta": AtDraws(beta_value, _sigmoid, _until_beta),
}


def at_draws_of(likelihood: object) -> AtDraws | None:
    """The densities of a likelihood that need no program, where there are some: of that of a family, with its link."""
    name = next((name for name, own in NAMED.items() if own.kind is type(likelihood)), "")
    is_own = getattr(likelihood, "link", "logit") == "logit"  # that of a family of shares or labels
    return AT_DRAWS.get(name) if is_own else None


def parameters_of(likelihood: object, axes: int) -> list[np.ndarray]:
    """The parameters of a likelihood, ``(S,)`` at draws or ``(S, N)`` at rows too, for arrays with so many axes."""
    leaves = [np.asarray(one, float) for one in jax.tree.leaves(likelihood)]
    return [one.reshape(len(one), *[1] * (axes - one.ndim), *one.shape[1:]) for one in leaves]
