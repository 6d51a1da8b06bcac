"""Likelihoods of labels with one latent function: two classes, and ordered classes (mathematics.md section 7.1)."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import log_sigmoid
from jax.scipy.special import ndtr
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, store, value_type
from numpyro_gp.checks import check_choice, check_floating, check_positive, fail, when_known
from numpyro_gp.likelihoods.base import Likelihood, check_each_target, like
from numpyro_gp.likelihoods.expectations import composite_cuts, expect, log_expect
from numpyro_gp.likelihoods.links import expected_mean
from numpyro_gp.likelihoods.log_normal_cdf import log_ndtr
from numpyro_gp.likelihoods.points import Latent
from numpyro_gp.likelihoods.softplus import WIDE, expected_softplus


def check_labels(y: ArrayLike, classes: int) -> None:
    """Refuse known targets that are not whole numbers in ``0 ... classes - 1``."""
    required, cure = f"labels 0 to {classes - 1}", "Number the classes from 0."
    if classes == 2:
        required, cure = "labels 0 or 1", "Recode labels a and b as (y == b): b is then 1."
    check_each_target(y, lambda y: (y >= 0) & (y <= classes - 1) & (y == np.round(y)), required, cure)


class OfLabels(Likelihood):
    """Labels ``0 ... classes - 1``, whose predictive mean is the probability of each class, or of class 1 of two."""

    classes: int

    def check_targets(self, y: ArrayLike) -> None:
        """Targets must be labels ``0 ... classes - 1``."""
        check_labels(y, self.classes)

    def _variance(self, latent: Latent) -> Array:
        probability = self._mean(latent)
        return probability * (1 - probability)


def label_log_prob(link: str, f: Array, sign: Array) -> Array:
    """``log sigmoid(sign f) = -softplus(-sign f)``, or ``log ndtr(sign f)``."""
    return (log_sigmoid if link == "logit" else log_ndtr)(sign * f)


@value_type(static=("link",))
class Bernoulli(OfLabels):
    """Labels 0 or 1, binary classification: ``p(y = 1) = sigmoid(f)`` (``"logit"``) or ``ndtr(f)`` (``"probit"``).

    ``E log p`` is by 20-node Gauss-Hermite, of the logit up to a latent variance of 1, and beyond by a mixture of
    twelve normals with an error of 2e-10. For the probit the error is below 1e-6 for a latent variance up to 3, about
    3e-4 at 10 and 6e-3 at 30; its slope in the variance, by the same nodes of the second derivative, is within 1e-4
    of itself up to 3 and 5e-3 at 8. The predictive probability is ``ndtr(mu / sqrt(1 + s))`` for probit and by the
    composite rule for logit, good to 1e-9 at any variance.

    Parameters
    ----------
    link : {"logit", "probit"}

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> round(float(ngp.likelihoods.Bernoulli("probit").predictive_mean(1.0, 3.0)), 6)   # ndtr(1/2)
    0.691462
    """

    link: str = "logit"
    classes = 2

    def __post_init__(self) -> None:
        check_choice("link", self.link, ("logit", "probit"))

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Bernoulli, by its logit."""
        f = jnp.asarray(f)
        logits = f if self.link == "logit" else log_ndtr(f) - log_ndtr(-f)
        return dist.BernoulliLogits(logits, validate_args=False)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        sign, fun = 2 * y - 1, partial(label_log_prob, self.link)
        if self.link == "probit":
            return expect(fun, latent.mean, latent.variance, sign)
        narrow = expect(fun, latent.mean, jnp.minimum(latent.variance, WIDE), sign)
        wide = -expected_softplus(-sign * latent.mean, jnp.maximum(latent.variance, WIDE))
        return jnp.where(latent.variance > WIDE, wide, narrow)

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        sign = 2 * y - 1
        if self.link == "probit":
            return log_ndtr(sign * latent.mean / jnp.sqrt(1 + latent.variance))
        fun = partial(label_log_prob, self.link)
        return log_expect(fun, latent.mean, latent.variance, sign, cuts=composite_cuts(0.0, 1.0, y))

    def _mean(self, latent: Latent) -> Array:
        return expected_mean(self.link, latent)


def interval_log_prob(f: Array, lower: Array, upper: Array, scale: Array) -> Array:
    """``log [ndtr((upper - f) / scale) - ndtr((lower - f) / scale)]``, with infinite ends allowed.

    An interval above zero is reflected to below, so that the two tails never cancel near one.
    """
    no_lower, no_upper = jnp.isinf(lower), jnp.isinf(upper)
    a = (jnp.where(no_lower, upper - 1.0, lower) - f) / scale
    b = (jnp.where(no_upper, lower + 1.0, upper) - f) / scale
    a, b = jnp.where(no_lower, b - 1.0, a), jnp.where(no_upper, a + 1.0, b)
    flip = a + b > 0
    low, high = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
    top = log_ndtr(high)
    between = top + jnp.log(-jnp.expm1(log_ndtr(low) - top))
    return jnp.where(no_lower, log_ndtr(b), jnp.where(no_upper, log_ndtr(-a), between))


@value_type()
class Ordinal(Likelihood):
    """Ordered labels such as ratings, from 0 to ``K``: the label counts the cutpoints below ``f + scale * noise``.

    The noise is standard normal. The predictive mass is closed: the same interval with noise variance
    ``scale^2 + s``. ``predictive_mean`` is the mean *label*; `probabilities` gives every class.

    Parameters
    ----------
    cutpoints : array (K,) or (..., K)
        Increasing; with axes on the left one set per datum.
    scale : array
        Standard deviation of the noise, positive.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> rating = ngp.likelihoods.Ordinal(jnp.array([-1.0, 1.0]))
    >>> rating.probabilities(0.0, 0.0).round(4).tolist()
    [0.1587, 0.6827, 0.1587]
    """

    cutpoints: ArrayLike
    scale: ArrayLike = 1.0

    def __post_init__(self) -> None:
        cutpoints = check_floating("cutpoints", self.cutpoints)
        if cutpoints.ndim == 0 or cutpoints.shape[-1] < 1:
            cure = "Pass at least one cutpoint, which separates two classes: jnp.array([0.0])."
            fail("cutpoints", "an array of shape (..., K) with K >= 1", f"shape {cutpoints.shape}", cure)

        def check(values: np.ndarray) -> None:
            if not np.all(np.diff(values, axis=-1) > 0):
                cure = "Sort them, or sample them with numpyro.distributions.transforms.OrderedTransform."
                fail("cutpoints", "strictly increasing", np.array2string(values, precision=4, threshold=8), cure)

        when_known(check, cutpoints)
        check_positive("scale", self.scale)
        store(self, cutpoints=cutpoints)

    @property
    def classes(self) -> int:
        """Number of classes, one more than cutpoints."""
        return jnp.shape(self.cutpoints)[-1] + 1

    def probabilities(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        """Predictive probability of each class, ``(..., K + 1)``."""
        latent = self._moments(mean, variance, None)
        return jnp.exp(self._log_masses(latent.mean, self._spread(latent)))

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Categorical with the probabilities of the intervals."""
        f = jnp.asarray(f)
        return dist.CategoricalLogits(self._log_masses(f, like("scale", self.scale, f)), validate_args=False)

    def check_targets(self, y: ArrayLike) -> None:
        """Targets must be labels ``0 ... K``."""
        check_labels(y, self.classes)

    def _spread(self, latent: Latent) -> Array:
        return jnp.sqrt(like("scale", self.scale, latent.mean) ** 2 + latent.variance)

    def _edges(self, batch: Float[Array, "*batch"]) -> Float[Array, "*batch E"]:
        """Cutpoints between minus and plus infinity."""
        cutpoints = jnp.asarray(self.cutpoints).astype(batch.dtype)
        cutpoints = jnp.broadcast_to(cutpoints, batch.shape + cutpoints.shape[-1:])
        end = jnp.full((*batch.shape, 1), jnp.inf, batch.dtype)
        return jnp.concatenate([-end, cutpoints, end], axis=-1)

    def _log_masses(self, f: Float[Array, "*batch"], scale: Float[Array, "*batch"]) -> Float[Array, "*batch C"]:
        edges = self._edges(f)
        return interval_log_prob(f[..., None], edges[..., :-1], edges[..., 1:], scale[..., None])

    def _interval(self, y: Float[Array, "*batch"]) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        edges, label = self._edges(y), y.astype(int)[..., None]
        lower, upper = (jnp.take_along_axis(edges, label + end, axis=-1)[..., 0] for end in (0, 1))
        return lower, upper

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        scale, (lower, upper) = like("scale", self.scale, y), self._interval(y)
        ends = [jnp.where(jnp.isinf(end), other, end) for end, other in ((lower, upper), (upper, lower))]
        cuts = jnp.concatenate([composite_cuts(end, scale, y) for end in ends], axis=-1)
        return expect(interval_log_prob, latent.mean, latent.variance, lower, upper, scale, cuts=cuts)

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return interval_log_prob(latent.mean, *self._interval(y), self._spread(latent))

    def _mean(self, latent: Latent) -> Array:
        return jnp.sum(self._above(latent), axis=-1)

    def _variance(self, latent: Latent) -> Array:
        masses = jnp.exp(self._log_masses(latent.mean, self._spread(latent)))
        labels = jnp.expand_dims(jnp.arange(self.classes, dtype=masses.dtype), range(masses.ndim - 1))
        return jnp.sum(masses * (labels - self._mean(latent)[..., None]) ** 2, axis=-1)

    def _above(self, latent: Latent) -> Float[Array, "*batch K"]:
        """``p(y >= k)`` for ``k = 1 ... K``."""
        cutpoints = self._edges(latent.mean)[..., 1:-1]
        return ndtr((latent.mean[..., None] - cutpoints) / self._spread(latent)[..., None])
