"""Likelihoods of real, positive and proportion-valued targets (mathematics.md section 7.1)."""

import math
from functools import partial

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import digamma, gammaln, logit, ndtri
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.checks import check_choice, check_positive
from numpyro_gp.likelihoods.base import ByDensity, Likelihood, check_each_target, like
from numpyro_gp.likelihoods.deviances import log_gamma_step, poisson_deviance, stirling
from numpyro_gp.likelihoods.expectations import composite_cuts, expect, log_expect
from numpyro_gp.likelihoods.links import expected_mean, log_link, mean_of
from numpyro_gp.likelihoods.quadrature import Latent

LOG_2PI = 1.8378770664093453


def normal_log_prob(residual: Array, variance: Array) -> Array:
    """``log N(residual; 0, variance)``."""
    return -0.5 * (LOG_2PI + jnp.log(variance) + residual**2 / variance)


def given_noise(z: Array, residual: Array, tilt: Array, rest: Array, mean: Array, scale: Array) -> Array:
    """``log N(residual; tilt z, rest + exp(mean + scale z))``."""
    return normal_log_prob(residual - tilt * z, rest + jnp.exp(mean + scale * z))


@value_type()
class Gaussian(Likelihood):
    """Gaussian noise of *standard deviation* ``scale``: ``y ~ N(f, scale^2)``, everything in closed form.

    Parameters
    ----------
    scale : array
        Standard deviation of the noise, positive: a scalar, or one value per datum.
        `numpyro_gp.gp_regression` takes its square, ``noise_variance``.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> round(float(ngp.likelihoods.Gaussian(1.0).expected_log_prob(0.0, 0.0, 1.0)), 6)   # -(log 2 pi + 1) / 2
    -1.418939
    """

    scale: ArrayLike

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """``N(f, scale^2)``."""
        f = jnp.asarray(f)
        return dist.Normal(f, like("scale", self.scale, f), validate_args=False)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        noise = like("scale", self.scale, y) ** 2
        return normal_log_prob(y - latent.mean, noise) - 0.5 * latent.variance / noise

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return normal_log_prob(y - latent.mean, self._variance(latent))

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
        return composite_cuts(y, like("scale", self.scale, y), y)

    def _mean(self, latent: Latent) -> Array:
        return latent.mean

    def _variance(self, latent: Latent) -> Array:
        return latent.variance + like("scale", self.scale, latent.mean) ** 2


@value_type()
class HeteroscedasticGaussian(Likelihood):
    """Noise that varies with the inputs: ``y ~ N(f, exp(g))`` for two latent functions, ``g`` the log noise *variance*.

    With ``c = cov(f, g)`` at the datum, the tilt by ``exp(-g)`` moves ``f`` by ``-c``:
    ``E log p = -[log 2 pi + mu_g + exp(-mu_g + s_g / 2) ((y - mu_f + c)^2 + s_f)] / 2``.
    The exponential overflows in float32 where ``-mu_g + s_g / 2 > 88``: start ``g`` with a small variance.
    The predictive density is one composite quadrature over ``g``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> noisy = ngp.likelihoods.HeteroscedasticGaussian()
    >>> round(float(noisy.predictive_variance(jnp.zeros(2), jnp.array([1.0, 0.0]))), 4)   # 1 + exp(0)
    2.0
    """

    num_latent = 2  # ``f`` and ``g``
    mean_function = 0

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """``N(f[..., 0], exp(f[..., 1]))``."""
        f = jnp.asarray(f)
        return dist.Normal(f[..., 0], jnp.exp(0.5 * f[..., 1]), validate_args=False)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        mean_f, mean_g, variance_f, variance_g, shared = self._parts(latent)
        precision = jnp.exp(-mean_g + 0.5 * variance_g)
        return -0.5 * (LOG_2PI + mean_g + precision * ((y - mean_f + shared) ** 2 + variance_f))

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        mean_f, mean_g, variance_f, variance_g, shared = self._parts(latent)
        scale_g = jnp.sqrt(variance_g + jnp.finfo(variance_g.dtype).eps)  # a logarithm's, without a unit
        tilt = shared / scale_g  # mean of f moves by tilt * z when g = mean_g + scale_g * z
        rest = jnp.maximum(variance_f - tilt**2, 0.0)
        residual = y - mean_f
        # In g the density turns where exp(g) passes residual^2; in z it peaks where tilt * z = residual.
        turn = (jnp.log(residual**2 + rest + jnp.finfo(y.dtype).tiny) - mean_g) / scale_g
        steep = jnp.where(tilt == 0, 1.0, tilt)
        peak = jnp.where(tilt == 0, 0.0, residual / steep)
        width = jnp.where(tilt == 0, 1.0, jnp.sqrt(rest + jnp.exp(mean_g)) / jnp.abs(steep))
        cuts = [composite_cuts(turn, 1.0 / scale_g, y), composite_cuts(peak, width, y)]
        parameters = (residual, tilt, rest, mean_g, scale_g)
        zero, unit = jnp.zeros_like(residual), jnp.ones_like(residual)
        return log_expect(given_noise, zero, unit, *parameters, cuts=jnp.concatenate(cuts, axis=-1))

    def _mean(self, latent: Latent) -> Array:
        return latent.mean[..., 0]

    def _variance(self, latent: Latent) -> Array:
        _, mean_g, variance_f, variance_g, _ = self._parts(latent)
        return variance_f + jnp.exp(mean_g + 0.5 * variance_g)

    @staticmethod
    def _parts(latent: Latent) -> tuple[Array, Array, Array, Array, Array]:
        mean, variance = latent.mean, latent.variance
        shared = jnp.zeros_like(mean[..., 0]) if latent.covariance is None else latent.covariance[..., 0, 1]
        return mean[..., 0], mean[..., 1], variance[..., 0], variance[..., 1], shared


@value_type()
class StudentT(ByDensity):
    """Data with outliers: ``y ~ f + scale * t_df``. Expectations are by the composite rule around ``y``.

    ``scale`` is the scale of Student's t; its standard deviation is ``scale sqrt(df / (df - 2))``. The
    predictive variance is infinite for ``df <= 2``, and it and the mean do not exist (NaN) for ``df <= 1``.

    Parameters
    ----------
    df : array
        Degrees of freedom, positive: 4 is usual.
    scale : array
        Positive: a scalar, or one value per datum.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> round(float(ngp.likelihoods.StudentT(4.0, 1.0).predictive_variance(0.0, 1.0)), 4)   # 1 + 4 / (4 - 2)
    3.0
    """

    parameters, heavy = ("df", "scale"), True
    df: ArrayLike
    scale: ArrayLike

    @staticmethod
    def density(f: Array, y: Array, df: Array, scale: Array) -> Array:
        """``log p(y | f)`` of Student's t with centre ``f``."""
        constant = log_gamma_step(0.5 * df, jnp.full_like(df, 0.5)) - 0.5 * LOG_2PI - jnp.log(scale)
        return constant - 0.5 * (df + 1) * jnp.log1p(((y - f) / scale) ** 2 / df)

    @staticmethod
    def distribution(f: Array, df: Array, scale: Array) -> dist.Distribution:
        """Student's t around ``f``."""
        return dist.StudentT(df, f, scale, validate_args=False)

    @staticmethod
    def turn(y: Array, df: Array, scale: Array) -> tuple[Array, Array]:  # noqa: ARG004
        """At ``y``, over the scale."""
        return y, scale

    def _mean(self, latent: Latent) -> Array:
        return jnp.where(like("df", self.df, latent.mean) > 1, latent.mean, jnp.nan)

    def _variance(self, latent: Latent) -> Array:
        df, scale = self.given(latent.mean)
        exists = df > 2
        finite = latent.variance + scale**2 * df / jnp.where(exists, df - 2, 1.0)
        return jnp.where(exists, finite, jnp.where(df > 1, jnp.inf, jnp.nan))


def gamma_log_prob(f: Array, y: Array, shape: Array) -> Array:
    """``log p(y | f)`` of a gamma with this shape and scale ``exp(f)``."""
    return gamma_expected(f, jnp.zeros_like(f), y, shape)


def gamma_expected(mean: Array, variance: Array, y: Array, shape: Array) -> Array:
    """``E log p(y | f)``: but for a term without ``f``, that of ``shape`` Poisson counts of rate ``y exp(-f)``."""
    return poisson_deviance(-mean, variance, shape, y) - stirling(shape) + jnp.log(shape) - jnp.log(y)


class _PositiveTargets(ByDensity):
    """Positive ``y``, gamma distributed with the given ``shape`` and mean ``shape * exp(f)``."""

    density, parameters = staticmethod(gamma_log_prob), ("shape",)
    shape: ArrayLike

    def check_targets(self, y: ArrayLike) -> None:
        """Targets must be positive."""
        check_each_target(y, lambda y: y > 0, "positive", "Use another likelihood for zero or negative targets.")

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return gamma_expected(latent.mean, latent.variance, y, like("shape", self.shape, y))

    @staticmethod
    def turn(y: Array, shape: Array) -> tuple[Array, Array]:
        """At the logarithm of the likeliest scale."""
        return jnp.log(y / shape), 1.0 / jnp.sqrt(shape)

    def _mean(self, latent: Latent) -> Array:
        return like("shape", self.shape, latent.mean) * jnp.exp(latent.mean + 0.5 * latent.variance)

    def _variance(self, latent: Latent) -> Array:
        shape, variance = like("shape", self.shape, latent.mean), latent.variance
        return shape * jnp.exp(2 * (latent.mean + variance)) * (1 - shape * jnp.expm1(-variance))


@value_type()
class Gamma(_PositiveTargets):
    """Positive, skewed data such as durations or costs: Gamma with the given ``shape`` and scale ``exp(f)``.

    ``E log p = -a mu - log Gamma(a) + (a - 1) log y - y exp(-mu + s / 2)``. The exponential is infinite only
    where its value leaves the range of the dtype (``s / 2 - mu > 88`` in float32): start with small variances.

    Parameters
    ----------
    shape : array
        ``a``, positive: a scalar, or one value per datum.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> round(float(ngp.likelihoods.Gamma(2.0).predictive_mean(0.0, 1.0)), 4)   # 2 exp(1/2)
    3.2974
    """

    shape: ArrayLike

    @staticmethod
    def distribution(f: Array, shape: Array) -> dist.Distribution:
        """Gamma with rate ``exp(-f)``."""
        return dist.Gamma(shape, jnp.exp(-f), validate_args=False)


@value_type()
class Exponential(_PositiveTargets):
    """Waiting times: positive ``y``, exponential with mean ``exp(f)``. It is `Gamma` with ``shape = 1``.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> round(float(ngp.likelihoods.Exponential().predictive_mean(0.0, 1.0)), 4)   # exp(1/2)
    1.6487
    """

    shape = 1.0

    @staticmethod
    def distribution(f: Array, shape: Array) -> dist.Distribution:  # noqa: ARG004
        """Exponential with rate ``exp(-f)``."""
        return dist.Exponential(jnp.exp(-f), validate_args=False)


# --------------------------------------------------------------------------------------
# Shares between 0 and 1: the beta likelihood.


EULER = 0.5772156649015329


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
        super().__post_init__()
        check_choice("link", self.link, ("logit", "probit"))

    def density(self, f: Array, y: Array, concentration: Array) -> Array:
        """``log p(y | f)``; finite where the mean underflows."""
        log_m, log_rest = log_link(self.link, f)
        first, second = concentration * jnp.exp(log_m), concentration * jnp.exp(log_rest)
        log_k = jnp.log(concentration)
        # log Gamma(a) = log Gamma(a + 1) - log a, with log a known even where a rounds to zero: there the deviances of
        # the other likelihoods have no second derivative, so a concentration above 10^4 costs digits in float32.
        normaliser = gammaln(concentration) - gammaln(first + 1) - gammaln(second + 1) + log_m + log_rest + 2 * log_k
        return normaliser + (first - 1) * jnp.log(y) + (second - 1) * jnp.log1p(-y)

    def distribution(self, f: Array, k: Array) -> dist.Distribution:
        """Beta with mean from the link."""
        log_m, log_rest = log_link(self.link, f)
        return dist.Beta(k * jnp.exp(log_m), k * jnp.exp(log_rest), validate_args=False)

    def check_targets(self, y: ArrayLike) -> None:
        """Targets must be strictly between zero and one."""
        cure = "Move exact zeros and ones inside, or model them apart."
        check_each_target(y, lambda y: (y > 0) & (y < 1), "strictly between 0 and 1", cure)

    def turn(self, y: Array, k: Array) -> tuple[Array, Array]:
        """At the link of the mean at which the density is largest, about: far above ``y`` where ``k y`` is small.

        It solves ``digamma(k m) - digamma(k - k m) = logit(y)``; the second term is taken at ``m = y``, and the inverse
        of digamma is Minka's.
        """
        less = jnp.minimum(y, 1 - y)
        value = logit(less) + digamma(k * (1 - less))
        is_large = value > -2.22
        tail = -1 / (jnp.where(is_large, -3.0, value) + EULER)
        m = jnp.minimum(jnp.where(is_large, jnp.exp(value) + 0.5, tail) / k, 0.5)
        if self.link == "logit":
            centre, steepness, widest = logit(m), m * (1 - m), 1.0
        else:
            centre, widest = ndtri(m), 0.5  # the probit link bends over a shorter way
            steepness = jnp.exp(-0.5 * centre**2) / math.sqrt(2 * math.pi)
        spread = jnp.sqrt(m * (1 - m) / (1 + k))  # of y given its mean, turned into a width in f
        return jnp.where(y < 0.5, centre, -centre), jnp.minimum(spread / steepness, widest)

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
