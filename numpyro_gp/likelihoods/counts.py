"""Likelihoods of counts, all with a log link (mathematics.md section 7.1)."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, store, value_type
from numpyro_gp.checks import check_nonnegative, check_positive
from numpyro_gp.likelihoods.base import check_each_target, like
from numpyro_gp.likelihoods.by_density import ByDensity
from numpyro_gp.likelihoods.deviances import negative_binomial_deviance, poisson_deviance, stirling
from numpyro_gp.likelihoods.expectations import composite_cuts, expect, log_expect
from numpyro_gp.likelihoods.links import WIDE, expected_softplus
from numpyro_gp.likelihoods.quadrature import Latent

# Counts above are normal to a thousandth of their spread; JAX draws them too wide in single precision, and none above
# the largest whole number of 32 bits.
MANY = 1e6


def poisson_draw(key: Array, rate: Array) -> Array:
    """Counts in the floating point type of their rate, those of large rates by a normal that is rounded."""
    few = jax.random.poisson(key, jnp.minimum(rate, MANY)).astype(rate.dtype)
    many = jnp.round(rate + jnp.sqrt(rate) * jax.random.normal(key, rate.shape, rate.dtype))
    return jnp.where(rate <= MANY, few, jnp.where(jnp.isinf(rate), rate, many))


class _Counts(ByDensity):
    """Whole numbers from zero on, of mean ``exp(f)``."""

    def draw(self, key: Array, f: ArrayLike) -> Array:
        """Draw counts, in the floating point type of ``f``, which holds those that whole numbers of 32 bits do not."""
        return poisson_draw(key, self.conditional(f).mean)

    def check_targets(self, y: ArrayLike) -> None:
        """Targets must be counts."""
        cure = "Counts are 0, 1, 2, ...; use Gaussian or Gamma for other targets."
        check_each_target(y, lambda y: (y >= 0) & (y == np.round(y)), "non-negative whole numbers", cure)

    def _mean(self, latent: Latent) -> Array:
        return jnp.exp(latent.mean + 0.5 * latent.variance)

    def _variance(self, latent: Latent) -> Array:
        mean = self._mean(latent)
        return mean + mean**2 * jnp.expm1(latent.variance)


def poisson_log_prob(f: Array, y: Array) -> Array:
    """``log p(y | f)`` with rate ``exp(f)``."""
    return poisson_deviance(f, jnp.zeros_like(f), y, jnp.ones_like(y)) - stirling(y)


@value_type()
class Poisson(_Counts):
    """Counts with rate ``exp(f)``: ``E log p = y mu - exp(mu + s / 2) - log y!``, in closed form.

    The exponential is infinite only where its value leaves the range of the dtype (``mu + s / 2 > 88`` in
    float32): start with small variances. The predictive mass is by the composite rule around ``log y``.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> round(float(ngp.likelihoods.Poisson().predictive_mean(0.0, 1.0)), 6)   # exp(1/2)
    1.648721
    """

    density = staticmethod(poisson_log_prob)

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Poisson with rate ``exp(f)``."""
        return dist.Poisson(jnp.exp(jnp.asarray(f)), validate_args=False)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return poisson_deviance(latent.mean, latent.variance, y, jnp.ones_like(y)) - stirling(y)

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
        # The mass as a function of f peaks at log y with width y^(-1/2); for y = 0 it falls near f = 0.
        peak = jnp.maximum(y, 1.0)
        return composite_cuts(jnp.log(peak), 1.0 / jnp.sqrt(peak), y)


def pattern_log_prob(f: Array, y: Array, weight: Array) -> Array:
    """``y f - weight exp(f)``, of rows that are no counts of cells."""
    return y * f - weight * jnp.exp(f)


@value_type()
class PointPattern(_Counts):
    """Events of a Poisson process of intensity ``exp(f)``, without bins: ``log p = y f - weight exp(f)`` of each row.

    A row is an event (``y = 1``, weight 0) or a node of the integral of the intensity (``y = 0``, its weight); summed
    over rows it is the log density of the pattern. ``E log p = y mu - weight exp(mu + s / 2)``, in closed form. What it
    predicts at a node is the number of events in the cell that the weight stands for. `numpyro_gp.point_pattern` puts
    the rows together.

    Parameters
    ----------
    weight : array () or of one entry for each row
        Zero or positive.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> rows = ngp.likelihoods.PointPattern(jnp.array([0.0, 0.5]))   # an event, then a node
    >>> rows.expected_log_prob(jnp.array([1.0, 0.0]), jnp.array([2.0, 0.0]), jnp.array([1.0, 0.0])).tolist()
    [2.0, -0.5]
    """

    density, parameters = staticmethod(pattern_log_prob), ("weight",)
    weight: ArrayField

    def __post_init__(self) -> None:
        store(self, weight=check_nonnegative("weight", self.weight))

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Poisson with rate ``weight exp(f)``: the number of events in the cell of a node."""
        values = jnp.asarray(f)
        return dist.Poisson(like("weight", self.weight, values) * jnp.exp(values), validate_args=False)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return y * latent.mean - self._mean(latent)

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        weight = like("weight", self.weight, y)
        is_node = weight > 0
        safe = jnp.where(is_node, weight, 1)
        peak = jnp.maximum(y, 1.0)
        cuts = composite_cuts(jnp.log(peak / safe), 1.0 / jnp.sqrt(peak), y)
        of_node = log_expect(pattern_log_prob, latent.mean, latent.variance, y, safe, cuts=cuts)
        return jnp.where(is_node, of_node, y * latent.mean + 0.5 * y**2 * latent.variance)

    def _mean(self, latent: Latent) -> Array:
        return like("weight", self.weight, latent.mean) * super()._mean(latent)


def negative_binomial_log_prob(f: Array, y: Array, r: Array) -> Array:
    """``log p(y | f)`` with mean ``exp(f)`` and variance ``exp(f) + exp(2 f) / r``."""
    return negative_binomial_deviance(f, y, r) + _largest_of_count(y, r)


def wide_negative_binomial(mean: Array, variance: Array, y: Array, r: Array) -> Array:
    """``E`` of `negative_binomial_deviance` for ``f ~ N(mean, variance)``, of variances from `WIDE` on."""
    odds, seen = mean - jnp.log(r), jnp.where(y > 0, y, 1.0)
    of_count = y * (expected_softplus(-odds, variance) - jnp.log1p(r / seen))
    return -of_count - r * (expected_softplus(odds, variance) - jnp.log1p(y / r))


def _largest_of_count(y: Array, r: Array) -> Array:
    """``log p(y | f)`` at ``f = log y``, the largest there is."""
    return stirling(y + r) - stirling(r) - stirling(y) - jnp.log1p(y / r)


@value_type()
class NegativeBinomial(_Counts):
    """Over-dispersed counts: mean ``exp(f)`` and variance ``exp(f) + exp(2 f) / r`` given ``f``.

    The only curved term of ``log p`` is ``softplus(f - log r)``, times ``y + r``. Its expectation is by 20-node
    Gauss-Hermite up to a latent variance of 1, beyond by a mixture of twelve normals, whose error is 2e-10 of
    ``y + r``. The predictive mass by the composite rule.

    Parameters
    ----------
    r : array
        Size, positive: a scalar, or one value per datum. Counts are Poisson as it grows.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> round(float(ngp.likelihoods.NegativeBinomial(5.0).predictive_mean(0.0, 1.0)), 4)   # exp(1/2)
    1.6487
    """

    density, parameters = staticmethod(negative_binomial_log_prob), ("r",)
    r: ArrayLike

    def __post_init__(self) -> None:
        check_positive("r", self.r)

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Negative binomial with mean ``exp(f)`` and concentration ``r``."""
        f = jnp.asarray(f)
        return dist.NegativeBinomial2(jnp.exp(f), like("r", self.r, f), validate_args=False)

    def draw(self, key: Array, f: ArrayLike) -> Array:
        """Draw a rate, then a count, in the floating point type of ``f``."""
        key_rate, key_count = jax.random.split(key)
        mean = jnp.exp(jnp.asarray(f))
        r = like("r", self.r, mean)
        return poisson_draw(key_count, mean * jax.random.gamma(key_rate, r) / r)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        r = like("r", self.r, y)
        narrow = expect(negative_binomial_deviance, latent.mean, jnp.minimum(latent.variance, WIDE), y, r)
        wide = wide_negative_binomial(latent.mean, jnp.maximum(latent.variance, WIDE), y, r)
        return jnp.where(latent.variance > WIDE, wide, narrow) + _largest_of_count(y, r)

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
        r, peak = like("r", self.r, y), jnp.maximum(y, 1.0)
        return composite_cuts(jnp.log(peak), jnp.sqrt((peak + r) / (peak * r)), y)

    def _variance(self, latent: Latent) -> Array:
        mean, r = self._mean(latent), like("r", self.r, latent.mean)
        return mean + mean**2 * (jnp.expm1(latent.variance) + jnp.exp(latent.variance) / r)
