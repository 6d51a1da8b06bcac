"""Links by name: the mean of a response at ``f``, its slope and its expectation, and the ``f`` of a probability.

What fits and figures ask for is in NumPy, what programs trace is in JAX, and means are in both.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, sigmoid
from jax.scipy.special import log_ndtr as _log_ndtr
from jax.scipy.special import ndtr
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.likelihoods.expectations import composite_cuts, expect
from numpyro_gp.likelihoods.quadrature import Latent

# --------------------------------------------------------------------------------------
# The logarithm of the normal distribution function, with slopes that hold in its lower tail.
#
# JAX's slope there is the exponential of a difference of large numbers: in float32 its own slope, the curvature of a
# probit or of a censored datum, has the wrong sign from some -60 on. Here both are read off Mills' ratio.


EDGE, TERMS = 6.0, 12  # below -EDGE a continued fraction of so many terms is right to 3e-11
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@jax.custom_jvp
def log_ndtr(x: Array) -> Array:
    """``log Phi(x)``, with slope ``s(x) = phi(x) / Phi(x)`` and curvature ``-s (s + x)``."""
    return _log_ndtr(x)


@log_ndtr.defjvp
def _log_ndtr_change(primals: tuple[Array], changes: tuple[Array]) -> tuple[Array, Array]:
    (x,), (change,) = primals, changes
    return log_ndtr(x), _mills_slope(x) * change


@jax.custom_jvp
def _mills_slope(x: Array) -> Array:
    """``phi(x) / Phi(x)``."""
    return jnp.where(x < -EDGE, _excess_of_tail(x) - x, jnp.exp(-0.5 * x**2 - _HALF_LOG_2PI - _log_ndtr(x)))


@_mills_slope.defjvp
def _slope_change(primals: tuple[Array], changes: tuple[Array]) -> tuple[Array, Array]:
    (x,), (change,) = primals, changes
    slope = _mills_slope(x)
    return slope, -slope * jnp.where(x < -EDGE, _excess_of_tail(x), slope + x) * change


def _excess_of_tail(x: Array) -> Array:
    """``s(x) + x = 1 / (t + 2 / (t + 3 / (t + ...)))`` of ``t = -x``, which is small where s is large."""
    t = jnp.maximum(-x, EDGE)
    rest = t
    for number in range(TERMS, 1, -1):
        rest = t + number / rest
    return 1 / rest


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
    slope: np.ndarray = np.ones(np.shape(f))
    if link == "log":
        slope = np.exp(f)
    elif link == "logit":
        tail = np.exp(-np.abs(f))
        slope = tail / (1 + tail) ** 2
    elif link == "probit":
        slope = np.exp(-0.5 * np.square(f)) / np.sqrt(2 * np.pi)
    return slope


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


# --------------------------------------------------------------------------------------
# ``E log(1 + e^f)`` of wide normal ``f``, whose turn the nodes of Gauss-Hermite straddle (mathematics.md section
# 7.2).
#
# The slope of ``log(1 + e^f)`` is the logistic distribution function, and this is a mixture of normal ones: of
# standard deviation ``2 k``, with ``k`` from Kolmogorov's distribution (Andrews and Mallows 1974). Under each of them
# the expectation is closed. The Gauss rule of that distribution, of twelve nodes, is right to 2e-10 from a variance
# of 1 on.


ROOT_2PI_INVERSE = 1 / math.sqrt(2 * math.pi)
# A latent variance up to which 20 nodes of Gauss-Hermite are right to 3e-11.
WIDE = 1.0
SPREADS = (
    0.7561870640390987, 0.9917260427381476, 1.2841560229713098, 1.6501253534708262, 2.0930132330354225,
    2.605122031247017, 3.1774432932871357, 3.806648241130592, 4.4959798112788825, 5.257454773968898,
    6.120502487659976, 7.1692633269822865,
)  # fmt: skip
SHARES = (
    0.005529480863865929, 0.07929388528780094, 0.24898081996498592, 0.31953474238516416, 0.22320481810870846,
    0.09508997127217998, 0.02451757836208047, 0.00357518512002595, 0.00026501139928229706, 8.423339129708647e-06,
    8.377669471458898e-08, 1.2008149897029592e-10,
)  # fmt: skip


def at_width(variance: Float[Array, "*batch"]) -> tuple[Array, Array, Array]:
    """Return whether variances are above `WIDE`, and variances for either rule; a minimum has half a slope there."""
    is_wide = variance > WIDE
    return is_wide, jnp.where(is_wide, WIDE, variance), jnp.where(is_wide, variance, WIDE)


def softplus_moments(mean: Any, variance: Any, xp: ModuleType = jnp) -> tuple[Any, Any, Any]:
    """``E log(1 + e^f)`` of wide ``f ~ N(mean, variance)``, both of one shape, and its first two slopes in ``mean``.

    Variances from `WIDE` on, in NumPy or JAX, ``xp``. Half of the second slope is that in the variance.
    """
    rule = (np.array(numbers).reshape(-1, *[1] * mean.ndim) for numbers in (SPREADS, SHARES))
    spreads, shares = (xp.asarray(numbers, mean.dtype) for numbers in rule)
    spread = xp.sqrt(spreads**2 + variance[None])
    side = xp.where(mean > 0, -mean, mean)[None]  # the small one: nothing cancels
    z = side / spread
    below, density = normal_cdf(z), xp.exp(-0.5 * z * z) * ROOT_2PI_INVERSE
    small = xp.sum(shares * (spread * density + side * below), axis=0)
    tail = xp.sum(shares * below, axis=0)
    value = xp.maximum(mean, 0) + xp.maximum(small, 0)
    return value, xp.where(mean > 0, 1 - tail, tail), xp.sum(shares * (density / spread), axis=0)


def _by_moments(moments: Callable[[Array, Array], tuple[Array, Array, Array]]) -> Callable[[Array, Array], Array]:
    """An expectation with its first two slopes in the mean; half of the second is that in the variance."""

    @jax.custom_jvp
    def expected(mean: Array, variance: Array) -> Array:
        return moments(mean, variance)[0]

    @expected.defjvp
    def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
        _, slope, curvature = moments(*primals)
        return expected(*primals), slope * tangents[0] + 0.5 * curvature * tangents[1]

    return expected


# ``E log(1 + e^f)`` of wide ``f ~ N(mean, variance)``, from `WIDE` on.
expected_softplus = _by_moments(softplus_moments)


# --------------------------------------------------------------------------------------
# ``E log Phi(f)`` of wide normal ``f``, in the same way (mathematics.md section 7.2).
#
# The curvature of ``-log Phi(-x)`` rises from 0 to 1, with a tail of ``1 / x^2``: it is taken for a mixture of normal
# distribution functions, nine of one width about zero and fifteen whose widths grow with their centres. Their shares
# are those of least squares from a variance of 1 on (`scipy.optimize.nnls`).


_CORE, _TAIL = -2.35 + 0.84 * np.arange(9), 5.1 * 1.36 ** np.array([*range(14), 15])
_CENTRES, _WIDTHS = np.concatenate([_CORE, _TAIL]), np.concatenate([np.full(9, 0.77), 0.24 * _TAIL])
_PARTS = (
    0.02060610962431965, 0.335236820519813, 0.2700951564934401, 0.15137983855202275, 0.08572755842354808,
    0.04641857755766987, 0.028722449275086947, 0.014764698432684313, 0.007256086377654015, 0.016392775377401726,
    0.010070675903864693, 0.0059116605116821715, 0.003338423306934878, 0.0018559543539711173, 0.0010139867220123008,
    0.000554504024741029, 0.0002997383970335366, 0.00016321775406432127, 8.780370775690259e-05, 4.790471833934121e-05,
    2.5560724458142452e-05, 1.386136960461726e-05, 8.591328655969133e-06, 8.046542415776258e-06,
)  # fmt: skip


def _log_ndtr_moments(mean: Float[Array, "*batch"], variance: Float[Array, "*batch"]) -> tuple[Array, Array, Array]:
    """``E log Phi(f)`` of wide ``f ~ N(mean, variance)``, both of one shape, and its first two slopes in ``mean``."""
    rule = (jnp.asarray(part, mean.dtype).reshape(-1, *[1] * mean.ndim) for part in (_CENTRES, _WIDTHS, _PARTS))
    centres, widths, parts = rule
    spread, away = jnp.sqrt(widths**2 + variance[None]), -mean[None] - centres
    z = away / spread
    below, density = ndtr(z), spread * jnp.exp(-0.5 * z * z) * ROOT_2PI_INVERSE
    slope = away * below + density
    value = 0.5 * (away * slope + spread**2 * below)
    return -jnp.sum(parts * value, axis=0), jnp.sum(parts * slope, axis=0), -jnp.sum(parts * below, axis=0)


# ``E log Phi(f)`` of wide ``f ~ N(mean, variance)`` from `WIDE` on: to 1e-6 of itself or 3e-8, slopes to 3e-6.
expected_log_ndtr = _by_moments(_log_ndtr_moments)
