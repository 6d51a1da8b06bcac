"""Successes among trials with one latent function (mathematics.md section 7.1)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import sigmoid
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, store, value_type
from numpyro_gp.checks import check_array, fail, known, when_known
from numpyro_gp.likelihoods.base import check_each_target, like
from numpyro_gp.likelihoods.by_density import ByDensity
from numpyro_gp.likelihoods.counts import MANY, poisson_draw, wide_negative_binomial
from numpyro_gp.likelihoods.deviances import negative_binomial_deviance, stirling
from numpyro_gp.likelihoods.expectations import composite_cuts, expect
from numpyro_gp.likelihoods.links import WIDE, expected_mean
from numpyro_gp.likelihoods.quadrature import Latent

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


def binomial_log_prob(f: Array, y: Array, trials: Array) -> Array:
    """``log p(y | f)``: of a negative binomial with as many of the other outcome the part that depends on ``f``."""
    rare, other, sign = _sides(y, trials)
    return negative_binomial_deviance(sign * f + jnp.log(other), rare, other) + _largest_of_trials(y, trials)


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

    density, parameters = staticmethod(binomial_log_prob), ("trials",)
    trials: ArrayLike = 1

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
        said = f", {float(trials):g}" if trials is not None and trials.ndim == 0 else ""
        required = f"whole numbers from 0 to the trials{said}"
        cure = "y counts successes: multiply shares by their trials, and round them."
        check_each_target(y, lambda y: (y >= 0) & (y <= most) & (y == np.round(y)), required, cure)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        trials = like("trials", self.trials, y)
        rare, other, sign = _sides(y, trials)
        mean = sign * latent.mean + jnp.log(other)
        narrow = expect(negative_binomial_deviance, mean, jnp.minimum(latent.variance, WIDE), rare, other)
        wide = wide_negative_binomial(mean, jnp.maximum(latent.variance, WIDE), rare, other)
        return jnp.where(latent.variance > WIDE, wide, narrow) + _largest_of_trials(y, trials)

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
        trials = like("trials", self.trials, y)
        seen, missed = y + 0.5, trials - y + 0.5
        return composite_cuts(jnp.log(seen / missed), jnp.sqrt((trials + 1) / (seen * missed)), y)

    def _mean(self, latent: Latent) -> Array:
        return like("trials", self.trials, latent.mean) * expected_mean("logit", latent)

    def _variance(self, latent: Latent) -> Array:
        trials, cuts = like("trials", self.trials, latent.mean), composite_cuts(0.0, 1.0, latent.mean)
        within = expect(lambda f: sigmoid(f) * sigmoid(-f), latent.mean, latent.variance, cuts=cuts)
        # Differences of the smaller share, as `1 - share` has lost its digits where the larger one rounds to 1.
        sign = jnp.where(latent.mean > 0, -1.0, 1.0).astype(latent.mean.dtype)
        given = latent.mean, latent.variance, latent.mean, sign
        shift, square = (expect(partial(_change, power=power), *given, cuts=cuts) for power in (1, 2))
        return trials * within + trials**2 * jnp.maximum(square - shift**2, 0)


def _change(f: Array, middle: Array, sign: Array, *, power: int) -> Array:
    """By how much the share at ``f`` differs from that at the middle, to a power; ``sign`` takes it from one side."""
    return (sigmoid(sign * f) - sigmoid(sign * middle)) ** power
