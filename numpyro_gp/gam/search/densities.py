"""Expected log densities of Student-t data and of shares with their slopes, in NumPy, for any spread of ``f``.

Where ``f`` is narrow beside what the density bends over, a few nodes of Gauss and Hermite are right to ten digits.
Beyond, Student's t has a closed form by Faddeeva's function. Shares have the trapezoidal rule: their density is
analytic in a strip about the real axis of width ``2 pi``, whatever the concentration is.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from numpyro_gp.arrays import Array
from numpyro_gp.gam.model.hyperparameters import VectorLayout, evaluate
from numpyro_gp.gam.model.model import Model
from numpyro_gp.kernels.measures import legendre
from numpyro_gp.likelihoods.expectations import HERMITE_NODES
from numpyro_gp.likelihoods.links import WIDE, softplus_moments
from numpyro_gp.likelihoods.quadrature import gauss_hermite
from numpyro_gp.programs.compiled import prepared

# Rows whose nodes are handled at once: larger arrays are read from memory, where these stay in the cache.
AT_ONCE = 2048
# Nodes of Gauss and Hermite, and up to which variance over the squared distance of the nearest singular point.
NARROW = ((1, 0.0), (2, 5e-7), (4, 4e-4), (8, 8e-3))
# The trapezoidal rule: its step where the spread of f is one or less, and where it ends.
STEP, REACH = 0.6, 7.0
# Of Student's t: nodes of Gauss and Legendre, and the widest scale of noise in spreads of f, where f is narrow.
LEGENDRE_NODES, WIDEST = 20, 12.0

# ``(f (Q, N), *numbers of each row (N,))`` to values ``(Q, N)`` of several functions.
Functions = Callable[..., tuple[np.ndarray, ...]]


class ExpectedDensities(NamedTuple):
    """``E log p(y | f)`` of each row ``(N,)``, and its slopes in mean, variance and the likelihood's parameters.

    The last are ``(N,)`` of one parameter, ``(P, N)`` of more; None of none.
    """

    value: np.ndarray
    of_mean: np.ndarray
    of_variance: np.ndarray
    of_parameter: np.ndarray | None = None


def over_nodes(
    functions: Functions,
    rule: tuple[np.ndarray, np.ndarray],
    mean: np.ndarray,
    variance: np.ndarray,
    *given: np.ndarray,
) -> np.ndarray:
    """Expectations ``(K, ..., N)``, of so many rows at a time that their nodes stay in the cache."""
    (nodes, weights), parts = rule, []
    at_nodes = nodes.reshape(-1, *(1,) * mean.ndim)
    step = max(1, AT_ONCE * mean.shape[-1] // max(mean.size, 1))
    for start in range(0, mean.shape[-1], step):
        rows = np.s_[..., start : start + step]
        f = mean[rows] + np.sqrt(variance[rows]) * at_nodes
        found = functions(f, *(own[rows] for own in given))
        parts.append(np.stack([(weights @ one.reshape(len(nodes), -1)).reshape(f.shape[1:]) for one in found]))
    return np.concatenate(parts, axis=-1)


def expected(
    functions: Functions,
    beyond: Functions,
    distance: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    *given: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Expectations of functions under normal ``f``, of the shape of all numbers together.

    ``distance`` is that of the nearest singular point from ``mean``. ``beyond(mean, variance, *given)`` are those of
    rows where ``f`` is not narrow beside it.
    """
    if not np.any(variance):
        return functions(mean, *given)
    ratio, numbers = np.asarray(variance / distance**2), np.broadcast_arrays(mean, variance, *given)
    shape = numbers[0].shape
    if shape and ratio.shape == shape[-1:]:  # rows that are as narrow at every draw are sorted once
        flat = list(numbers)
    else:
        ratio, flat = np.broadcast_to(ratio, shape).reshape(-1), [one.reshape(-1) for one in numbers]
    group = np.digitize(ratio, [limit for _, limit in NARROW], right=True)
    kinds = np.flatnonzero(np.bincount(group))
    parts = []
    for kind in kinds:
        rows = slice(None) if len(kinds) == 1 else group == kind
        own = [one[..., rows] for one in flat]
        is_narrow = kind < len(NARROW)
        found = over_nodes(functions, gauss_hermite(NARROW[kind][0]), *own) if is_narrow else np.stack(beyond(*own))
        parts.append((rows, found))
    whole = np.empty((len(parts[0][1]), *flat[0].shape))
    for rows, found in parts:
        whole[..., rows] = found
    return tuple(whole.reshape(-1, *shape))


def _log_square(f: np.ndarray, y: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, ...]:
    """``log(1 + (f - y)^2 / c^2)``."""
    return (np.log1p(((f - y) / width) ** 2),)


def _log_square_slopes(f: np.ndarray, y: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, ...]:
    """`_log_square` and its slopes in f, in f again and in c."""
    x = f - y
    square = x * x
    total = width**2 + square
    slopes = 2 * x / total, 2 * (width**2 - square) / total**2, -2 * square / (width * total)
    return (*_log_square(f, y, width), *slopes)


def _log_square_of_wide(
    mean: np.ndarray, variance: np.ndarray, y: np.ndarray, width: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Expectations of `_log_square_slopes`: ``E c / (c^2 + x^2)`` is Voigt's profile, which an integral over c adds up.

    In units of ``sqrt(2 variance)``, with ``z = gap + i c``: ``E 1 / (c - i x) = sqrt(pi) w(z)``. The integral goes on
    to a width beside which f is narrow.
    """
    unit = np.sqrt(2 * variance)
    gap, low = (mean - y) / unit, width / unit
    high = np.hypot(low, WIDEST)
    nodes, weights = legendre(LEGENDRE_NODES)
    along = scipy.special.wofz(gap + 1j * (low + (high - low) * nodes[:, None])).real
    far = over_nodes(_log_square, gauss_hermite(NARROW[-1][0]), mean, variance, y, high * unit)[0]
    z = gap + 1j * low
    w = scipy.special.wofz(z)
    turn = 2j / math.sqrt(math.pi) - 2 * z * w  # dw / dz
    root = 2 * math.sqrt(math.pi)
    value = far + 2 * np.log(high / low) - root * (high - low) * (weights @ along)
    return value, root * w.imag / unit, root * turn.imag / unit**2, root * w.real / unit - 2 / width


def _student_constant(df: np.ndarray, scale: np.ndarray) -> np.ndarray:

    return -scipy.special.betaln(0.5, 0.5 * df) - 0.5 * np.log(df) - np.log(scale)


def student_t_value(
    y: np.ndarray, mean: np.ndarray, variance: np.ndarray, df: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """``-(df + 1) / 2 E log(1 + (y - f)^2 / (df scale^2))``, and what does not depend on f."""
    width = scale * np.sqrt(df)
    wide = lambda *given: _log_square_of_wide(*given)[:1]  # noqa: E731
    (log,) = expected(_log_square, wide, np.hypot(mean - y, width), mean, variance, y, width)
    return _student_constant(df, scale) - 0.5 * (df + 1) * log


def student_t(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, df: float, scale: float) -> ExpectedDensities:
    """`student_t_value` with its slopes."""
    from scipy.special import digamma

    width, power = scale * math.sqrt(df), 0.5 * (df + 1)
    log, of_mean, curvature, of_width = expected(
        _log_square_slopes, _log_square_of_wide, np.hypot(mean - y, width), mean, variance, y, np.asarray(width)
    )
    of_df = 0.5 * (digamma(0.5 * df + 0.5) - digamma(0.5 * df) - 1 / df - log) - power * of_width * width / (2 * df)
    of_scale = -1 / scale - power * of_width * math.sqrt(df)
    value = _student_constant(np.asarray(df), np.asarray(scale)) - power * log
    return ExpectedDensities(value, -power * of_mean, -0.5 * power * curvature, np.stack([of_df, of_scale]))


def _shares(f: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean and rest, and both times ``k``, not zero where they underflow."""
    least = np.finfo(float).tiny
    with np.errstate(over="ignore"):  # of what is far from zero one share is nothing
        p, q = (1 / (1 + np.exp(one)) for one in (-f, f))
    return p, q, np.maximum(k * p, least), np.maximum(k * q, least)


def _log_beta(f: np.ndarray, odds: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, ...]:
    """``log p(y | f)`` but for what does not depend on f, of data by their ``log y / (1 - y)``."""
    from scipy.special import gammaln

    _, _, first, second = _shares(f, k)
    return (first * odds - gammaln(first) - gammaln(second),)


def _log_beta_slopes(f: np.ndarray, odds: np.ndarray, k: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, ...]:
    """`_log_beta` and its slopes in f, in f again and in k; these with ``log(1 - y)``."""
    from scipy.special import digamma, zeta

    p, q, first, second = _shares(f, k)
    of_first, of_second = odds + rest - digamma(first), rest - digamma(second)
    rate = k * p * q
    away = rate * (of_first - of_second)
    bend = away * (q - p) - rate**2 * (zeta(2, first) + zeta(2, second))
    return (*_log_beta(f, odds, k), away, bend, p * of_first + q * of_second)


def _of_shares(functions: Functions, mean: np.ndarray, variance: np.ndarray, *given: np.ndarray) -> Any:
    """Expectations of functions that are analytic where the imaginary part is less than pi: the trapezoidal rule."""

    def beyond(mean: np.ndarray, variance: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        step = STEP / max(1.0, math.sqrt(variance.max()))
        nodes = step * np.arange(-math.ceil(REACH / step), math.ceil(REACH / step) + 1)
        weights = step * np.exp(-0.5 * nodes**2) / math.sqrt(2 * math.pi)
        return tuple(over_nodes(functions, (nodes, weights), mean, variance, *given))

    return expected(functions, beyond, np.asarray(math.pi), mean, variance, *given)


def _beta_constant(log: np.ndarray, rest: np.ndarray, k: np.ndarray) -> np.ndarray:
    return scipy.special.gammaln(k) + (k - 1) * rest - log


def beta_value(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, k: np.ndarray) -> np.ndarray:
    """``log Gamma(k) + E[(k m - 1) log y + (k - k m - 1) log(1 - y) - log Gamma(k m) - log Gamma(k - k m)]``."""
    log, rest = np.log(y), np.log1p(-y)
    return _beta_constant(log, rest, k) + _of_shares(_log_beta, mean, variance, log - rest, k)[0]


def beta(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, k: float) -> ExpectedDensities:
    """`beta_value` with its slopes."""
    from scipy.special import digamma

    log, rest = np.log(y), np.log1p(-y)
    value, of_mean, curvature, of_k = _of_shares(_log_beta_slopes, mean, variance, log - rest, np.asarray(k), rest)
    value = _beta_constant(log, rest, np.asarray(k)) + value
    return ExpectedDensities(value, of_mean, 0.5 * curvature, digamma(k) + of_k)


# --------------------------------------------------------------------------------------
# Expected log densities of all rows with their slopes, which pseudo-data are made of.
#
# Those of families with a name are a few lines of NumPy: closed forms, and up to 20 Gauss-Hermite nodes, for wide
# functions a mixture of normals. Likelihoods of the user's are compiled.


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
