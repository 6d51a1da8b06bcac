"""Likelihoods of counts with a log link, and of successes among trials (mathematics.md section 7.1)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import sigmoid
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, store, value_type
from numpyro_gp.checks import check_array, check_nonnegative, fail, known, when_known
from numpyro_gp.likelihoods.base import ByDensity, check_each_target, like
from numpyro_gp.likelihoods.deviances import negative_binomial_deviance, poisson_deviance, stirling
from numpyro_gp.likelihoods.expectations import composite_cuts, expect, log_expect
from numpyro_gp.likelihoods.links import at_width, expected_mean, expected_softplus
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
        spread = self._mean(latent._replace(variance=2 * latent.variance))
        return self._mean(latent) - spread * (spread * jnp.expm1(-latent.variance))  # squares alone may overflow


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

    @staticmethod
    def density(f: Array, y: Array) -> Array:
        """``log p(y | f)`` with rate ``exp(f)``."""
        return poisson_deviance(f, jnp.zeros_like(f), y, jnp.ones_like(y)) - stirling(y)

    @staticmethod
    def distribution(f: Array) -> dist.Distribution:
        """Poisson with rate ``exp(f)``."""
        return dist.Poisson(jnp.exp(f), validate_args=False)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return poisson_deviance(latent.mean, latent.variance, y, jnp.ones_like(y)) - stirling(y)

    @staticmethod
    def turn(y: Array) -> tuple[Array, Array]:
        """At ``log y``, over ``y^(-1/2)``; for ``y = 0`` the mass falls near 0."""
        peak = jnp.maximum(y, 1.0)
        return jnp.log(peak), 1.0 / jnp.sqrt(peak)


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

    @staticmethod
    def distribution(f: Array, weight: Array) -> dist.Distribution:
        """Poisson with rate ``weight exp(f)``: the number of events in the cell of a node."""
        return dist.Poisson(weight * jnp.exp(f), validate_args=False)

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


def expected_negative_binomial(mean: Array, variance: Array, y: Array, r: Array) -> Array:
    """Return ``E`` of `negative_binomial_deviance` for ``f ~ N(mean, variance)``; from `WIDE` on by twelve normals."""
    is_wide, small, large = at_width(variance)
    narrow = expect(negative_binomial_deviance, mean, small, y, r)
    odds, seen = mean - jnp.log(r), jnp.where(y > 0, y, 1.0)
    of_count = y * (expected_softplus(-odds, large) - jnp.log1p(r / seen))
    wide = -of_count - r * (expected_softplus(odds, large) - jnp.log1p(y / r))
    return jnp.where(is_wide, wide, narrow)


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

    parameters = ("r",)
    r: ArrayLike

    @staticmethod
    def density(f: Array, y: Array, r: Array) -> Array:
        """``log p(y | f)`` with mean ``exp(f)`` and variance ``exp(f) + exp(2 f) / r``."""
        return negative_binomial_deviance(f, y, r) + _largest_of_count(y, r)

    @staticmethod
    def distribution(f: Array, r: Array) -> dist.Distribution:
        """Negative binomial with mean ``exp(f)`` and concentration ``r``."""
        return dist.NegativeBinomial2(jnp.exp(f), r, validate_args=False)

    def draw(self, key: Array, f: ArrayLike) -> Array:
        """Draw a rate, then a count, in the floating point type of ``f``."""
        key_rate, key_count = jax.random.split(key)
        mean = jnp.exp(jnp.asarray(f))
        r = like("r", self.r, mean)
        return poisson_draw(key_count, mean * jax.random.gamma(key_rate, r) / r)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        r = like("r", self.r, y)
        return expected_negative_binomial(latent.mean, latent.variance, y, r) + _largest_of_count(y, r)

    @staticmethod
    def turn(y: Array, r: Array) -> tuple[Array, Array]:
        """At ``log y``, as that of a Poisson, and wider."""
        peak = jnp.maximum(y, 1.0)
        return jnp.log(peak), jnp.sqrt((peak + r) / (peak * r))

    def _variance(self, latent: Latent) -> Array:
        spread = self._mean(latent._replace(variance=2 * latent.variance))
        return super()._variance(latent) + spread * (spread / like("r", self.r, latent.mean))


# --------------------------------------------------------------------------------------
# Successes among trials.


# Of more than `MANY` trials: variance above which successes are normal to a hundredth of their spread.
NORMAL = 1e4


def are_trials(values: np.ndarray) -> np.ndarray:
    """Whether each is a whole number from one on."""
    return (values >= 1) & (values == np.round(values))


def _sides(y: Array, trials: Array) -> tuple[Array, Array, Array]:
    """The rarer outcome and the other one, and the sign of ``f`` by which the rarer one is likely."""
    is_rare = 2 * y <= trials
    rare = jnp.where(is_rare, y, trials - y)
    return rare, trials - rare, jnp.where(is_rare, 1.0, -1.0).astype(y.dtype)


def _largest_of_trials(y: Array, trials: Array) -> Array:
    """``log p(y | f)`` at the share that was seen, the largest there is."""
    return stirling(trials) - stirling(y) - stirling(trials - y)


@value_type()
class Binomial(ByDensity):
    """Successes among trials, each with ``p = sigmoid(f)``; of one trial it is `Bernoulli`.

    ``log p = y f - trials softplus(f) + log C(trials, y)``. Its expectation is by 20-node Gauss-Hermite up to a latent
    variance of 1, beyond by a mixture of twelve normals, whose error is 2e-10 of the trials. The predictive mass is by
    the composite rule. ``predictive_mean`` is of successes: ``trials E sigmoid(f)``.

    Parameters
    ----------
    trials : array
        Whole numbers from one on: one for all data, or one for each.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> likelihood = ngp.likelihoods.Binomial(10)
    >>> round(float(likelihood.predictive_mean(0.0, 1.0)), 4), round(float(likelihood.log_prob(5.0, 0.0)), 4)
    (5.0, -1.402)
    """

    parameters = ("trials",)
    trials: ArrayLike = 1

    @staticmethod
    def density(f: Array, y: Array, trials: Array) -> Array:
        """``log p(y | f)``: of a negative binomial with as many of the other outcome the part that depends on ``f``."""
        rare, other, sign = _sides(y, trials)
        return negative_binomial_deviance(sign * f + jnp.log(other), rare, other) + _largest_of_trials(y, trials)

    def __post_init__(self) -> None:
        def check(values: np.ndarray) -> None:
            if not (right := are_trials(values)).all():
                got = f"{float(values[~right].min()):.6g}"
                fail("trials", "whole numbers from 1 on", got, "Leave data without trials out.")

        trials = check_array("trials", self.trials)
        when_known(check, trials)
        store(self, trials=trials)

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Binomial, by its logit."""
        values = jnp.asarray(f)
        trials = jnp.broadcast_to(jnp.asarray(self.trials).astype(int), values.shape)
        return dist.Binomial(trials, logits=values, validate_args=False)

    def draw(self, key: Array, f: ArrayLike) -> Array:
        """Draw successes, in the floating point type of ``f``.

        Of very many trials by a normal that is rounded, or where the rarer outcome is rare as Poisson's.
        """
        values = jnp.asarray(f)
        trials, sign = like("trials", self.trials, values), jnp.where(values > 0, -1, 1)
        rate = trials * sigmoid(sign * values)  # of the rarer outcome
        spread = rate * sigmoid(-sign * values)
        few = dist.Binomial(jnp.minimum(trials, MANY).astype(int), logits=values, validate_args=False).sample(key)
        normal = jnp.round(rate + jnp.sqrt(spread) * jax.random.normal(key, rate.shape, rate.dtype))
        rarer = jnp.clip(jnp.where(spread > NORMAL, normal, poisson_draw(key, rate)), 0, trials)
        return jnp.where(trials <= MANY, few.astype(rate.dtype), jnp.where(sign > 0, rarer, trials - rarer))

    def check_targets(self, y: ArrayLike) -> None:
        """Targets must be whole numbers from 0 to the trials."""
        trials, most = known(self.trials), np.asarray(np.inf)
        if trials is not None:  # those of draws and of rows that fill a chunk up say what the most are
            most = trials if trials.ndim <= 1 and np.shape(y)[-1:] in (trials.shape, ()) else trials.max()
        count = f", {float(trials):g}" if trials is not None and trials.ndim == 0 else ""
        required = f"whole numbers from 0 to the trials{count}"
        cure = "y counts successes: multiply shares by their trials, and round them."
        check_each_target(y, lambda y: (y >= 0) & (y <= most) & (y == np.round(y)), required, cure)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        trials = like("trials", self.trials, y)
        rare, other, sign = _sides(y, trials)
        mean = sign * latent.mean + jnp.log(other)
        return expected_negative_binomial(mean, latent.variance, rare, other) + _largest_of_trials(y, trials)

    @staticmethod
    def turn(y: Array, trials: Array) -> tuple[Array, Array]:
        """At the logit of the share that was seen."""
        seen, missed = y + 0.5, trials - y + 0.5
        return jnp.log(seen / missed), jnp.sqrt((trials + 1) / (seen * missed))

    def _mean(self, latent: Latent) -> Array:
        return like("trials", self.trials, latent.mean) * expected_mean("logit", latent)

    def _variance(self, latent: Latent) -> Array:
        trials, cuts = like("trials", self.trials, latent.mean), composite_cuts(0.0, 1.0, latent.mean)
        within = expect(lambda f: sigmoid(f) * sigmoid(-f), latent.mean, latent.variance, cuts=cuts)
        # Differences of the smaller share, as `1 - share` has lost its digits where the larger one rounds to 1.
        sign = jnp.where(latent.mean > 0, -1.0, 1.0).astype(latent.mean.dtype)
        arguments = latent.mean, latent.variance, latent.mean, sign
        shift, square = (expect(partial(_change, power=power), *arguments, cuts=cuts) for power in (1, 2))
        return trials * within + trials**2 * jnp.maximum(square - shift**2, 0)


def _change(f: Array, middle: Array, sign: Array, *, power: int) -> Array:
    """By how much the share at ``f`` differs from that at the middle, to a power; ``sign`` takes it from one side."""
    return (sigmoid(sign * f) - sigmoid(sign * middle)) ** power
