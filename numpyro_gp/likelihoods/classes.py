"""Likelihoods of labels with one latent function: two classes, and ordered classes (mathematics.md section 7.1)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jax.nn import log_sigmoid, log_softmax
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, over_axes, store, value_type
from numpyro_gp.checks import check_choice, check_count, check_floating, check_positive, check_values, fail, when_known
from numpyro_gp.likelihoods.base import Likelihood, check_each_target, like
from numpyro_gp.likelihoods.expectations import composite_cuts, expect, log_expect
from numpyro_gp.likelihoods.links import at_width, expected_log_ndtr, expected_mean, expected_softplus, log_ndtr
from numpyro_gp.likelihoods.quadrature import (
    Latent,
    composite_rule,
    latent_values,
    quasi_normal,
    spread_points,
    tensor_hermite,
)
from numpyro_gp.linalg import identity_like, small_cholesky


class OfLabels(Likelihood):
    """Labels ``0 ... classes - 1``, whose predictive mean is the probability of each class, or of class 1 of two."""

    classes: int

    def check_targets(self, y: ArrayLike) -> None:
        """Targets must be labels ``0 ... classes - 1``."""
        required, cure = f"labels 0 to {self.classes - 1}", "Number the classes from 0."
        if self.classes == 2:
            required, cure = "labels 0 or 1", "Recode labels a and b as (y == b): b is then 1."
        check_each_target(y, lambda y: (y >= 0) & (y <= self.classes - 1) & (y == np.round(y)), required, cure)

    def _variance(self, latent: Latent) -> Array:
        probability = self._mean(latent)
        return probability * (1 - probability)


def label_log_prob(link: str, f: Array, sign: Array) -> Array:
    """``log sigmoid(sign f) = -softplus(-sign f)``, or ``log ndtr(sign f)``."""
    return (log_sigmoid if link == "logit" else log_ndtr)(sign * f)


@value_type(static=("link",))
class Bernoulli(OfLabels):
    """Labels 0 or 1, binary classification: ``p(y = 1) = sigmoid(f)`` (``"logit"``) or ``ndtr(f)`` (``"probit"``).

    ``E log p`` is by 20-node Gauss-Hermite up to a latent variance of 1, and beyond by a mixture of normals: for the
    logit with an error of 2e-10, for the probit of 1e-6 of itself. The predictive probability is
    ``ndtr(mu / sqrt(1 + s))`` for probit and by the composite rule for logit, good to 1e-9 at any variance.

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
        sign, (is_wide, small, large) = 2 * y - 1, at_width(latent.variance)
        narrow = expect(partial(label_log_prob, self.link), latent.mean, small, sign)
        if self.link == "probit":
            wide = expected_log_ndtr(sign * latent.mean, large)
        else:
            wide = -expected_softplus(-sign * latent.mean, large)
        return jnp.where(is_wide, wide, narrow)

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
class Ordinal(OfLabels):
    """Ordered labels such as ratings, from 0 to ``K``: the label counts the cutpoints below ``f + scale * noise``.

    The noise is standard normal. The predictive mass is closed: the same interval with noise variance
    ``scale^2 + s``. ``predictive_mean`` is the mean *label*; `probabilities` gives every class.

    Parameters
    ----------
    cutpoints : array (K,) or (..., K)
        Increasing; with axes on the left one set per datum. Between two that are equal a label has no probability.
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
            if not np.all(np.diff(values, axis=-1) >= 0):  # draws of a wide prior may be equal in single precision
                cure = "Sort them, or sample them with numpyro.distributions.transforms.OrderedTransform."
                fail("cutpoints", "in increasing order", np.array2string(values, precision=4, threshold=8), cure)

        when_known(check, cutpoints)
        check_positive("scale", self.scale)
        store(self, cutpoints=cutpoints)

    @property
    def classes(self) -> int:  # type: ignore[override]
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
        cutpoints = self._edges(latent.mean)[..., 1:-1]
        above = ndtr((latent.mean[..., None] - cutpoints) / self._spread(latent)[..., None])  # p(y >= k)
        return jnp.sum(above, axis=-1)

    def _variance(self, latent: Latent) -> Array:
        masses = jnp.exp(self._log_masses(latent.mean, self._spread(latent)))
        labels = jnp.expand_dims(jnp.arange(self.classes, dtype=masses.dtype), range(masses.ndim - 1))
        return jnp.sum(masses * (labels - self._mean(latent)[..., None]) ** 2, axis=-1)


# --------------------------------------------------------------------------------------
# Likelihoods of labels with one latent function for each class (mathematics.md section 7.3).


# Nodes for each of the C - 1 differences of latent functions in Softmax.
SOFTMAX_NODES = {2: 64, 3: 32}
# Competitors of a class whose steps get cuts in RobustMax.
RIVALS = 8


class _OneEach(OfLabels):
    """Labels with a latent function for each class."""

    @property
    def num_latent(self) -> int:
        """One latent function for each class."""
        return self.classes


@value_type(static=("classes",))
class RobustMax(_OneEach):
    """Labels of ``C`` classes, some of them wrong: robust classification.

    The class of the largest latent function has probability ``1 - epsilon``, and every other ``epsilon / (C - 1)``.
    With ``P = p(f_y is the largest)``: ``E log p = P log(1 - epsilon) + (1 - P) log(epsilon / (C - 1))``. ``P`` is
    one composite quadrature over ``f_y`` (``C = 2``: closed form), for *independent* latent functions only; its
    cost for each datum grows with ``C``, and with ``C^2`` for the probabilities of all classes.

    Parameters
    ----------
    classes : int
        Number C of classes, and of latent functions.
    epsilon : array
        Probability of a wrong label, between 0 and 1.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> labels = ngp.likelihoods.RobustMax(3)
    >>> labels.predictive_mean(jnp.array([5.0, 0.0, 0.0]), jnp.full(3, 0.01)).round(4).tolist()
    [0.999, 0.0005, 0.0005]
    """

    classes: int
    epsilon: ArrayLike = 1e-3

    def __post_init__(self) -> None:
        check_count("classes", self.classes, minimum=2)
        check_values("epsilon", self.epsilon, lambda e: (e > 0) & (e < 1), "between 0 and 1", "Pass epsilon=1e-3.")

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Categorical that prefers the largest latent function."""
        f = jnp.asarray(f)
        largest = jax.nn.one_hot(jnp.argmax(f, axis=-1), self.classes, dtype=f.dtype)
        return dist.CategoricalProbs(self._mix(largest), validate_args=False)

    def probability_largest(self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Array:
        """``P``: probability that latent function ``y`` is the largest."""
        label, latent = self._aligned(y, mean, variance, None)
        return self._largest(label, latent)

    def _moments(
        self, mean: ArrayLike, variance: ArrayLike, covariance: ArrayLike | None, shape: tuple[int, ...] = ()
    ) -> Latent:
        if covariance is not None:
            cure = "Use Softmax, or an independent process for each class: gp(..., outputs=C)."
            fail("covariance", "None for RobustMax, which needs independent latent functions", "an array", cure)
        return super()._moments(mean, variance, covariance, shape)

    def _mix(self, largest: Float[Array, "*batch C"]) -> Float[Array, "*batch C"]:
        epsilon = like("epsilon", self.epsilon, largest[..., 0])[..., None]
        return largest * (1 - epsilon) + (1 - largest) * epsilon / (self.classes - 1)

    def _largest(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        """``P = E_{f ~ N(mu_y, s_y)} prod_{j != y} ndtr((f - mu_j) / sqrt(s_j))``, logarithms multiplied as sums."""
        mean, scale = latent.mean, self._spread(latent.variance)
        is_label = jax.nn.one_hot(y.astype(int), self.classes, dtype=bool)
        parts = mean, scale, latent.variance
        mean_y, scale_y, variance_y = (jnp.sum(jnp.where(is_label, part, 0.0), axis=-1) for part in parts)
        if self.classes == 2:
            rival, variance = (jnp.sum(jnp.where(is_label, 0.0, part), axis=-1) for part in (mean, latent.variance))
            return ndtr((mean_y - rival) / self._spread((variance_y + variance)[..., None])[..., 0])
        # Cuts (mu_j - mu_y) / sqrt(s_y) + sqrt(s_j / s_y) {0, ±2, ±6} for the strongest competitors j.
        m, s, m_y, s_y = lax.stop_gradient((mean, scale, mean_y[..., None], scale_y[..., None]))
        _, rivals = lax.top_k(jnp.where(is_label, -jnp.inf, m), min(self.classes - 1, RIVALS))
        centre = (jnp.take_along_axis(m, rivals, axis=-1) - m_y) / s_y
        ratio = jnp.take_along_axis(s, rivals, axis=-1) / s_y
        places = jnp.expand_dims(jnp.asarray(np.array([-6.0, -2.0, 0.0, 2.0, 6.0]), mean.dtype), range(mean.ndim))
        cuts = (centre[..., None] + ratio[..., None] * places).reshape(*mean_y.shape, -1)
        z, weights = composite_rule(cuts)
        f = mean_y[..., None] + scale_y[..., None] * z
        steps = log_ndtr((f[..., None] - mean[..., None, :]) / scale[..., None, :])
        product = jnp.exp(jnp.sum(jnp.where(is_label[..., None, :], 0.0, steps), axis=-1))
        return jnp.sum(weights * product, axis=-1)

    @staticmethod
    def _spread(variance: Float[Array, "*batch C"]) -> Float[Array, "*batch C"]:
        """Standard deviations, none of which is zero: only their ratios matter. Without any the unit is that of `f`."""
        largest = lax.stop_gradient(jnp.max(variance, axis=-1, keepdims=True))
        return jnp.sqrt(variance + jnp.finfo(variance.dtype).eps * jnp.where(largest > 0, largest, 1.0))

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        largest, epsilon = self._largest(y, latent), like("epsilon", self.epsilon, y)
        return largest * jnp.log1p(-epsilon) + (1 - largest) * jnp.log(epsilon / (self.classes - 1))

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        largest, epsilon = self._largest(y, latent), like("epsilon", self.epsilon, y)
        return jnp.log(largest * (1 - epsilon) + (1 - largest) * epsilon / (self.classes - 1))

    def _mean(self, latent: Latent) -> Array:
        batch = latent.mean.shape[:-1]
        each = [self._largest(jnp.full(batch, c, latent.mean.dtype), latent) for c in range(self.classes)]
        return self._mix(jnp.stack(each, axis=-1))


@value_type(static=("classes",))
class Softmax(_OneEach):
    """Labels of ``C`` classes, ``p(y = c) = exp(f_c) / sum_j exp(f_j)``: latent functions may be correlated.

    Only differences of latent functions matter. For ``C <= 3`` every expectation is a product Gauss-Hermite
    rule over the ``C - 1`` differences. For ``C > 3``, ``expected_log_prob`` is Jensen's lower bound
    ``mu_y - logsumexp(mu + s / 2)``, so a bound built of it stays a bound but is looser. Predictive masses for
    ``C > 3`` average over 1024 quasi-random points, typically good to three digits.

    Parameters
    ----------
    classes : int
        Number C of classes, and of latent functions.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.likelihoods.Softmax(2).predictive_mean(jnp.zeros(2), jnp.ones(2)).round(4).tolist()
    [0.5, 0.5]
    """

    classes: int

    def __post_init__(self) -> None:
        check_count("classes", self.classes, minimum=2)

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Categorical with logits ``f``."""
        return dist.CategoricalLogits(jnp.asarray(f), validate_args=False)

    @staticmethod
    def _pick(values: Float[Array, "K *batch C"], label: Float[Array, "*batch"]) -> Float[Array, " K *batch"]:
        """Entry ``label`` of the last axis of ``values``."""
        chosen = jnp.broadcast_to(label.astype(int)[None, ..., None], (*values.shape[:-1], 1))
        return jnp.take_along_axis(values, chosen, axis=-1)[..., 0]

    def _log_masses(self, latent: Latent) -> tuple[Float[Array, "K *batch C"], Array]:
        """``log softmax`` at the nodes, and the weights of the nodes, ``(K, 1, ...)``."""
        mean, dtype = latent.mean, latent.mean.dtype
        if self.classes in SOFTMAX_NODES:
            nodes, weights = tensor_hermite(SOFTMAX_NODES[self.classes], self.classes - 1)
            # Mean and covariance of f_j - f_0 for j >= 1.
            variance, covariance = latent.variance, latent.covariance
            if covariance is None:
                spread = over_axes(jnp.diag, mean.ndim - 1)(variance[..., 1:]) + variance[..., :1, None]
            else:
                with_first = covariance[..., 1:, 0]
                spread = covariance[..., 1:, 1:] + covariance[..., :1, :1]
                spread = spread - with_first[..., :, None] - with_first[..., None, :]
            floor = 8.0 * jnp.finfo(spread.dtype).eps * (1.0 + jnp.max(variance, axis=-1))  # rounding of the largest
            spread += jax.lax.stop_gradient(floor)[..., None, None] * identity_like(spread)
            points = spread_points(mean[..., 1:] - mean[..., :1], small_cholesky(spread), nodes)
            points = jnp.concatenate([jnp.zeros_like(points[..., :1]), points], axis=-1)
        else:
            nodes, weights = quasi_normal(self.classes)
            points = latent_values(latent, nodes)
        return log_softmax(points, axis=-1), jnp.expand_dims(jnp.asarray(weights, dtype), range(1, mean.ndim))

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        if self.classes not in SOFTMAX_NODES:
            return self._pick(latent.mean[None], y)[0] - logsumexp(latent.mean + 0.5 * latent.variance, axis=-1)
        log_masses, weights = self._log_masses(latent)
        return jnp.sum(weights * self._pick(log_masses, y), axis=0)

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        log_masses, weights = self._log_masses(latent)
        chosen = self._pick(log_masses, y)
        return logsumexp(chosen, b=jnp.broadcast_to(weights, chosen.shape), axis=0)

    def _mean(self, latent: Latent) -> Array:
        log_masses, weights = self._log_masses(latent)
        return jnp.sum(weights[..., None] * jnp.exp(log_masses), axis=0)
