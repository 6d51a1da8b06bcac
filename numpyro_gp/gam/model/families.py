"""One row for each family that `ngp.gam` knows by name: all that a fit, a summary and a prediction ask of it.

A family of two columns, class and link, works: what its row leaves open is compiled from the class. With formulas for
NumPy nothing is compiled.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy
from jaxtyping import Float

from numpyro_gp import likelihoods
from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.kernels.measures import legendre
from numpyro_gp.likelihoods import Gamma, Likelihood
from numpyro_gp.likelihoods.base import like
from numpyro_gp.likelihoods.continuous import gamma_expected, gamma_log_prob
from numpyro_gp.likelihoods.expectations import HERMITE_NODES
from numpyro_gp.likelihoods.links import WIDE, mean_of, normal_cdf, softplus_moments
from numpyro_gp.likelihoods.quadrature import Latent, gauss_hermite

# --------------------------------------------------------------------------------------
# Expectations over normal ``f`` by nodes, in NumPy, for any spread of ``f``.
#
# Where ``f`` is narrow beside what a function bends over, a few nodes of Gauss and Hermite are right to ten digits.
# Beyond, functions that are analytic in a strip about the real axis have the trapezoidal rule, and the softplus
# function is a mixture of normal distribution functions.


# Rows whose nodes are handled at once: larger arrays are read from memory, where these stay in the cache.
NODE_ROWS = 2048
# Nodes of Gauss and Hermite, and up to which variance over the squared distance of the nearest singular point.
NARROW = ((1, 0.0), (2, 5e-7), (4, 4e-4), (8, 8e-3))
# The trapezoidal rule: its step where the spread of f is one or less, and where it ends.
STEP, REACH = 0.6, 7.0
# Of the softplus function one number of nodes more than of other densities.
FEW_NODES = (*NARROW, (12, 0.03))

# ``(f (Q, N), *numbers of each row (N,))`` to values ``(Q, N)`` of several functions.
ArrayFunctions = Callable[..., tuple[np.ndarray, ...]]


def over_nodes(
    functions: ArrayFunctions,
    rule: tuple[np.ndarray, np.ndarray],
    mean: np.ndarray,
    variance: np.ndarray,
    *given: np.ndarray,
) -> np.ndarray:
    """Expectations ``(K, ..., N)``, of so many rows at a time that their nodes stay in the cache."""
    (nodes, weights), parts = rule, []
    at_nodes = nodes.reshape(-1, *(1,) * mean.ndim)
    step = max(1, NODE_ROWS * mean.shape[-1] // max(mean.size, 1))
    for start in range(0, mean.shape[-1], step):
        rows = np.s_[..., start : start + step]
        f = mean[rows] + np.sqrt(variance[rows]) * at_nodes
        found = functions(f, *(own[rows] for own in given))
        parts.append(np.stack([(weights @ one.reshape(len(nodes), -1)).reshape(f.shape[1:]) for one in found]))
    return np.concatenate(parts, axis=-1)


def by_nodes(
    functions: ArrayFunctions,
    beyond: ArrayFunctions,
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
    numbers = np.broadcast_arrays(variance / distance**2, mean, variance, *given)
    ratio, *flat = (one.reshape(-1) for one in numbers)
    group = np.digitize(ratio, [limit for _, limit in NARROW], right=True)
    kinds = np.flatnonzero(np.bincount(group))
    parts = []
    for kind in kinds:
        rows = slice(None) if len(kinds) == 1 else group == kind
        own = [one[rows] for one in flat]
        is_narrow = kind < len(NARROW)
        found = over_nodes(functions, gauss_hermite(NARROW[kind][0]), *own) if is_narrow else np.stack(beyond(*own))
        parts.append((rows, found))
    whole = np.empty((len(parts[0][1]), len(ratio)))
    for rows, found in parts:
        whole[:, rows] = found
    return tuple(whole.reshape(-1, *numbers[0].shape))


def in_a_strip(
    functions: ArrayFunctions,
    mean: np.ndarray,
    variance: np.ndarray,
    *given: np.ndarray,
    width: float = math.pi,
    growth: float = 0.0,
) -> tuple[np.ndarray, ...]:
    """Expectations of functions that are analytic where the imaginary part is less than ``width``: trapezoidal rule.

    They grow as ``exp(growth |f|)`` at most, and slowly where that is zero.
    """

    def beyond(mean: np.ndarray, variance: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        spread = math.sqrt(variance.max())
        step, reach = STEP / max(1.0, spread * math.pi / width), REACH + growth * spread
        nodes = step * np.arange(-math.ceil(reach / step), math.ceil(reach / step) + 1)
        weights = step * np.exp(-0.5 * nodes**2) / math.sqrt(2 * math.pi)
        return tuple(over_nodes(functions, (nodes, weights), mean, variance, *given))

    return by_nodes(functions, beyond, np.asarray(width), mean, variance, *given)


def softplus(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``E log(1 + e^t)`` and its first two derivatives in the mean, of the shape of both together.

    The first of them is ``E sigmoid(t)``.
    """

    def plain(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tail = np.exp(-np.abs(t))
        p = np.where(t > 0, 1.0, tail) / (1 + tail)
        return np.maximum(t, 0) + np.log1p(tail), p, p * (1 - p)

    if not np.any(variance):
        return plain(mean)
    mean, variance = np.broadcast_arrays(mean, variance)
    t, spread, result = mean.ravel(), variance.ravel(), np.empty((3, mean.size))
    is_wide = spread > WIDE
    if is_wide.any():
        result[:, is_wide] = softplus_moments(t[is_wide], spread[is_wide], np)
    if not is_wide.all():
        rows, most = ~is_wide, spread[~is_wide].max() / math.pi**2  # over the squared distance of a singular point
        count = next((count for count, limit in FEW_NODES if most <= limit), HERMITE_NODES)
        result[:, rows] = over_nodes(plain, gauss_hermite(count), t[rows], spread[rows])
    value, slope, curvature = result.reshape(3, *mean.shape)
    return value, slope, curvature


# Of Student's t: nodes of Gauss and Legendre, and the widest scale of noise in spreads of f, where f is narrow.
LEGENDRE_NODES, WIDEST = 20, 12.0
# Rates above which counts are drawn as normal numbers, and the logarithm of the largest one.
MOST_RATE, LARGEST = 1e15, 600.0


class Start(NamedTuple):
    """What a quick GLM says, on the scale of the link: the constant, the size of ``f``, and the noise beside it."""

    constant: float | Array = 0.0
    size: float | Array = 1.0
    noise: float | Array = 1.0


class Prior(NamedTuple):
    """A prior of positive numbers, of which programs make a distribution and a fit in NumPy a formula.

    Attributes
    ----------
    median : float or array
        Of a log-normal prior; of a half-normal one its scale.
    spread : float or array, optional
        Standard deviation of the logarithm; None where the prior is half-normal.
    shape : tuple of int
        Of the numbers, which are independent.
    """

    median: ArrayLike
    spread: ArrayLike | None = 1.0
    shape: tuple[int, ...] = ()

    def sample(self, name: str) -> Array:
        """Their values inside of a model."""
        median, spread = self.median, self.spread
        of_one = dist.HalfNormal(median) if spread is None else dist.LogNormal(jnp.log(median), spread)
        return numpyro.sample(name, of_one.expand(self.shape).to_event(len(self.shape)))


class ExpectedDensities(NamedTuple):
    """``E log p(y | f)`` of each row ``(N,)``, and its slopes in mean, variance and the likelihood's parameters.

    The last are ``(N,)`` of one parameter, ``(P, N)`` of more; None of none.
    """

    value: np.ndarray
    of_mean: np.ndarray
    of_variance: np.ndarray
    of_parameter: np.ndarray | None = None


# --------------------------------------------------------------------------------------
# Expected log densities with their slopes, which pseudo-data are made of: closed forms, and nodes.


def _log_square(f: np.ndarray, y: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, ...]:
    """``log(1 + (f - y)^2 / c^2)`` and its slopes in f, in f again and in c."""
    x = f - y
    square = x * x
    total = width**2 + square
    slopes = 2 * x / total, 2 * (width**2 - square) / total**2, -2 * square / (width * total)
    return (np.log1p((x / width) ** 2), *slopes)


def _log_square_of_wide(
    mean: np.ndarray, variance: np.ndarray, y: np.ndarray, width: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Expectations of `_log_square`: ``E c / (c^2 + x^2)`` is Voigt's profile, which an integral over c adds up.

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


def student_t(
    y: np.ndarray, mean: np.ndarray, variance: np.ndarray, df: np.ndarray, scale: np.ndarray
) -> ExpectedDensities:
    """``-(df + 1) / 2 E log(1 + (y - f)^2 / (df scale^2))``, and what does not depend on f."""
    width, power = scale * np.sqrt(df), 0.5 * (df + 1)
    log, of_mean, curvature, of_width = by_nodes(
        _log_square, _log_square_of_wide, np.hypot(mean - y, width), mean, variance, y, width
    )
    of_df = 0.5 * (scipy.special.digamma(0.5 * df + 0.5) - scipy.special.digamma(0.5 * df) - 1 / df - log)
    of_df = of_df - power * of_width * width / (2 * df)
    of_scale = -1 / scale - power * of_width * np.sqrt(df)
    constant = -scipy.special.betaln(0.5, 0.5 * df) - np.log(width)
    slopes = -power * of_mean, -0.5 * power * curvature, np.stack([of_df, of_scale])
    return ExpectedDensities(constant - power * log, *slopes)


def _log_beta(f: np.ndarray, odds: np.ndarray, k: np.ndarray, rest: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """``log p(y | f)`` but for what does not depend on f, of data by their ``log y / (1 - y)``.

    With ``rest``, which is ``log(1 - y)``, its slopes in f, in f again and in k, too.
    """
    with np.errstate(over="ignore"):  # of what is far from zero one share is nothing
        p, q = (1 / (1 + np.exp(one)) for one in (-f, f))
    first, second = (np.maximum(k * share, np.finfo(float).tiny) for share in (p, q))
    value = first * odds - scipy.special.gammaln(first) - scipy.special.gammaln(second)
    if rest is None:
        return (value,)
    of_first, of_second = odds + rest - scipy.special.digamma(first), rest - scipy.special.digamma(second)
    rate = k * p * q
    away = rate * (of_first - of_second)
    bend = away * (q - p) - rate**2 * (scipy.special.zeta(2, first) + scipy.special.zeta(2, second))
    return value, away, bend, p * of_first + q * of_second


def beta_value(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, k: np.ndarray) -> np.ndarray:
    """``log Gamma(k) + E[(k m - 1) log y + (k - k m - 1) log(1 - y) - log Gamma(k m) - log Gamma(k - k m)]``."""
    log, rest = np.log(y), np.log1p(-y)
    constant = scipy.special.gammaln(k) + (k - 1) * rest - log
    return constant + in_a_strip(_log_beta, mean, variance, log - rest, k)[0]


def beta(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, k: float) -> ExpectedDensities:
    """`beta_value` with its slopes, which cost five times as much."""
    log, rest = np.log(y), np.log1p(-y)
    value, of_mean, curvature, of_k = in_a_strip(_log_beta, mean, variance, log - rest, np.asarray(k), rest)
    value = scipy.special.gammaln(k) + (k - 1) * rest - log + value
    return ExpectedDensities(value, of_mean, 0.5 * curvature, scipy.special.digamma(k) + of_k)


def _successes(
    y: np.ndarray, mean: np.ndarray, variance: np.ndarray, trials: np.ndarray | None = None
) -> ExpectedDensities:
    """``y f - n E softplus(f)`` and in how many orders ``y`` successes stand among ``n`` trials.

    Without trials the labels of a fit, of which the share ``y`` is 1.
    """
    value, p, curvature = softplus(mean, variance)
    if trials is None:
        return ExpectedDensities(y * mean - value, y - p, -0.5 * curvature)
    orders = scipy.special.gammaln(trials + 1) - scipy.special.gammaln(y + 1) - scipy.special.gammaln(trials - y + 1)
    return ExpectedDensities(orders + y * mean - trials * value, y - trials * p, -0.5 * trials * curvature)


def _negative_binomial(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, r: float) -> ExpectedDensities:
    """``y (f - log r) - (y + r) softplus(f - log r)``, and what does not depend on f."""
    whole, part, curvature = softplus(mean - np.log(r), variance)
    constant = scipy.special.gammaln(y + r) - scipy.special.gammaln(r) - scipy.special.gammaln(y + 1)
    of_r = scipy.special.digamma(y + r) - scipy.special.digamma(r) - y / r - whole + (y + r) * part / r
    found = constant + y * (mean - np.log(r)) - (y + r) * whole
    return ExpectedDensities(found, y - (y + r) * part, -0.5 * (y + r) * curvature, of_r)


def _poisson(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> ExpectedDensities:
    """``y f - e^f - log y!``."""
    rate = np.exp(mean + 0.5 * variance)
    return ExpectedDensities(y * mean - rate - scipy.special.gammaln(y + 1), y - rate, -0.5 * rate)


def _gamma(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, shape: float) -> ExpectedDensities:
    """``a (log a - f) - log Gamma(a) + (a - 1) log y - a y e^-f``: of mean ``e^f``."""
    ratio = y * np.exp(0.5 * variance - mean)
    value = shape * (np.log(shape) - mean - ratio) - scipy.special.gammaln(shape) + (shape - 1) * np.log(y)
    of_shape = np.log(shape) + 1 - mean - ratio - scipy.special.digamma(shape) + np.log(y)
    return ExpectedDensities(value, shape * (ratio - 1), -0.5 * shape * ratio, of_shape)


# --------------------------------------------------------------------------------------
# Gamma data by the logarithm of their mean: what a gam says of them does not move with their shape.
#
# The public `Gamma` has mean ``shape e^f``: there a shape that is uncertain moves the level of ``f``. Here the two
# are independent in the information of the data, as mean and noise of Gaussian data are.


@value_type()
class MeanGamma(Gamma):
    """Positive data with mean ``exp(f)`` and variance ``exp(2 f) / shape``.

    ``E log p = a (log a - mu) - log Gamma(a) + (a - 1) log y - a y exp(-mu + s / 2)``.

    Parameters
    ----------
    shape : array
        ``a``, positive: a scalar, or one value per datum.

    Examples
    --------
    >>> from numpyro_gp.gam.model.families import MeanGamma
    >>> round(float(MeanGamma(2.0).predictive_mean(0.0, 1.0)), 4)   # exp(1/2)
    1.6487
    """

    @staticmethod
    def density(f: Array, y: Array, shape: Array) -> Array:
        """``log p(y | f)``."""
        return gamma_log_prob(f - jnp.log(shape), y, shape)

    @staticmethod
    def distribution(f: Array, shape: Array) -> dist.Distribution:
        """Gamma with rate ``a exp(-f)``."""
        return dist.Gamma(shape, shape * jnp.exp(-f), validate_args=False)

    @staticmethod
    def turn(y: Array, shape: Array) -> tuple[Array, Array]:
        """At the logarithm of the likeliest mean."""
        return jnp.log(y), 1.0 / jnp.sqrt(shape)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        shape = like("shape", self.shape, y)
        return gamma_expected(latent.mean - jnp.log(shape), latent.variance, y, shape)

    def _mean(self, latent: Latent) -> Array:
        return jnp.exp(latent.mean + 0.5 * latent.variance)

    def _variance(self, latent: Latent) -> Array:
        shape, variance = like("shape", self.shape, latent.mean), latent.variance
        return jnp.exp(2 * (latent.mean + variance)) * (1 / shape - jnp.expm1(-variance))


# --------------------------------------------------------------------------------------
# Draws of new data, and probabilities below them.


def _counts(rng: np.random.Generator, rate: np.ndarray) -> np.ndarray:
    """Counts of a rate; of one above what NumPy draws, where they are almost normal, rounded normal numbers."""
    is_large = rate > MOST_RATE
    if not is_large.any():
        return rng.poisson(rate)
    few = rng.poisson(np.where(is_large, 0.0, rate))
    return np.where(is_large, np.rint(rate + np.sqrt(rate) * rng.standard_normal(rate.shape)), few)


def _rate(f: np.ndarray) -> np.ndarray:
    """A rate that is a number however large ``f`` is."""
    return np.exp(np.minimum(f, LARGEST))


def _draw_beta(rng: np.random.Generator, link: str, f: np.ndarray, k: np.ndarray) -> np.ndarray:
    mean = np.clip(mean_of(link, f), 1e-12, 1 - 1e-12)
    return rng.beta(k * mean, k * (1 - mean))


def _student_t_variance(_: str, f: np.ndarray, df: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.where(df > 2, scale**2 * df / np.maximum(df - 2, 1e-300), np.inf) + 0 * f


def _until_binomial(y: np.ndarray, f: np.ndarray, trials: np.ndarray) -> np.ndarray:
    return np.where(y < trials, scipy.special.betainc(np.maximum(trials - y, 1), y + 1, mean_of("logit", -f)), 1.0)


def _until_beta(y: np.ndarray, f: np.ndarray, k: np.ndarray) -> np.ndarray:
    return scipy.special.betainc(*(np.maximum(k * mean_of("logit", one), np.finfo(float).tiny) for one in (f, -f)), y)


def _gaussian(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, scale: np.ndarray) -> ExpectedDensities:
    away, flat = (y - mean) / scale**2, -0.5 / scale**2 + 0 * mean
    value = -0.5 * ((y - mean) * away + variance / scale**2 + np.log(2 * np.pi * scale**2))
    return ExpectedDensities(value, away, flat, ((y - mean) * away + variance / scale**2 - 1) / scale)


def _label_variance(link: str, f: np.ndarray, *_: object) -> np.ndarray:
    return mean_of(link, f) * mean_of(link, -f)


def _label_deviance(y: np.ndarray, mean: np.ndarray, _: object) -> np.ndarray:
    return 2 * (scipy.special.rel_entr(y, mean) + scipy.special.rel_entr(1 - y, 1 - mean))


def _count_deviance(y: np.ndarray, mean: np.ndarray, r: np.ndarray) -> np.ndarray:
    return 2 * (scipy.special.xlogy(y, y / mean) - (y + r) * np.log((y + r) / (mean + r)))


def _ratio_deviance(y: np.ndarray, mean: np.ndarray, _: object) -> np.ndarray:
    return 2 * ((y - mean) / mean - np.log(y / mean))


# --------------------------------------------------------------------------------------
# The rows.


class FamilyRow(NamedTuple):
    """A likelihood with a name, its priors, and formulas for NumPy where arrays broadcast; ``*p`` are its parameters.

    Attributes
    ----------
    kind : type
        The class, which takes the parameters in the order of ``priors``.
    link : str
    priors : callable
        `Start` to priors of the parameters by name.
    is_discrete : bool
        Whether data are numbers of something, whose log density is that of a mass.
    expected : callable, optional
        ``(y, mean, variance, *p)`` to the expected log density with its slopes, which a fit climbs.
    value : callable, optional
        The expected log density alone, where that is far less work.
    until : callable, optional
        ``(y, f, *p)`` to ``P(Y <= y | f)``.
    variance : callable, optional
        ``(link, f, *p)`` to the variance of a datum.
    draw : callable, optional
        ``(generator, link, f, *p)`` to new data.
    deviance : callable, optional
        ``(y, mean, r)`` to twice the log density that a mean loses against the datum itself, without its scale.
    factor : callable, optional
        ``*p`` to the mean of a datum in parts of what the link says.
    """

    kind: type[Likelihood]
    link: str
    priors: Callable[[Start], dict[str, Prior]] = lambda _: {}
    is_discrete: bool = False
    expected: Callable[..., ExpectedDensities] | None = None
    value: Callable[..., np.ndarray] | None = None
    until: Callable[..., np.ndarray] | None = None
    variance: Callable[..., np.ndarray] | None = None
    draw: Callable[..., np.ndarray] | None = None
    deviance: Callable[..., np.ndarray] | None = None
    factor: Callable[..., np.ndarray] | None = None

    def expect(self, y: np.ndarray, mean: np.ndarray, variance: np.ndarray, *p: np.ndarray) -> np.ndarray:
        """The expected log density."""
        if self.value is not None:
            return self.value(y, mean, variance, *p)
        assert self.expected is not None
        return self.expected(y, mean, variance, *p).value

    def log_prob(self, y: np.ndarray, f: np.ndarray, *p: np.ndarray) -> np.ndarray:
        """``log p(y | f)``."""
        return self.expect(y, f, np.zeros(()), *p)

    def mean(self, mean: np.ndarray, variance: np.ndarray, *p: np.ndarray) -> np.ndarray:
        """The expected response, by the link of the row."""
        found = mean + 0 * variance
        if self.link != "identity":
            found = softplus(mean, variance)[1] if self.link == "logit" else np.exp(mean + 0.5 * variance)
        return found if self.factor is None else self.factor(*p) * found

    def mean_at(self, link: str, f: np.ndarray, *p: np.ndarray) -> np.ndarray:
        """The response that is expected at ``f``, by another link too."""
        found: np.ndarray = mean_of(link, f)
        return found if self.factor is None else self.factor(*p) * found


NAMED = {
    "gaussian": FamilyRow(
        likelihoods.Gaussian,
        "identity",
        lambda start: {"noise": Prior(start.noise)},
        expected=_gaussian,
        until=lambda y, f, sd: normal_cdf((y - f) / sd),
        variance=lambda _, f, sd: sd**2 + 0 * f,
        draw=lambda rng, _, f, sd: rng.normal(f, sd + 0 * f),
        deviance=lambda y, mean, _: (y - mean) ** 2,
    ),
    "student_t": FamilyRow(
        likelihoods.StudentT,
        "identity",
        lambda start: {"df": Prior(4.0, 0.7), "noise": Prior(0.7 * start.noise)},
        expected=student_t,
        until=lambda y, f, df, sd: scipy.special.stdtr(df, (y - f) / sd),
        variance=_student_t_variance,
        draw=lambda rng, _, f, df, sd: f + sd * rng.standard_t(df + 0 * f),
        deviance=lambda y, mean, _: (y - mean) ** 2,
    ),
    "poisson": FamilyRow(
        likelihoods.Poisson,
        "log",
        is_discrete=True,
        expected=_poisson,
        until=lambda y, f: scipy.special.gammaincc(y + 1, np.exp(f)),
        variance=lambda _, f: np.exp(f),
        draw=lambda rng, _, f: _counts(rng, _rate(f)),
        deviance=lambda y, mean, _: 2 * (scipy.special.rel_entr(y, mean) - y + mean),
    ),
    "negative_binomial": FamilyRow(
        likelihoods.NegativeBinomial,
        "log",
        lambda _: {"r": Prior(5.0)},
        is_discrete=True,
        expected=_negative_binomial,
        until=lambda y, f, r: scipy.special.betainc(r, y + 1, 1 / (1 + np.exp(f - np.log(r)))),
        variance=lambda _, f, r: np.exp(f) * (1 + np.exp(f) / r),
        draw=lambda rng, _, f, r: _counts(rng, rng.gamma(r, _rate(f) / r)),
        deviance=_count_deviance,
    ),
    "bernoulli": FamilyRow(
        likelihoods.Bernoulli,
        "logit",
        is_discrete=True,
        expected=_successes,
        until=lambda y, f: np.where(y > 0, 1.0, mean_of("logit", -f)),
        variance=_label_variance,
        draw=lambda rng, link, f: (rng.uniform(size=f.shape) < mean_of(link, f)).astype(int),
        deviance=_label_deviance,
    ),
    "binomial": FamilyRow(  # of one trial, until rows say how many
        likelihoods.Binomial,
        "logit",
        is_discrete=True,
        expected=_successes,
        until=_until_binomial,
        variance=lambda link, f, trials=1: trials * _label_variance(link, f),
        draw=lambda rng, link, f, trials: rng.binomial(trials.astype(int), mean_of(link, f)),
        deviance=_label_deviance,
        factor=lambda trials: trials,
    ),
    "gamma": FamilyRow(
        MeanGamma,
        "log",
        lambda _: {"shape": Prior(3.0)},
        expected=_gamma,
        until=lambda y, f, a: scipy.special.gammainc(a, a * y * np.exp(-f)),
        variance=lambda _, f, a: np.exp(2 * f) / a,
        draw=lambda rng, _, f, a: rng.gamma(a, np.exp(f) / a),
        deviance=_ratio_deviance,
    ),
    "exponential": FamilyRow(
        likelihoods.Exponential,
        "log",
        expected=lambda y, mean, variance: _gamma(y, mean, variance, 1.0)._replace(of_parameter=None),
        until=lambda y, f: -np.expm1(-y * np.exp(-f)),
        variance=lambda _, f: np.exp(2 * f),
        draw=lambda rng, _, f: rng.exponential(np.exp(f)),
        deviance=_ratio_deviance,
    ),
    "categorical": FamilyRow(likelihoods.Softmax, "softmax", is_discrete=True),  # several functions: `classes.py`
    "beta": FamilyRow(
        likelihoods.Beta,
        "logit",
        lambda _: {"concentration": Prior(10.0)},
        expected=beta,
        value=beta_value,
        until=_until_beta,
        variance=lambda link, f, k: _label_variance(link, f) / (1 + k),
        draw=_draw_beta,
    ),
}
# `Gamma` of the library has the mean ``a e^f``: no name, but means, draws and weights.
OF_RATE = NAMED["gamma"]._replace(
    kind=Gamma,
    expected=None,
    until=None,
    variance=lambda _, f, a: a * np.exp(2 * f),
    draw=lambda rng, _, f, a: rng.gamma(a, np.exp(f)),
    factor=lambda a: a,
)


def row_of(kind: type) -> FamilyRow | None:
    """The row of a class of likelihoods, where it has one."""
    return next((row for row in (*NAMED.values(), OF_RATE) if row.kind is kind), None)


def parameters_of(likelihood: object, axes: int) -> list[np.ndarray]:
    """The parameters of a likelihood, ``(S,)`` at draws or ``(S, N)`` at rows too, for arrays with so many axes."""
    leaves = [np.asarray(one, float) for one in jax.tree.leaves(likelihood)]
    return [one.reshape(len(one), *[1] * (axes - one.ndim), *one.shape[1:]) for one in leaves]
