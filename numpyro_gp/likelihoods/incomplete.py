"""Incomplete gamma and beta functions as logarithms of both parts, with every derivative in every argument.

Those of JAX underflow in a tail, and have no second derivative in their parameters, or none at all. Here the smaller
part is found, and the other by what is left of one. Where a parameter is small, series and continued fractions are
summed from a fixed last term, which is a smooth function of all that they hold. They need as many terms as the root of
the parameters, so beyond `SMALL` the integral itself is taken, from the border outwards to where the integrand has
all but vanished: its logarithm is concave there, and one rule of Gauss and Legendre serves every size.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from numpyro_gp.arrays import Array
from numpyro_gp.likelihoods.deviances import balanced, log1p_excess, poisson_deviance, stirling

SMALL = 10.0


class _Effort(NamedTuple):
    """Terms of series, nodes of the rule, how much a logarithm falls within its reach, and Newton's steps to there."""

    terms: int
    nodes: int
    drop: float
    steps: int


IN_FLOAT64, IN_FLOAT32 = _Effort(48, 20, 36.0, 3), _Effort(28, 10, 17.0, 2)


def log1m_exp(value: Array) -> Array:
    """``log(1 - exp(value))`` for ``value <= 0``, minus infinity at 0 with a slope of zero."""
    is_less, is_far = value < 0, value < -np.log(2.0)
    near = jnp.log(-jnp.expm1(jnp.where(is_less & ~is_far, value, -1.0)))
    far = jnp.log1p(-jnp.exp(jnp.where(is_far, value, -1.0)))
    return jnp.where(is_far, far, jnp.where(is_less, near, -jnp.inf))


def log_gamma_parts(a: Array, x: Array) -> tuple[Array, Array]:
    """``log P(a, x)`` and ``log Q(a, x)``, the regularised incomplete gamma functions, for ``x > 0``.

    Right to 1e-11 of the logarithm for ``a`` up to 1e8 and every ``x``, in float32 to 3e-6.
    """
    is_large = a > SMALL
    small_a, small_x = jnp.where(is_large, 1.0, a), jnp.where(is_large, 1.0, x)
    is_low, small = _gamma_by_terms(small_a, small_x)
    large_a, large_x = jnp.where(is_large, a, 2 * SMALL), jnp.where(is_large, x, 2 * SMALL)
    is_below = large_x < large_a
    sign, power, zero = jnp.where(is_below, -1.0, 1.0), large_a - 1, jnp.zeros_like(a)
    end = jnp.where(is_below, 1.0, jnp.inf)
    change = _Change(((power, sign),), sign * (large_x - large_a + 1), end)
    front = poisson_deviance(zero, zero, large_a, large_x) + jnp.log(large_a) - stirling(large_a)
    large = front + change.log_integral()
    return _both(jnp.where(is_large, is_below, is_low), jnp.where(is_large, large, small))


def _gamma_by_terms(a: Array, x: Array) -> tuple[Array, Array]:
    """Whether it is ``P``, and the logarithm of a part: a power series below ``a + 1``, else Legendre's fraction."""
    is_low = x < a + 1
    below, above = jnp.where(is_low, x, a), jnp.where(is_low, a + 2, x)
    zero, constant = jnp.zeros_like(x), jnp.log(a) - stirling(a)
    front_below, front_above = (poisson_deviance(zero, zero, a, part) + constant for part in (below, above))
    series = _from_the_last(lambda n, rest: 1 + rest * below / (a + n), jnp.ones_like(x))
    fraction = _from_the_last(lambda n, rest: n * (a - n) / (above + 2 * n + 1 - a + rest), jnp.zeros_like(x))
    low = front_below - jnp.log(a) + jnp.log(series)
    return is_low, jnp.where(is_low, low, front_above - jnp.log(above + 1 - a + fraction))


def log_beta_parts(a: Array, b: Array, x: Array, rest: Array) -> tuple[Array, Array]:
    """``log I_x(a, b)`` and ``log(1 - I_x(a, b))`` for ``0 < x < 1``, with ``rest = 1 - x``, which may be small.

    Right to 1e-10 of the logarithm for ``a`` and ``b`` up to 1e8, to 1e-7 where one of them is below 10 and the other a
    thousand times larger; in float32 to ``3e-7 sqrt(min(a, b))``, which is what the rounding of ``x`` leaves.
    """
    is_large = jnp.minimum(a, b) > SMALL
    is_low = jnp.where(is_large, x * b < rest * a, x < (a + 1) / (a + b + 2))
    first, second = jnp.where(is_low, a, b), jnp.where(is_low, b, a)
    part, other = jnp.where(is_low, x, rest), jnp.where(is_low, rest, x)
    gap, total = part * second - other * first, a + b
    logs = jnp.log(part * total / first), jnp.log(other * total / second)
    front = balanced(first, second, (gap / first, -gap / second), logs)
    front = front + jnp.log(second / total) + stirling(total) - stirling(first) - stirling(second)

    def step(n: Array, value: Array) -> Array:
        half = jnp.floor(n / 2)
        odd = -(first + half) * (first + second + half) / ((first + 2 * half) * (first + 2 * half + 1))
        even = half * (second - half) / ((first + 2 * half - 1) * (first + 2 * half))
        return 1 + jnp.where(n % 2 == 1, odd, even) * part / value

    fraction = _from_the_last(step, jnp.ones_like(front))
    falling, rising = (jnp.where(is_large, count - 1, SMALL) for count in (first, second))
    change = _Change(
        terms=((falling, -jnp.ones_like(front)), (rising, jnp.where(is_large, part / other, 1.0))),
        slope=jnp.where(is_large, (part - other - gap) / other, 1.0),
        end=jnp.ones_like(front),
    )
    large = jnp.log(first / other) + change.log_integral()
    return _both(is_low, front + jnp.where(is_large, large, -jnp.log(jnp.where(is_large, 1.0, fraction))))


def _both(is_low: Array, part: Array) -> tuple[Array, Array]:
    """The lower part and the upper one, of the logarithm of the lower or else the upper."""
    part = jnp.minimum(part, -jnp.finfo(part.dtype).tiny)
    return jnp.where(is_low, part, log1m_exp(part)), jnp.where(is_low, log1m_exp(part), part)


class _Change(NamedTuple):
    """How the logarithm of a density changes on the way ``s`` from a border outwards, where it is concave.

    The sum of ``weight (log(1 + ratio s) - ratio s)``, less ``slope s``, for ``0 < s < end``.
    """

    terms: tuple[tuple[Array, Array], ...]
    slope: Array
    end: Array

    def at(self, s: Array) -> Array:
        """The change."""
        return sum((weight * log1p_excess(ratio * s) for weight, ratio in self.terms), start=-self.slope * s)

    def log_integral(self) -> Array:
        """``log`` of the integral of its exponential."""
        reach = lax.stop_gradient(self._reach())
        number = _effort(reach).nodes
        nodes, weights = (jnp.asarray(part, reach.dtype) for part in np.polynomial.legendre.leggauss(number))

        def add(n: Array, total: Array) -> Array:
            return total + weights[n] * jnp.exp(self.at(0.5 * (1 + nodes[n]) * reach))

        found: Array = lax.fori_loop(0, number, add, jnp.zeros_like(reach))
        return jnp.log(0.5 * reach * found)

    def _reach(self) -> Array:
        """Where it is ``-drop``, by Newton's method from where a parabola is; the end, where that comes first."""
        _, _, drop, steps = _effort(self.slope)
        slope = jnp.maximum(self.slope, 0.0)
        curvature = sum((weight * ratio**2 for weight, ratio in self.terms), start=jnp.zeros_like(slope))
        s = 2 * drop / (slope + jnp.sqrt(slope**2 + 2 * drop * curvature))
        for _ in range(steps):
            s = jnp.minimum(s, 0.999 * self.end)
            bend = sum((weight * ratio**2 / (1 + ratio * s) for weight, ratio in self.terms), start=jnp.zeros_like(s))
            s = s + (self.at(s) + drop) / (self.slope + bend * s)
        return jnp.minimum(s, self.end)


def _effort(like: Array) -> _Effort:
    return IN_FLOAT64 if like.dtype == jnp.float64 else IN_FLOAT32


def _from_the_last(step: Callable[[Array, Array], Array], last: Array) -> Array:
    """``step(1, step(2, ... step(terms, last)))``."""
    terms = _effort(last).terms

    def body(passed: Array, value: Array) -> Array:
        return step(jnp.asarray(terms - passed, last.dtype), value)

    return lax.fori_loop(0, terms, body, last)
