"""``log P(Y <= y)`` and ``log P(Y > y)`` of NumPyro's distributions, and the log mass between two values.

Both are found as logarithms wherever a form is known, so that a far tail neither underflows nor loses its slope; other
distributions are asked for their ``cdf``. `moments_of` finds means and variances where NumPyro knows none.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import log_sigmoid
from jax.scipy.special import logsumexp, ndtr

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.likelihoods.deviances import log_gamma_step
from numpyro_gp.likelihoods.incomplete import log1m_exp, log_beta_parts, log_gamma_parts
from numpyro_gp.likelihoods.log_normal_cdf import log_ndtr
from numpyro_gp.likelihoods.rules import gauss_hermite

Tails = tuple[Array, Array]
LOG_2 = float(np.log(2.0))
CENSORED = (dist.LeftCensoredDistribution, dist.RightCensoredDistribution)
# Draws of a distribution that has neither moments nor quantiles, and how many at a time.
DRAWS, TOGETHER = 1024, 16


def _normal(d: dist.Distribution, y: Array) -> Tails:
    z = (y - d.loc) / d.scale
    return log_ndtr(z), log_ndtr(-z)


def _half_normal(d: dist.Distribution, y: Array) -> Tails:
    above = LOG_2 + log_ndtr(-y / d.scale)
    return log1m_exp(above), above


def _logistic(d: dist.Distribution, y: Array) -> Tails:
    z = (y - d.loc) / d.scale
    return log_sigmoid(z), log_sigmoid(-z)


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


def _waiting(hazard: Callable[[dist.Distribution, Array], Array]) -> Callable[[dist.Distribution, Array], Tails]:
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
    found = jnp.clip(d.cdf(y), smallest, 1 - smallest)
    return jnp.log(found), jnp.log1p(-found)


# The first that a distribution is an instance of.
KNOWN: tuple[tuple[type, Callable[[dist.Distribution, Array], Tails]], ...] = (
    (dist.Normal, _normal),
    (dist.HalfNormal, _half_normal),
    (dist.StudentT, _symmetric(_student_tail)),
    (dist.Cauchy, _symmetric(lambda _, z: jnp.log(jnp.arctan2(jnp.ones_like(z), z) / np.pi))),
    (dist.Laplace, _symmetric(lambda _, z: -z - LOG_2)),
    (dist.Logistic, _logistic),
    (dist.Gumbel, _gumbel),
    (dist.Exponential, _waiting(lambda d, y: d.rate * y)),
    (dist.Weibull, _waiting(lambda d, y: (y / d.scale) ** d.concentration)),
    (dist.Gompertz, _waiting(lambda d, y: d.concentration * jnp.expm1(d.rate * y))),
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
        cure = "Give the distribution a method cdf(value), or observe all values as they are."
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
    while isinstance(distribution, CENSORED):
        distribution = distribution.base_dist
    for rule in (lambda d: (d.mean, d.variance), _moments_by_quantiles, _moments_by_draws):
        try:
            return rule(distribution)
        except (RuntimeError, AttributeError):  # NumPyro has none
            continue
    cure = "Give it a mean and a variance, quantiles icdf(q), or draws sample(key, sample_shape)."
    fail("likelihood", "one whose moments can be found", f"a {type(distribution).__name__}", cure)


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
        drawn = jax.vmap(lambda own: jnp.asarray(d.sample(own), float) - first)(jax.random.split(key, TOGETHER))
        return (sums[0] + drawn.sum(0), sums[1] + (drawn**2).sum(0)), None

    zero = jnp.zeros(d.batch_shape)
    sums, _ = jax.lax.scan(add, (zero, zero), keys)
    left = sums[0] / DRAWS
    return first + left, jnp.maximum(sums[1] / DRAWS - left**2, 0.0)
