"""``log P(Y <= y)`` and ``log P(Y > y)`` of NumPyro's distributions, and the log mass between two values.

Both are found as logarithms wherever a form is known, so that a far tail neither underflows nor loses its slope; other
distributions are asked for their ``cdf``. `moments_of` finds means and variances where NumPyro knows none.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jax.nn import log_sigmoid
from jax.scipy.special import logsumexp, ndtr

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.likelihoods.deviances import balanced, log1p_excess, log_gamma_step, poisson_deviance, stirling
from numpyro_gp.likelihoods.links import log_ndtr
from numpyro_gp.likelihoods.quadrature import gauss_hermite

# --------------------------------------------------------------------------------------
# Incomplete gamma and beta functions as logarithms of both parts, with every derivative in every argument.
#
# Those of JAX underflow in a tail, and have no second derivative in their parameters, or none at all. Here the
# smaller part is found, and the other by what is left of one. Where a parameter is small, series and continued
# fractions are summed from a fixed last term, which is a smooth function of all that they hold. They need as many
# terms as the root of the parameters, so beyond `SMALL` the integral itself is taken, from the border outwards to
# where the integrand has all but vanished: its logarithm is concave there, and one rule of Gauss and Legendre serves
# every size.


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
    is_large, x = a > SMALL, jnp.clip(x, jnp.finfo(x.dtype).tiny, jnp.finfo(x.dtype).max)  # exponents overflow
    small_a, small_x = jnp.where(is_large, 1.0, a), jnp.where(is_large, 1.0, x)
    # A power series below ``a + 1``, else Legendre's fraction.
    is_low = small_x < small_a + 1
    below, above = jnp.where(is_low, small_x, small_a), jnp.where(is_low, small_a + 2, small_x)
    zero, constant = jnp.zeros_like(small_x), jnp.log(small_a) - stirling(small_a)
    front_below, front_above = (poisson_deviance(zero, zero, small_a, part) + constant for part in (below, above))
    series = _from_the_last(lambda n, rest: 1 + rest * below / (small_a + n), jnp.ones_like(small_x))
    fraction = _from_the_last(lambda n, rest: n * (small_a - n) / (above + 2 * n + 1 - small_a + rest), zero)
    low = front_below - jnp.log(small_a) + jnp.log(series)
    small = jnp.where(is_low, low, front_above - jnp.log(above + 1 - small_a + fraction))
    large_a, large_x = jnp.where(is_large, a, 2 * SMALL), jnp.where(is_large, x, 2 * SMALL)
    is_below = large_x < large_a
    sign, power, zero = jnp.where(is_below, -1.0, 1.0), large_a - 1, jnp.zeros_like(a)
    end = jnp.where(is_below, 1.0, jnp.inf)
    change = _Change(((power, sign),), sign * (large_x - large_a + 1), end)
    front = poisson_deviance(zero, zero, large_a, large_x) + jnp.log(large_a) - stirling(large_a)
    large = front + change.log_integral()
    return _both(jnp.where(is_large, is_below, is_low), jnp.where(is_large, large, small))


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
        # From 0 to where the change is -drop, by Newton's method from where a parabola is; or to the end before.
        (_, number, drop, steps), still = _effort(self.slope), lax.stop_gradient(self)
        slope = jnp.maximum(still.slope, 0.0)
        curvature = sum((weight * ratio**2 for weight, ratio in still.terms), start=jnp.zeros_like(slope))
        s = 2 * drop / (slope + jnp.sqrt(slope**2 + 2 * drop * curvature))
        for _ in range(steps):
            s = jnp.minimum(s, 0.999 * still.end)
            bend = sum((weight * ratio**2 / (1 + ratio * s) for weight, ratio in still.terms), start=jnp.zeros_like(s))
            s = s + (still.at(s) + drop) / (still.slope + bend * s)
        reach = jnp.minimum(s, still.end)
        nodes, weights = (jnp.asarray(part, reach.dtype) for part in np.polynomial.legendre.leggauss(number))

        def add(n: Array, total: Array) -> Array:
            return total + weights[n] * jnp.exp(self.at(0.5 * (1 + nodes[n]) * reach))

        integral: Array = lax.fori_loop(0, number, add, jnp.zeros_like(reach))
        return jnp.log(0.5 * reach * integral)


def _effort(like: Array) -> _Effort:
    return IN_FLOAT64 if like.dtype == jnp.float64 else IN_FLOAT32


def _from_the_last(step: Callable[[Array, Array], Array], last: Array) -> Array:
    """``step(1, step(2, ... step(terms, last)))``."""
    terms = _effort(last).terms

    def body(passed: Array, value: Array) -> Array:
        return step(jnp.asarray(terms - passed, last.dtype), value)

    return lax.fori_loop(0, terms, body, last)


Tails = tuple[Array, Array]
LOG_2 = float(np.log(2.0))
ONE_SIDED = (dist.LeftCensoredDistribution, dist.RightCensoredDistribution)
# Draws of a distribution that has neither moments nor quantiles, and how many at a time.
DRAWS, TOGETHER = 1024, 16


def _by_location(log_cdf: Callable[[Array], Array]) -> Callable[[dist.Distribution, Array], Tails]:
    """Of a distribution function that is the same on both sides of its centre."""
    return lambda d, y: (log_cdf((y - d.loc) / d.scale), log_cdf(-(y - d.loc) / d.scale))


def _gumbel(d: dist.Distribution, y: Array) -> Tails:
    below = -jnp.exp(-(y - d.loc) / d.scale)
    return below, log1m_exp(below)


def _symmetric(log_tail: Callable[[dist.Distribution, Array], Array]) -> Callable[[dist.Distribution, Array], Tails]:
    """Of ``log P(Z > |z|)`` of a distribution that is the same on both sides of its centre."""

    def tails(d: dist.Distribution, y: Array) -> Tails:
        z = (y - d.loc) / d.scale
        small = log_tail(d, jnp.where(z < 0, -z, z))  # with a slope at the centre, where that of abs is zero
        return jnp.where(z < 0, small, log1m_exp(small)), jnp.where(z < 0, log1m_exp(small), small)

    return tails


def _student_tail(d: dist.Distribution, size: Array) -> Array:
    # The density is flat around its centre: the tail is 1/2 - pdf(0) size there, to the third power of the size.
    is_near = size < jnp.finfo(size.dtype).eps ** (1 / 3)
    df = jnp.broadcast_to(d.df, size.shape)
    half = jnp.full_like(df, 0.5)
    density = jnp.exp(log_gamma_step(0.5 * df, half)) / np.sqrt(2 * np.pi)
    near = jnp.log1p(-2 * density * jnp.where(is_near, size, 0))
    square = jnp.where(is_near, 1, size) ** 2
    far = log_beta_parts(0.5 * df, half, df / (df + square), square / (df + square))[0]
    return jnp.where(is_near, near, far) - LOG_2


def _by_hazard(hazard: Callable[[dist.Distribution, Array], Array]) -> Callable[[dist.Distribution, Array], Tails]:
    """Of the cumulative hazard ``-log P(Y > y)``."""
    return lambda d, y: (log1m_exp(-hazard(d, y)), -hazard(d, y))


def _of_beta(a: Array, b: Array, x: Array, rest: Array) -> Tails:
    return log_beta_parts(*jnp.broadcast_arrays(a, b, x, rest))


def _binomial(d: dist.Distribution, y: Array) -> Tails:
    return _of_beta(jnp.maximum(d.total_count - jnp.floor(y), 1.0), jnp.floor(y) + 1, 1 - d.probs, d.probs)


def _zero_inflated(d: dist.Distribution, y: Array) -> Tails:
    below, above = log_tails(d.base_dist, y)
    closed, opened = jnp.log(d.gate), jnp.log1p(-d.gate)
    return jnp.logaddexp(closed, opened + below), opened + above


def _transformed(d: dist.Distribution, y: Array) -> Tails:
    sign: Any = 1
    for transform in reversed(d.transforms):
        sign, y = sign * transform.sign, transform.inv(y)
    below, above = log_tails(d.base_dist, y)
    return jnp.where(sign > 0, below, above), jnp.where(sign > 0, above, below)


def _by_cdf(d: dist.Distribution, y: Array) -> Tails:
    """What is left: right to the rounding error of the distribution function."""
    smallest = jnp.finfo(y.dtype).eps
    below = jnp.clip(d.cdf(y), smallest, 1 - smallest)
    return jnp.log(below), jnp.log1p(-below)


# The first that a distribution is an instance of.
KNOWN: tuple[tuple[type, Callable[[dist.Distribution, Array], Tails]], ...] = (
    (dist.Normal, _by_location(log_ndtr)),
    (dist.HalfNormal, _by_hazard(lambda d, y: -LOG_2 - log_ndtr(-y / d.scale))),
    (dist.StudentT, _symmetric(_student_tail)),
    (dist.Cauchy, _symmetric(lambda _, z: jnp.log(jnp.arctan2(jnp.ones_like(z), z) / np.pi))),
    (dist.Laplace, _symmetric(lambda _, z: -z - LOG_2)),
    (dist.Logistic, _by_location(log_sigmoid)),
    (dist.Gumbel, _gumbel),
    (dist.Exponential, _by_hazard(lambda d, y: d.rate * y)),
    (dist.Weibull, _by_hazard(lambda d, y: (y / d.scale) ** d.concentration)),
    (dist.Gompertz, _by_hazard(lambda d, y: d.concentration * jnp.expm1(d.rate * y))),
    (dist.Gamma, lambda d, y: log_gamma_parts(*jnp.broadcast_arrays(d.concentration, d.rate * y))),
    (dist.Beta, lambda d, y: _of_beta(d.concentration1, d.concentration0, y, 1 - y)),
    (dist.Poisson, lambda d, y: log_gamma_parts(*jnp.broadcast_arrays(jnp.floor(y) + 1, d.rate))[::-1]),
    (
        dist.GammaPoisson,
        lambda d, y: _of_beta(d.concentration, jnp.floor(y) + 1, d.rate / (1 + d.rate), 1 / (1 + d.rate)),
    ),
    (type(dist.Binomial(1, 0.5)), _binomial),
    (type(dist.Binomial(1, logits=0.0)), _binomial),
    (dist.discrete.ZeroInflatedProbs, _zero_inflated),
    (dist.TransformedDistribution, _transformed),
)


def log_tails(distribution: dist.Distribution, y: Array) -> Tails:
    """``log P(Y <= y)`` and ``log P(Y > y)``, also for values, infinite ones among them, outside of the support."""
    rule = next((rule for kind, rule in KNOWN if isinstance(distribution, kind)), _by_cdf)
    support: Any = distribution.support
    low, high = (getattr(support, name, end) for name, end in (("lower_bound", -jnp.inf), ("upper_bound", jnp.inf)))
    is_above = (y >= low) if support.is_discrete else (y > low)
    is_inside = is_above & (y < high)
    try:
        # A bound that depends on draws of f has more axes than y.
        inside = jnp.where(is_inside, y, support.feasible_like(jnp.zeros_like(y + 0 * is_inside)))
        below, above = rule(distribution, inside)
    except (RuntimeError, AttributeError):  # NumPyro has none
        cure = "Labels are observed as they are, and have no survival; a distribution of your own needs cdf(value)."
        fail("likelihood", "one with a distribution function", f"a {type(distribution).__name__}", cure)
    below = jnp.where(is_inside, below.astype(y.dtype), jnp.where(is_above, 0.0, -jnp.inf))
    return below, jnp.where(is_inside, above.astype(y.dtype), jnp.where(is_above, -jnp.inf, 0.0))


def before(distribution: dist.Distribution, y: Array) -> Array:
    """The value after which ``y`` comes: ``P(Y > before(y)) = P(Y >= y)``."""
    return jnp.ceil(y) - 1 if distribution.support.is_discrete else y


def log_mass(distribution: dist.Distribution, lower: Array, upper: Array) -> Array:
    """``log P(lower <= Y <= upper)``: a difference on the side where it cancels least, the density where it is narrow.

    There 3 nodes of Gauss and Legendre are as right as the difference is, by its rounding, at their border.
    """
    ends = before(distribution, lower), upper
    (below_low, above_low), (below_high, above_high) = (log_tails(distribution, end) for end in ends)
    is_right = above_low < below_high
    large, small = jnp.where(is_right, above_low, below_high), jnp.where(is_right, above_high, below_low)
    gap = large - small  # infinite where one end is beyond the support
    is_narrow = gap < jnp.finfo(gap.dtype).eps ** (1 / 7)
    wide = large + log1m_exp(-jnp.where(is_narrow, 1.0, gap))
    if distribution.support.is_discrete:
        return jnp.where(gap > 0, large + log1m_exp(-jnp.where(gap > 0, gap, 1.0)), -jnp.inf)
    half = 0.5 * jnp.where(is_narrow & (upper > lower), upper - lower, 1.0)
    middle = jnp.where(is_narrow, lower + half, distribution.support.feasible_like(gap))
    nodes, weights = np.polynomial.legendre.leggauss(3)
    logs = [distribution.log_prob(middle + float(node) * jnp.where(is_narrow, half, 0.0)) for node in nodes]
    shares = jnp.expand_dims(jnp.asarray(weights, gap.dtype), range(1, gap.ndim + 1))
    narrow = jnp.log(half) + logsumexp(jnp.stack(logs), axis=0, b=jnp.broadcast_to(shares, (3, *gap.shape)))
    return jnp.where(is_narrow, narrow, wide).astype(gap.dtype)


def moments_of(distribution: object) -> tuple[Array, Array]:
    """Mean and variance; by quadrature over quantiles, else by 1024 draws, where NumPyro knows none.

    Those of NumPyro's censored distributions are of what is censored, as their draws are.
    """
    while isinstance(distribution, ONE_SIDED):
        distribution = distribution.base_dist
    own = _moments_of_angles if isinstance(distribution, dist.VonMises) else lambda d: (d.mean, d.variance)
    for rule in (own, _moments_by_quantiles, _moments_by_draws):
        try:
            return rule(distribution)
        except (RuntimeError, AttributeError, ImportError):  # NumPyro has none, or takes it from another package
            continue
    cure = "Give it a mean and a variance, quantiles icdf(q), or draws sample(key, sample_shape)."
    fail("likelihood", "one whose moments can be found", f"a {type(distribution).__name__}", cure)


def _moments_of_angles(d: dist.VonMises) -> tuple[Array, Array]:
    """Mean direction, and mean square of the angle to it: NumPyro's variance is one less a mean cosine.

    Nodes are denser towards the mean, for the narrow ones.
    """
    t = jnp.linspace(-511 / 512, 511 / 512, 512, dtype=d.mean.dtype).reshape((-1,) + (1,) * d.mean.ndim)
    angle = np.pi * t**3
    mass = t**2 * jnp.exp(-2 * jnp.asarray(d.concentration)[None] * jnp.sin(angle / 2) ** 2)
    return d.mean, jnp.sum(mass * angle**2, axis=0) / jnp.sum(mass, axis=0)


def _moments_by_quantiles(d: dist.Distribution) -> tuple[Array, Array]:
    """``E icdf(Phi(z))`` by 40 nodes of Gauss and Hermite."""
    nodes, weights = gauss_hermite(40)
    dtype = jnp.result_type(float, *jax.tree.leaves(d))
    levels = jnp.clip(ndtr(jnp.asarray(nodes, dtype)), jnp.finfo(dtype).tiny, 1 - jnp.finfo(dtype).eps)
    values = jax.vmap(lambda level: d.icdf(jnp.broadcast_to(level, d.batch_shape)))(levels)
    mean = jnp.tensordot(jnp.asarray(weights, dtype), values, 1)
    return mean, jnp.tensordot(jnp.asarray(weights, dtype), (values - mean[None]) ** 2, 1)


def _moments_by_draws(d: dist.Distribution) -> tuple[Array, Array]:
    """The same draws at every call, so that predictions are; squares are of what is left beside the first draw."""
    keys = jax.random.split(jax.random.key(0), DRAWS // TOGETHER)
    first = jax.lax.stop_gradient(jnp.asarray(d.sample(keys[0]), float))

    def add(sums: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], None]:
        drawn = jax.vmap(lambda each: jnp.asarray(d.sample(each), float) - first)(jax.random.split(key, TOGETHER))
        return (sums[0] + drawn.sum(0), sums[1] + (drawn**2).sum(0)), None

    zero = jnp.zeros(d.batch_shape)
    sums, _ = jax.lax.scan(add, (zero, zero), keys)
    left = sums[0] / DRAWS
    return first + left, jnp.maximum(sums[1] / DRAWS - left**2, 0.0)
