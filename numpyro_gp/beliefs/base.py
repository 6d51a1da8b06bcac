"""What a belief is: a variational posterior of one Gaussian process site.

A *belief* is a variational posterior held as a value: a pytree that knows its marginals, its joint
covariance and its KL divergence from the prior. To NumPyro it looks like the array of its whitened
mean, so traces, handlers and shape checks treat it as they treat a latent vector.
"""

import abc
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type
from numpyro_gp.beliefs.basis import AbstractBasis, Whitened, agreement, derived
from numpyro_gp.beliefs.members import over_members
from numpyro_gp.checks import fail, known
from numpyro_gp.linalg import cholesky, matmul, outer_square


class Marginals(NamedTuple):
    """What a belief says about each input by itself: mean and variance, with batch or output axes on the left.

    Attributes
    ----------
    mean, variance : Array (..., N)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.beliefs.Marginals(jnp.zeros(2), jnp.ones(2)).variance.shape
    (2,)
    """

    mean: Float[Array, "*batch N"]
    variance: Float[Array, "*batch N"]


class Joint(NamedTuple):
    """What a belief says about all inputs together: mean and covariance.

    Attributes
    ----------
    mean : Array (..., N)
    covariance : Array (..., N, N)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.beliefs.Joint(jnp.zeros(2), jnp.eye(2)).covariance.shape
    (2, 2)
    """

    mean: Float[Array, "*batch N"]
    covariance: Float[Array, "*batch N N"]


def above_rounding(variance: Float[Array, "*batch N"], scale: Array) -> Float[Array, "*batch N"]:
    """Keep a variance above rounding error of its largest term: ``k - |A|^2`` cancels next to an inducing point."""
    return jnp.maximum(variance, 4 * jnp.finfo(variance.dtype).eps * jnp.broadcast_to(scale, variance.shape))


@runtime_checkable
class Process(Protocol):
    """What `GaussianProcess` needs of the value it holds: marginals, and a joint distribution, at inputs.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> all(hasattr(ngp.beliefs.Point(jnp.zeros(2)), name) for name in ("marginals", "joint"))
    True
    """

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """Mean and variance at each row of X, without the mean function."""

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """Mean and covariance over the rows of X, without the mean function."""


class AbstractBelief(abc.ABC):
    """Base class of beliefs: a variational posterior over the whitened values of one site.

    A new posterior is a new subclass with `whitened_mean`, or a field ``mean`` for it, and three methods; no model
    changes. All else follows from these; `whitened` and `draw_whitened` may be written out for speed.
    All arrays get a leading axis P for a site with ``outputs=P``, and in plates the axes of these on the left of all.
    There, and where outputs have kernels of their own, methods are mapped over the members (`over_members`).

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> belief = ngp.beliefs.Coupled(jnp.zeros(2), 0.5 * jnp.eye(2))
    >>> basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    >>> mean, variance = belief.marginals(basis, jnp.array([[0.5]]))
    >>> mean.shape, variance.shape, round(float(belief.kl(basis)), 4)
    ((1,), (1,), 0.6363)
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for name in ("marginals", "joint", "kl", "whitened", "at"):
            if name in vars(cls):
                setattr(cls, name, over_members(vars(cls)[name]))

    mean: Any  # the field that `whitened_mean` shows, where a class does not say otherwise

    @property
    def whitened_mean(self) -> Float[Array, "*batch M"]:
        """The array this value looks like: mean of the whitened values, ``(M,)`` or ``(P, M)``."""
        if not hasattr(self, "mean"):
            cure = "Add one of the two: models/own_belief.py shows how."
            required = "of a class with a field mean or a property whitened_mean"
            fail("the belief", required, f"a {type(self).__name__} with neither", cure, TypeError)
        return self.mean

    @abc.abstractmethod
    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """Mean and variance of ``q(f(x_n))`` for rows of ``X`` ``(N, D)``: ``(N,)``, or ``(P, N)``."""

    @abc.abstractmethod
    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """Mean and covariance of ``q(f(X))``: ``(N,)`` and ``(N, N)``, with P on the left."""

    @abc.abstractmethod
    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``KL[q || p]``, a scalar, summed over outputs; never negative up to rounding."""

    # Whether the whitened values follow from the basis of the moment: `at` then says what they are.
    reads_basis = False

    @property
    def holds_whitened(self) -> bool:
        """Whether `whitened` does without a basis."""
        return not self.reads_basis and type(self).whitened is not AbstractBelief.whitened

    def given(self, values: Mapping[str, object], coordinates: Array | None = None) -> "AbstractBelief":  # noqa: ARG002
        """What it is at values of the other sites of its guide: itself, but for beliefs that follow one of them."""
        return self

    def in_plate(self, batch: Shape) -> "AbstractBelief":  # noqa: ARG002
        """What it is in plates of these sizes: itself, but for beliefs that look at more rows than a plate holds."""
        return self

    def at(self, basis: AbstractBasis) -> "AbstractBelief":  # noqa: ARG002
        """What it is on a basis, in whitened values: itself, but for beliefs that follow from their basis."""
        return self

    def ready(self, basis: AbstractBasis) -> "AbstractBelief":  # noqa: ARG002
        """The same belief, with what its marginals and its KL divergence at a basis share, such as factors."""
        return self

    @over_members
    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:
        """The normal distribution ``q(v)`` of the whitened values.

        Derived from `joint` on a white process, whose values are ``v`` (`AbstractBasis.white`): ``A = I`` and
        ``cov f = k - I + S``. A belief that depends on the kernel in other ways than through the features
        (a mean basis of its own) has another `kl` than the ``N(m, S)`` so found, and is refused, or NaN where
        it is traced.

        Parameters
        ----------
        basis : AbstractBasis
            That of the site; beliefs that hold ``q(v)`` itself do without.
        """
        if basis is not None:
            white, labels = basis.white()
            whitened = derived(*self.ready(white).joint(white, labels), white.matrix(labels))
            agrees = agreement(self.kl(basis), whitened)
            if known(agrees) is None or known(agrees):
                return Whitened(*(jnp.where(agrees, values, jnp.nan) for values in whitened))
        required = "one over the inducing values, such as Coupled, or one that they follow from, with the site's basis"
        got = f"a {type(self).__name__} " + ("without it" if basis is None else "of another KL divergence")
        cure = "Draw functions or data with ngp.Posterior(...).predict."
        fail("a belief that is asked for whitened values", required, got, cure)

    def is_whitened(self, basis: AbstractBasis) -> Bool[Array, ""]:
        """Whether this is no more than a distribution of the whitened values, a draw of which is then a model's point.

        Then, and only then, is `kl` that of `whitened`: what a belief says about the function beyond ``p(f | v)``
        adds to its divergence.
        """
        # Traced, so that a belief without whitened values answers NaN, whose comparison is false, and does not refuse.
        return jax.jit(lambda: agreement(self.kl(basis), self.whitened(basis)))()

    def whitened_moments(self, basis: AbstractBasis | None = None) -> tuple[Array, Array]:
        """Means and standard deviations of the whitened values, shaped as `whitened_mean`."""
        whitened = self.whitened(basis)
        return whitened.mean, jnp.sqrt(jnp.sum(whitened.scale_tril**2, axis=-1))

    def draw_whitened(self, key: Array, sample_shape: Shape = (), basis: AbstractBasis | None = None) -> Array:
        """Draws of the whitened values ``v``, shape ``sample_shape + self.shape``; ``basis`` as in `whitened`."""
        return self.whitened(basis).draw(key, sample_shape)

    # What NumPyro looks at when it takes this value for an array.
    @property
    def shape(self) -> Shape:
        """Shape of the whitened values."""
        return self.whitened_mean.shape

    @property
    def ndim(self) -> int:
        """Number of axes of the whitened values."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of whitened values."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """Floating point type."""
        return self.whitened_mean.dtype

    def __jax_array__(self) -> Array:
        return self.whitened_mean


def taken_back(
    covariance: Float[Array, "*batch N N"], left: Float[Array, "*#batch M M"] | None, features: Float[Array, "M N"]
) -> Float[Array, "*batch N N"]:
    """A covariance less ``(R^T A)^T (R^T A)``, what a jitter leaves of it (`AbstractBasis.left_by_jitter`)."""
    if left is None:
        return covariance
    return covariance - outer_square(matmul(features.T, left))


@value_type()
class Point:
    """The process given its whitened values, ``p(f | v)``: what HMC and Stein particles hold.

    Where ``v`` has output or batch axes on the left, the result has them too.

    Parameters
    ----------
    whitened : Array (..., M)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    >>> ngp.beliefs.Point(jnp.zeros(2)).marginals(basis, jnp.zeros((3, 1))).mean.shape
    (3,)
    """

    v: Float[Array, "*batch M"]

    @over_members
    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T v`` and ``k_nn - |A_n|^2`` (mathematics.md section 8), less ``|R^T A_n|^2`` in predictions."""
        prior, left = basis.diagonal(X), basis.left_by_jitter()
        cross = None if left is None else basis.cross(X)
        if left is None or cross is None:
            features = basis.features(X)
            mean = matmul(self.v, features)
            rooted = features if left is None else jnp.concatenate([features, matmul(left.T, features)])
        else:  # one product over the rows: A^T (I + R R^T) A = |U^T W k|^2
            both = cholesky(jnp.eye(len(left), dtype=left.dtype) + matmul(left, left.T))
            rooted = matmul(matmul(both.T, cross.inverse), cross.values)
            mean = matmul(matmul(self.v, cross.inverse), cross.values)
        variance = above_rounding(prior - jnp.sum(rooted**2, axis=0), prior)
        return Marginals(mean, jnp.broadcast_to(variance, mean.shape))

    @over_members
    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """``A^T v`` and ``k(X, X) - A^T A``, less ``(R^T A)^T (R^T A)`` in predictions."""
        features, left = basis.features(X), basis.left_by_jitter()
        mean = matmul(self.v, features)
        covariance = taken_back(basis.matrix(X) - matmul(features.T, features), left, features)
        return Joint(mean, jnp.broadcast_to(covariance, mean.shape + mean.shape[-1:]))


# --------------------------------------------------------------------------------------
# A mask over a site whose value may be a belief.


class MaskedPrior(dist.Distribution):
    """The log density of ``base_dist`` where ``shown`` is true, and zero elsewhere, whatever the value is.

    `numpyro.distributions.MaskedDistribution` puts other numbers into the hidden places of the value, by array
    arithmetic that makes the mean of a belief, a point, and its KL divergence would be lost. Here nothing need be
    hidden: whitened values and beliefs are finite everywhere.
    """

    pytree_data_fields = ("base_dist", "shown")
    has_rsample = True

    def __init__(self, base_dist: dist.Distribution, shown: ArrayLike) -> None:
        batch = jnp.broadcast_shapes(base_dist.batch_shape, jnp.shape(shown))
        self.base_dist = base_dist.expand(batch)
        self.shown = shown
        super().__init__(batch, base_dist.event_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return self.base_dist.support

    @property
    def mean(self) -> Array:
        return self.base_dist.mean

    @property
    def variance(self) -> Array:
        return self.base_dist.variance

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        return self.base_dist.sample(key, sample_shape)

    rsample = sample

    def log_prob(self, value: object, intermediates: object = None) -> Array:  # noqa: ARG002
        return jnp.where(self.shown, self.base_dist.log_prob(value), 0)

    def mask(self, mask: ArrayLike) -> dist.Distribution:
        """Both masks at once."""
        return MaskedPrior(self.base_dist, jnp.asarray(self.shown) & mask)
