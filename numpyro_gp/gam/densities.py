"""Expected log densities of all rows with their slopes, which pseudo-data are made of.

Those of families with a name are a few lines of NumPy: closed forms, and up to 20 Gauss-Hermite nodes, for wide
functions a mixture of normals. Likelihoods of the user's are compiled.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.gam.densities_by_nodes import NARROW, ExpectedDensities, Functions, beta, over_nodes, student_t
from numpyro_gp.gam.hyperparameters import VectorLayout, evaluate
from numpyro_gp.gam.model import Model
from numpyro_gp.likelihoods.expectations import HERMITE_NODES
from numpyro_gp.likelihoods.rules import gauss_hermite
from numpyro_gp.likelihoods.softplus import WIDE, softplus_moments
from numpyro_gp.programs.keep import prepared

# Of the softplus function one number of nodes more than of other densities.
FEW_NODES = (*NARROW, (12, 0.03))


def softplus(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``E log(1 + e^t)`` and its first two derivatives in the mean, of the shape of both together."""
    value, slope, curvature = _of_softplus(_plain_softplus, slice(0, 3), mean, variance)
    return value, slope, curvature


def sigmoid(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """``E sigmoid(t)``, the first of these derivatives by itself."""
    return _of_softplus(lambda t: (_plain_sigmoid(t)[1],), slice(1, 2), mean, variance)[0]


def _of_softplus(functions: Functions, own: slice, mean: np.ndarray, variance: np.ndarray) -> Sequence[np.ndarray]:
    """Expectations of some of the softplus function and its derivatives, from the functions without a variance."""
    if not np.any(variance):
        return functions(mean)
    mean, variance = np.broadcast_arrays(mean, variance)
    t, spread, found = mean.ravel(), variance.ravel(), np.empty((own.stop - own.start, mean.size))
    is_wide = spread > WIDE
    if is_wide.any():
        found[:, is_wide] = softplus_moments(t[is_wide], spread[is_wide], np)[own]
    if not is_wide.all():
        rows, most = ~is_wide, spread[~is_wide].max() / math.pi**2  # over the squared distance of a singular point
        count = next((count for count, limit in FEW_NODES if most <= limit), HERMITE_NODES)
        found[:, rows] = over_nodes(functions, gauss_hermite(count), t[rows], spread[rows])
    return tuple(found.reshape(-1, *mean.shape))


def _plain_sigmoid(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tail = np.exp(-np.abs(t))
    return tail, np.where(t > 0, 1.0, tail) / (1 + tail)


def _plain_softplus(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tail, p = _plain_sigmoid(t)
    return np.maximum(t, 0) + np.log1p(tail), p, p * (1 - p)


def bernoulli(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> ExpectedDensities:
    """``y f - E softplus(f)``, for labels of which the share ``y`` is 1."""
    value, p, curvature = softplus(mean, variance)
    return ExpectedDensities(y * mean - value, y - p, -0.5 * curvature)


def negative_binomial(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, r: float) -> ExpectedDensities:
    """``y (f - log r) - (y + r) softplus(f - log r)``, and what does not depend on f."""
    from scipy.special import digamma, gammaln  # not at import: only newer versions of NumPyro bring it

    whole, part, curvature = softplus(mean - np.log(r), variance)
    constant = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
    of_r = digamma(y + r) - digamma(r) - y / r - whole + (y + r) * part / r
    found = constant + y * (mean - np.log(r)) - (y + r) * whole
    return ExpectedDensities(found, y - (y + r) * part, -0.5 * (y + r) * curvature, of_r)


def poisson(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> ExpectedDensities:
    """``y f - e^f - log y!``."""
    from scipy.special import gammaln

    rate = np.exp(mean + 0.5 * variance)
    return ExpectedDensities(y * mean - rate - gammaln(y + 1), y - rate, -0.5 * rate)


def gamma(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, shape: float) -> ExpectedDensities:
    """``a (log a - f) - log Gamma(a) + (a - 1) log y - a y e^-f``: of mean ``e^f``."""
    from scipy.special import digamma, gammaln

    ratio = y * np.exp(0.5 * variance - mean)
    value = shape * (np.log(shape) - mean - ratio) - gammaln(shape) + (shape - 1) * np.log(y)
    of_shape = np.log(shape) + 1 - mean - ratio - digamma(shape) + np.log(y)
    return ExpectedDensities(value, shape * (ratio - 1), -0.5 * shape * ratio, of_shape)


def exponential(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> ExpectedDensities:
    """`gamma` with a shape of one."""
    return gamma(y, mean, variance, 1.0)._replace(of_parameter=None)


CLOSED_FORMS: dict[str, Callable[..., ExpectedDensities]] = {
    one.__name__: one for one in (bernoulli, negative_binomial, poisson, gamma, exponential, student_t, beta)
} | {"binomial": bernoulli}


class ExpectedTotal(NamedTuple):
    """The sum over rows of weight ``w``, its slopes in hyper-parameters ``(d,)``, and those in means and variances."""

    value: float
    of_free: np.ndarray
    of_mean: np.ndarray
    of_variance: np.ndarray


# ``(free, y, mean, variance, weights)``.
Density = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], ExpectedTotal]


def density_of(model: Model, vector_layout: VectorLayout) -> Density:
    """The expected log density of the likelihood of a model; parameters of a named one are not of the terms."""
    given, own = model.family.spec, vector_layout.of_likelihood
    if not isinstance(given, str):
        return compiled_density(model, vector_layout)

    def total(
        free: np.ndarray, y: np.ndarray, mean: np.ndarray, variance: np.ndarray, weights: np.ndarray
    ) -> ExpectedTotal:
        parameters = [float(np.exp(free[at])) for at in own]
        each, of_free = CLOSED_FORMS[given](y, mean, variance, *parameters), np.zeros(len(free))
        if each.of_parameter is not None:
            of_free[own] = np.array(parameters) * (each.of_parameter @ weights)
        return ExpectedTotal(float(weights @ each.value), of_free, weights * each.of_mean, weights * each.of_variance)

    return total


def compiled_density(model: Model, vector_layout: VectorLayout) -> Density:
    """Of any likelihood."""
    found = {}

    def whole(free: Array, y: Array, mean: Array, variance: Array, weights: Array) -> tuple[Array, Any]:
        def total(free: Array, mean: Array, variance: Array) -> Array:
            likelihood = evaluate(model, vector_layout.by_name(free)).likelihood
            return jnp.sum(weights * likelihood.expected_log_prob(y, mean, variance))

        return jax.value_and_grad(total, (0, 1, 2))(free, mean, variance)

    def run(
        free: np.ndarray, y: np.ndarray, mean: np.ndarray, variance: np.ndarray, weights: np.ndarray
    ) -> ExpectedTotal:
        arguments = [one.astype(vector_layout.dtype) for one in (free, y, mean, variance, weights)]
        if len(y) not in found:
            found[len(y)] = prepared(whole, *arguments)
        value, slopes = found[len(y)](*arguments)
        of_free, of_mean, of_variance = (np.asarray(one, float) for one in slopes)
        return ExpectedTotal(float(value), of_free, of_mean, of_variance)

    return run
