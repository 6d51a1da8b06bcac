"""Log densities as what they lose against their largest value (mathematics.md section 7.1).

``log Gamma(a)`` grows as ``a log a``, so differences of it cancel: in float32 a count of a million had errors of 0.6.
Here the part ``a log a - a`` is taken out of each ``log Gamma`` and joined with the rest of the density, where it
makes a *deviance*, a function of ``mean - target`` that is zero, with its slope, where they agree.
"""

import math

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.nn import sigmoid, softplus

from numpyro_gp.arrays import Array

# Coefficients of 1/x, 1/x^3, ... in Stirling's series: right to 1e-14 from x = 8 on.
SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
SHIFT = 8
# Series of log(1 + u) - u for small u, of ten terms: right to 2e-13 of itself up to 0.05.
SMALL, TERMS = 0.05, 10
# Quantities that differ by less than this part are compared by their difference, others by their logarithms.
SIMILAR = 0.5


def stirling(x: Array) -> Array:
    """``log Gamma(1 + x) - (x log x - x)`` for ``x >= 0``: near ``log(2 pi x) / 2``; 0 at 0.

    Below 8 by ``Gamma(x + 1) = x Gamma(x)``, so that every derivative is elementary.
    """
    is_large = x >= SHIFT
    above = jnp.where(is_large, x, x + SHIFT)
    below = jnp.maximum(jnp.where(is_large, 1.0, x), jnp.finfo(x.dtype).tiny)
    inverse = 1 / above
    value = 0.5 * jnp.log(2 * math.pi * above) + inverse * _power_series(inverse * inverse, SERIES)
    factors = math.prod(((below + i) / (below + SHIFT) for i in range(2, SHIFT)), start=(below + 1) / (below + SHIFT))
    step = below * (jnp.log(below + SHIFT) - jnp.log(below)) - SHIFT - jnp.log(factors)
    return jnp.where(is_large, value, value + step)


def log_gamma_step(a: Array, b: Array) -> Array:
    """``log Gamma(a + b) - log Gamma(a) - b log a`` for positive ``a`` and ``b``; near ``b (b - 1) / (2 a)``."""
    return (a + b - 1) * jnp.log1p(b / a) - b + (stirling(a + b) - stirling(a))


def log1p_excess(u: Array) -> Array:
    """``log(1 + u) - u``, near ``-u^2 / 2``."""
    is_small = jnp.abs(u) < SMALL
    small, large = jnp.where(is_small, u, 0.0), jnp.where(is_small, 1.0, u)
    series = small * small * _power_series(small, tuple((-1) ** (n + 1) / n for n in range(2, TERMS + 2)))
    return jnp.where(is_small, series, jnp.log1p(large) - large)


def _power_series(x: Array, coefficients: tuple[float, ...]) -> Array:
    """``c_0 + c_1 x + c_2 x^2 + ...``."""
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def _log_of(count: Array) -> Array:
    """``log(count)``, and 0 at 0, where it is multiplied by the count."""
    return jnp.log(jnp.where(count > 0, count, 1.0))


def _part_of(gap: Array, whole: Array) -> Array:
    """``gap / whole`` where that is near zero, else infinite: no derivative divides by a whole that rounds to zero."""
    is_near = jnp.abs(gap) < SIMILAR * whole
    return jnp.where(is_near, jnp.where(is_near, gap, 0.0) / jnp.where(is_near, whole, 1.0), jnp.inf)


def _log1p_or(u: Array, log: Array) -> Array:
    """``log(1 + u)``, taken as it is unless ``u`` is small."""
    is_near = jnp.abs(u) < SIMILAR
    return jnp.where(is_near, jnp.log1p(jnp.where(is_near, u, 0.0)), log)


@jax.custom_jvp
def poisson_deviance(mean: Array, variance: Array, count: Array, exposure: Array) -> Array:
    """``E[count log(c e^f) - c e^f] - (count log count - count)`` for ``f ~ N(mean, variance)``; ``c`` the exposure.

    With the mean rate ``e = c exp(mean + variance / 2)`` and ``u = e / count - 1`` this is
    ``count (log(1 + u) - u - variance / 2)``, never positive.
    """
    gap, change, log_rate = _poisson_parts(mean, variance, count, exposure)
    is_near = jnp.abs(change) < SIMILAR
    near = log1p_excess(jnp.where(is_near, change, 0.0)) - 0.5 * variance
    return jnp.where(is_near, count * near, count * (log_rate - _log_of(count)) - gap)


def _poisson_parts(mean: Array, variance: Array, count: Array, exposure: Array) -> tuple[Array, Array, Array]:
    """``e - count``, that as a part of ``count``, and ``E log(c e^f)``."""
    gap = exposure * jnp.exp(mean + 0.5 * variance) - count
    return gap, _part_of(gap, count), mean + jnp.log(exposure)


@poisson_deviance.defjvp
def _poisson_deviance_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    # Closed, for the sign of the derivative in the variance where e is much less than the count.
    mean, variance, count, exposure = primals
    mean_dot, variance_dot, count_dot, exposure_dot = tangents
    _, change, log_rate = _poisson_parts(*primals)
    rate = exposure * jnp.exp(mean + 0.5 * variance)
    log_ratio = _log1p_or(change, log_rate + 0.5 * variance - _log_of(count)) - 0.5 * variance
    tangent = (count - rate) * (mean_dot + exposure_dot / exposure) - 0.5 * rate * variance_dot
    return poisson_deviance(*primals), tangent + log_ratio * count_dot


def balanced(first: Array, second: Array, changes: tuple[Array, Array], logs: tuple[Array, Array]) -> Array:
    """``a log(1 + u) + b log(1 + v)`` where ``a u + b v = 0``: no linear terms while both are small."""
    is_near = jnp.maximum(jnp.abs(changes[0]), jnp.abs(changes[1])) < SIMILAR
    small = [log1p_excess(jnp.where(is_near, change, 0.0)) for change in changes]
    large = [_log1p_or(change, log) for change, log in zip(changes, logs, strict=True)]
    return jnp.where(is_near, first * small[0] + second * small[1], first * large[0] + second * large[1])


@jax.custom_jvp
def negative_binomial_deviance(f: Array, count: Array, size: Array) -> Array:
    """``y log(p / q) + r log((1 - p) / (1 - q))`` with ``p = e^f / (r + e^f)``, ``q = y / (r + y)``; never positive."""
    return balanced(count, size, *_negative_binomial_parts(f, count, size))


def _negative_binomial_parts(f: Array, count: Array, size: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """``p / q - 1`` and ``(1 - p) / (1 - q) - 1``, and the logarithms of the ratios where ``e^f`` is out of range."""
    change = (count - jnp.exp(f)) / (size + jnp.exp(f))
    # Minus infinity by infinity is no number, and no number is near.
    log_rest = jnp.log1p(count / size) - softplus(f - jnp.log(size))
    return (_part_of(-size * change, count), change), (f - _log_of(count) + log_rest, log_rest)


def _negative_binomial_deviance_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array | SymbolicZero, ...]
) -> tuple[Array, Array]:
    # Closed: the derivative in f, r (y - e^f) / (r + e^f), falls with f in every form. Quadrature asks for it alone.
    (f, count, size), (f_dot, count_dot, size_dot) = primals, tangents
    (change, change_rest), (log_ratio, log_rest) = _negative_binomial_parts(*primals)
    odds, is_near = f - jnp.log(size), jnp.abs(change_rest) < SIMILAR
    near = jnp.where(is_near, change_rest, 0.0)
    part = jnp.where(is_near, near, count / size * sigmoid(-odds) - sigmoid(odds))
    tangent = jnp.zeros_like(f)
    if not isinstance(f_dot, SymbolicZero):
        tangent = tangent + size * part * f_dot
    if not isinstance(count_dot, SymbolicZero):
        tangent = tangent + _log1p_or(change, log_ratio) * count_dot
    if not isinstance(size_dot, SymbolicZero):
        tangent = tangent + jnp.where(is_near, log1p_excess(near), log_rest - part) * size_dot
    return negative_binomial_deviance(*primals), tangent


negative_binomial_deviance.defjvp(_negative_binomial_deviance_jvp, symbolic_zeros=True)
