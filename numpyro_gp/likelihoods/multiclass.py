"""Likelihoods of labels with one latent function for each class (mathematics.md section 7.3)."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jax.nn import log_softmax
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Bool, Float

from numpyro_gp.arrays import Array, ArrayLike, over_axes, value_type
from numpyro_gp.checks import check_count, check_values, fail
from numpyro_gp.likelihoods.base import like
from numpyro_gp.likelihoods.classes import OfLabels
from numpyro_gp.likelihoods.log_normal_cdf import log_ndtr
from numpyro_gp.likelihoods.points import Latent, floored_factor, latent_factor, points_of
from numpyro_gp.likelihoods.rules import composite_rule, quasi_normal, spread_points, tensor_hermite

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

    def _moments(self, mean: ArrayLike, variance: ArrayLike, covariance: ArrayLike | None) -> Latent:
        if covariance is not None:
            cure = "Use Softmax, or an independent process for each class: gp(..., outputs=C)."
            fail("covariance", "None for RobustMax, which needs independent latent functions", "an array", cure)
        return super()._moments(mean, variance, covariance)

    def _mix(self, largest: Float[Array, "*batch C"]) -> Float[Array, "*batch C"]:
        epsilon = like("epsilon", self.epsilon, largest[..., 0])[..., None]
        return largest * (1 - epsilon) + (1 - largest) * epsilon / (self.classes - 1)

    def _largest(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        """``P = E_{f ~ N(mu_y, s_y)} prod_{j != y} ndtr((f - mu_j) / sqrt(s_j))``, logarithms multiplied as sums."""
        mean, scale = latent.mean, self._spread(latent.variance)
        own = jax.nn.one_hot(y.astype(int), self.classes, dtype=bool)
        parts = mean, scale, latent.variance
        mean_y, scale_y, variance_y = (jnp.sum(jnp.where(own, part, 0.0), axis=-1) for part in parts)
        if self.classes == 2:
            rival, variance = (jnp.sum(jnp.where(own, 0.0, part), axis=-1) for part in (mean, latent.variance))
            return ndtr((mean_y - rival) / self._spread((variance_y + variance)[..., None])[..., 0])
        z, weights = composite_rule(self._cuts(mean, scale, own, mean_y, scale_y))
        f = mean_y[..., None] + scale_y[..., None] * z
        steps = log_ndtr((f[..., None] - mean[..., None, :]) / scale[..., None, :])
        product = jnp.exp(jnp.sum(jnp.where(own[..., None, :], 0.0, steps), axis=-1))
        return jnp.sum(weights * product, axis=-1)

    @staticmethod
    def _spread(variance: Float[Array, "*batch C"]) -> Float[Array, "*batch C"]:
        """Standard deviations, none of which is zero: only their ratios matter. Without any the unit is that of `f`."""
        largest = lax.stop_gradient(jnp.max(variance, axis=-1, keepdims=True))
        return jnp.sqrt(variance + jnp.finfo(variance.dtype).eps * jnp.where(largest > 0, largest, 1.0))

    def _cuts(
        self,
        mean: Float[Array, "*batch C"],
        scale: Float[Array, "*batch C"],
        own: Bool[Array, "*batch C"],
        mean_y: Float[Array, "*batch"],
        scale_y: Float[Array, "*batch"],
    ) -> Float[Array, "*batch Q"]:
        """``(mu_j - mu_y) / sqrt(s_y) + sqrt(s_j / s_y) {0, ±2, ±6}`` for the strongest competitors j."""
        mean, scale, mean_y, scale_y = (lax.stop_gradient(part) for part in (mean, scale, mean_y, scale_y))
        strength = jnp.where(own, -jnp.inf, mean)
        _, rivals = lax.top_k(strength, min(self.classes - 1, RIVALS))
        centre = (jnp.take_along_axis(mean, rivals, axis=-1) - mean_y[..., None]) / scale_y[..., None]
        ratio = jnp.take_along_axis(scale, rivals, axis=-1) / scale_y[..., None]
        steps = jnp.expand_dims(jnp.asarray(np.array([-6.0, -2.0, 0.0, 2.0, 6.0]), mean.dtype), range(mean.ndim))
        return (centre[..., None] + ratio[..., None] * steps).reshape(*mean_y.shape, -1)

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
    ``mu_y - logsumexp(mu + s / 2)``, so a bound built of it stays a bound but is looser;
    `expected_log_prob_draws` is unbiased. Predictive masses for ``C > 3`` average over 1024 quasi-random points,
    typically good to three digits.

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

    def expected_log_prob_draws(
        self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike, z: ArrayLike, *, covariance: ArrayLike | None = None
    ) -> Array:
        """Unbiased Monte Carlo ``E log p``: the mean over standard normal draws ``z (K, ..., C)``."""
        label, latent = self._aligned(y, mean, variance, covariance)
        z = jnp.asarray(z, latent.mean.dtype)
        if z.ndim < 2 or z.shape[1:] != latent.mean.shape:
            shape = ", ".join(["K", *map(str, latent.mean.shape)])
            fail("z", f"of shape ({shape})", f"shape {z.shape}", "Draw z of that shape with jax.random.normal.")
        f = latent.mean[None] + jnp.sum(latent_factor(latent)[None] * z[..., None, :], axis=-1)
        return jnp.mean(self._pick(log_softmax(f, axis=-1), label), axis=0)

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
            difference, factor = self._differences(latent)
            points = spread_points(difference, factor, nodes)
            points = jnp.concatenate([jnp.zeros_like(points[..., :1]), points], axis=-1)
        else:
            nodes, weights = quasi_normal(self.classes)
            points = points_of(latent, nodes)
        return log_softmax(points, axis=-1), jnp.expand_dims(jnp.asarray(weights, dtype), range(1, mean.ndim))

    def _differences(self, latent: Latent) -> tuple[Float[Array, "*batch E"], Float[Array, "*batch E E"]]:
        """Mean and covariance factor of ``f_j - f_0`` for ``j >= 1``."""
        mean, variance, covariance = latent
        first, others = variance[..., :1, None], variance[..., 1:]
        if covariance is None:
            spread = over_axes(jnp.diag, mean.ndim - 1)(others) + first
        else:
            with_first = covariance[..., 1:, 0]
            spread = covariance[..., 1:, 1:] + covariance[..., :1, :1]
            spread = spread - with_first[..., :, None] - with_first[..., None, :]
        return mean[..., 1:] - mean[..., :1], floored_factor(spread, variance)

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
