"""Shares between 0 and 1: the beta likelihood."""

import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import digamma, gammaln, logit, ndtri
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.checks import check_choice, check_positive
from numpyro_gp.likelihoods.base import check_each_target, like
from numpyro_gp.likelihoods.by_density import ByDensity
from numpyro_gp.likelihoods.expectations import composite_cuts, expect
from numpyro_gp.likelihoods.links import expected_mean, log_link, mean_of
from numpyro_gp.likelihoods.points import Latent

EULER = 0.5772156649015329


def beta_log_prob(link: str, f: Array, y: Array, concentration: Array) -> Array:
    """``log p(y | f)`` of ``Beta(m k, (1 - m) k)`` with mean ``m`` from the link; finite where ``m`` underflows."""
    log_m, log_rest = log_link(link, f)
    first, second = concentration * jnp.exp(log_m), concentration * jnp.exp(log_rest)
    log_k = jnp.log(concentration)
    # log Gamma(a) = log Gamma(a + 1) - log a, with log a known even where a rounds to zero: there the deviances of the
    # other likelihoods have no second derivative, so a concentration above 10^4 costs digits in float32.
    normaliser = gammaln(concentration) - gammaln(first + 1) - gammaln(second + 1) + log_m + log_rest + 2 * log_k
    return normaliser + (first - 1) * jnp.log(y) + (second - 1) * jnp.log1p(-y)


def likeliest_share(y: Array, concentration: Array) -> Array:
    """The mean at which the density of ``y <= 1/2`` is largest, about: far above ``y`` where ``k y`` is small.

    It solves ``digamma(k m) - digamma(k - k m) = logit(y)``; the second term is taken at ``m = y``, and the inverse of
    digamma is Minka's.
    """
    value = logit(y) + digamma(concentration * (1 - y))
    is_large = value > -2.22
    tail = -1 / (jnp.where(is_large, -3.0, value) + EULER)
    return jnp.minimum(jnp.where(is_large, jnp.exp(value) + 0.5, tail) / concentration, 0.5)


@value_type(static=("link",))
class Beta(ByDensity):
    """Proportions between 0 and 1: ``y ~ Beta(m k, (1 - m) k)`` with mean ``m`` and concentration ``k``.

    The mean ``m`` is ``sigmoid(f)`` (``link="logit"``) or ``ndtr(f)`` (``"probit"``); the variance of ``y``
    given ``f`` is ``m (1 - m) / (1 + k)``. Expectations by the composite rule around the link of ``y``.

    Parameters
    ----------
    concentration : array
        ``k``, positive: a scalar, or one value per datum.
    link : {"logit", "probit"}

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> round(float(ngp.likelihoods.Beta(10.0).predictive_mean(0.0, 1.0)), 4)
    0.5
    """

    parameters = ("concentration",)
    concentration: ArrayLike
    link: str = "logit"

    def __post_init__(self) -> None:
        check_positive("concentration", self.concentration)
        check_choice("link", self.link, ("logit", "probit"))

    @property
    def density(self) -> Callable[..., Array]:  # type: ignore[override]
        """``log p(y | f)``, finite where the mean underflows."""
        return partial(beta_log_prob, self.link)

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Beta with mean from the link."""
        f = jnp.asarray(f)
        k = like("concentration", self.concentration, f)
        log_m, log_rest = log_link(self.link, f)
        return dist.Beta(k * jnp.exp(log_m), k * jnp.exp(log_rest), validate_args=False)

    def check_targets(self, y: ArrayLike) -> None:
        """Targets must be strictly between zero and one."""
        cure = "Move exact zeros and ones inside, or model them apart."
        check_each_target(y, lambda y: (y > 0) & (y < 1), "strictly between 0 and 1", cure)

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
        k = like("concentration", self.concentration, y)
        m = likeliest_share(jnp.minimum(y, 1 - y), k)
        if self.link == "logit":
            centre, steepness, widest = logit(m), m * (1 - m), 1.0
        else:
            centre, widest = ndtri(m), 0.5  # the probit link bends over a shorter way
            steepness = jnp.exp(-0.5 * centre**2) / math.sqrt(2 * math.pi)
        spread = jnp.sqrt(m * (1 - m) / (1 + k))  # of y given its mean, turned into a width in f
        return composite_cuts(jnp.where(y < 0.5, centre, -centre), jnp.minimum(spread / steepness, widest), y)

    def _mean(self, latent: Latent) -> Array:
        return expected_mean(self.link, latent)

    def _variance(self, latent: Latent) -> Array:
        k = like("concentration", self.concentration, latent.mean)
        mean, inverse = expected_mean(self.link, latent), partial(mean_of, self.link)
        cuts = composite_cuts(0.0, 1.0, latent.mean)
        # A sum of what is not negative: `mean (1 - mean)` less a part of `within` would cancel.
        within = expect(lambda f: inverse(f) * inverse(-f), latent.mean, latent.variance, cuts=cuts)
        spread = expect(lambda f, mean: (inverse(f) - mean) ** 2, latent.mean, latent.variance, mean, cuts=cuts)
        return within / (1 + k) + spread
