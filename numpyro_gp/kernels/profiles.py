"""Integrals and averages of the stationary correlations of one column: one formula each, for NumPy and for JAX.

``xp`` is the module of the arrays, NumPy's or JAX's. Deviations ``kappa - 1`` are not here: what has all its digits in
single precision takes two exponentials, and a fit in double precision one.
"""

import math
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf

from numpyro_gp.arrays import Values
from numpyro_gp.kernels.stationary import RBF, Matern12, Matern32, Matern52

# Lengthscales in units of the decay of the exponential.
RATES: dict[type, float] = {RBF: 1.0, Matern12: 1.0, Matern32: math.sqrt(3), Matern52: math.sqrt(5)}


def integral(kind: type, x: Any, xp: ModuleType = jnp) -> Any:
    """``int_0^x kappa`` of unit lengthscale at ``x >= 0``."""
    z, rate = RATES[kind] * x, RATES[kind]
    if kind is RBF:
        error = np.vectorize(math.erf) if xp is np else erf
        return math.sqrt(math.pi / 2) * error(x / math.sqrt(2))
    if kind is Matern12:
        return -xp.expm1(-z)
    if kind is Matern32:
        return (2 - (2 + z) * xp.exp(-z)) / rate
    return (8 - (8 + 5 * z + z * z) * xp.exp(-z)) / (3 * rate)


def double_mean(kind: type, l: Any, xp: ModuleType = jnp) -> Any:
    """``cbar``: ``kappa`` of lengthscale ``l`` averaged over both arguments in [0, 1], for short lengthscales."""
    w = RATES[kind] / l
    if kind is RBF:
        return 2 * l * integral(RBF, 1 / l, xp) + 2 * l * l * xp.expm1(-0.5 / (l * l))
    if kind is Matern12:
        return 2 * l * (1 + l * xp.expm1(-w))
    if kind is Matern32:
        return 2 * (2 * w - 3 + (3 + w) * xp.exp(-w)) / (w * w)
    return 2 * (8 * w - 15 + (15 + 7 * w + w * w) * xp.exp(-w)) / (3 * w * w)


def of_average(a_x: Values, a_y: Values, b: Any) -> Values:
    """What conditioning on an average of zero takes off ``d = kappa - 1``: ``(a(x) + a(y) + a(x) a(y) - b) / (1 + b)``.

    Of arrays of NumPy and of JAX: kernels that average to zero are ``k0(x, y) = d - of_average(a(x), a(y), b)``.
    """
    return (a_x + a_y + a_x * a_y - b) / (1 + b)


def less_average(k: Values, a_x: Values, a_y: Values, c: Any) -> Values:
    """``k(x, y) - a(x) - a(y) + c``: covariances of a function less its average, of whose growth nothing is taken."""
    return k - a_x - (a_y - c)


def over_normal(x: object, l: Any, mean: Any, sd: Any, xp: ModuleType = jnp) -> tuple[Any, Any]:
    """``a`` and ``b`` of the RBF kernel under ``N(mean, sd^2)``.

    ``1 + a = (1 + r)^-1/2 exp(-(x - m)^2 / 2 t)`` and ``1 + b = (1 + 2 r)^-1/2`` with ``r = (sd / l)^2`` and
    ``t = l^2 + sd^2``.
    """
    ratio, total = (sd / l) ** 2, l**2 + sd**2
    a = xp.expm1(-0.5 * xp.log1p(ratio) - 0.5 * (x - mean) ** 2 / total)
    return a, xp.expm1(-0.5 * xp.log1p(2 * ratio))
