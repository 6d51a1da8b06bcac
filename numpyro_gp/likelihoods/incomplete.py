"""Incomplete gamma and beta functions as logarithms of both parts, with every derivative in every argument.

Those of JAX underflow in a tail, and have no second derivative in their parameters, or none at all. Series and
continued fractions are summed here from a fixed last term, which is a smooth function of all that they hold.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from numpyro_gp.arrays import Array
from numpyro_gp.likelihoods.deviances import poisson_deviance, stirling

TERMS = 160


def log1m_exp(value: Array) -> Array:
    """``log(1 - exp(value))`` for ``value <= 0``, minus infinity at 0 with a slope of zero."""
    is_less = value < 0
    return jnp.where(is_less, jnp.log(-jnp.expm1(jnp.where(is_less, value, -1.0))), -jnp.inf)


def log_gamma_parts(a: Array, x: Array) -> tuple[Array, Array]:
    """``log P(a, x)`` and ``log Q(a, x)``, the regularised incomplete gamma functions, for ``x > 0``.

    A power series below ``a + 1`` and Legendre's continued fraction above: right to 1e-13 for ``a`` up to 500.
    """
    is_low = x < a + 1
    below, above = jnp.where(is_low, x, a), jnp.where(is_low, a + 2, x)
    zero, constant = jnp.zeros_like(x), jnp.log(a) - stirling(a)
    front_below, front_above = (poisson_deviance(zero, zero, a, part) + constant for part in (below, above))
    series = _from_the_last(lambda n, rest: 1 + rest * below / (a + n), jnp.ones_like(x + a))
    fraction = _from_the_last(lambda n, rest: n * (a - n) / (above + 2 * n + 1 - a + rest), jnp.zeros_like(x + a))
    low = jnp.minimum(front_below - jnp.log(a) + jnp.log(series), -jnp.finfo(x.dtype).tiny)
    high = front_above - jnp.log(above + 1 - a + fraction)
    return jnp.where(is_low, low, log1m_exp(high)), jnp.where(is_low, log1m_exp(low), high)


def log_beta_parts(a: Array, b: Array, x: Array, rest: Array) -> tuple[Array, Array]:
    """``log I_x(a, b)`` and ``log(1 - I_x(a, b))`` for ``0 < x < 1``, with ``rest = 1 - x``, which may be small.

    The continued fraction on the side where it converges quickly: right to 1e-12 for ``a`` and ``b`` up to 500.
    """
    is_low = x < (a + 1) / (a + b + 2)
    first, second = jnp.where(is_low, a, b), jnp.where(is_low, b, a)
    part, other = jnp.where(is_low, x, rest), jnp.where(is_low, rest, x)

    def step(n: Array, value: Array) -> Array:
        half = jnp.floor(n / 2)
        odd = -(first + half) * (first + second + half) / ((first + 2 * half) * (first + 2 * half + 1))
        even = half * (second - half) / ((first + 2 * half - 1) * (first + 2 * half))
        return 1 + jnp.where(n % 2 == 1, odd, even) * part / value

    fraction = _from_the_last(step, jnp.ones_like(part * first * second))
    total = a + b
    front = first * jnp.log(part * total / first) + second * jnp.log(other * total / second)
    front = front + jnp.log(second / total) + stirling(total) - stirling(first) - stirling(second)
    found = jnp.minimum(front - jnp.log(fraction), -jnp.finfo(x.dtype).tiny)
    return jnp.where(is_low, found, log1m_exp(found)), jnp.where(is_low, log1m_exp(found), found)


def _from_the_last(step: Callable[[Array, Array], Array], last: Array) -> Array:
    """``step(1, step(2, ... step(TERMS, last)))``."""

    def body(passed: Array, value: Array) -> Array:
        return step(jnp.asarray(TERMS - passed, last.dtype), value)

    found: Array = lax.fori_loop(0, TERMS, body, last)
    return found
