"""The logarithm of the normal distribution function, with slopes that hold in its lower tail.

JAX's slope there is the exponential of a difference of large numbers: in float32 its own slope, the curvature of a
probit or of a censored datum, has the wrong sign from some -60 on. Here both are read off Mills' ratio.
"""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr as _log_ndtr

from numpyro_gp.arrays import Array

EDGE, TERMS = 6.0, 12  # below -EDGE a continued fraction of so many terms is right to 3e-11
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@jax.custom_jvp
def log_ndtr(x: Array) -> Array:
    """``log Phi(x)``, with slope ``s(x) = phi(x) / Phi(x)`` and curvature ``-s (s + x)``."""
    return _log_ndtr(x)


@log_ndtr.defjvp
def _log_ndtr_change(primals: tuple[Array], changes: tuple[Array]) -> tuple[Array, Array]:
    (x,), (change,) = primals, changes
    return log_ndtr(x), _slope(x) * change


@jax.custom_jvp
def _slope(x: Array) -> Array:
    """``phi(x) / Phi(x)``."""
    return jnp.where(x < -EDGE, _excess_of_tail(x) - x, jnp.exp(-0.5 * x**2 - _HALF_LOG_2PI - _log_ndtr(x)))


@_slope.defjvp
def _slope_change(primals: tuple[Array], changes: tuple[Array]) -> tuple[Array, Array]:
    (x,), (change,) = primals, changes
    slope = _slope(x)
    return slope, -slope * jnp.where(x < -EDGE, _excess_of_tail(x), slope + x) * change


def _excess_of_tail(x: Array) -> Array:
    """``s(x) + x = 1 / (t + 2 / (t + 3 / (t + ...)))`` of ``t = -x``, which is small where s is large."""
    t = jnp.maximum(-x, EDGE)
    rest = t
    for number in range(TERMS, 1, -1):
        rest = t + number / rest
    return 1 / rest
