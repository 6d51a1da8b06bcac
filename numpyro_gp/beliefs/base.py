"""What a belief is, and what it stands on: the basis of inducing points of one Gaussian process site.

A *belief* is a variational posterior held as a value: a pytree that knows its marginals, its joint
covariance and its KL divergence from the prior. To NumPyro it looks like the array of its whitened
mean, so traces, handlers and shape checks treat it as they treat a latent vector.
"""

import abc
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.checks import fail
from numpyro_gp.kernels import Kernel
from numpyro_gp.linalg import factorise, jittered

__all__ = ["AbstractBasis", "AbstractBelief", "Basis", "Joint", "Marginals", "Point", "Process", "positive"]


class Marginals(NamedTuple):
    """Mean and variance at each input, both ``(..., N)`` with batch or output axes on the left."""

    mean: Array
    variance: Array


class Joint(NamedTuple):
    """Mean ``(..., N)`` and covariance ``(..., N, N)`` over all inputs together."""

    mean: Array
    covariance: Array


def positive(variance: Array, scale: Array) -> Array:
    """Keep a variance above rounding error of its largest term: ``k - |A|^2`` cancels next to an inducing point."""
    return jnp.maximum(variance, 4 * jnp.finfo(variance.dtype).eps * jnp.broadcast_to(scale, variance.shape))


class AbstractBasis(abc.ABC):
    """What beliefs ask of a site: whitened features of inputs and the prior covariance.

    A single GP (`Basis`) and the stacked components of an additive model answer alike, so a
    belief written for whitened values serves both.
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number M of whitened values."""

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """Floating point type of the factors."""

    @abc.abstractmethod
    def features(self, X: Array) -> Array:
        """``A = L^-1 k(Z, X)``, shape ``(M, N)`` (mathematics.md section 1.2)."""

    @abc.abstractmethod
    def diagonal(self, X: Array) -> Array:
        """Prior variance ``k(x_n, x_n)``, shape ``(N,)``."""

    @abc.abstractmethod
    def matrix(self, X: Array) -> Array:
        """Prior covariance ``k(X, X)``, shape ``(N, N)``."""


@value_type()
class Basis(AbstractBasis):
    """Inducing points of one GP with the single factorisation that a step makes of them.

    Attributes
    ----------
    kernel : Kernel
    inducing : Array (M, D)
    factor : Array (M, M)
        ``L`` with ``L L^T = k(Z, Z) + eps I``.
    inverse : Array (M, M)
        ``L^-1``.
    jitter : Array ()
        ``eps``. It is part of the model: ``u = L v`` is a noisy copy of ``f(Z)`` (mathematics.md section 1.3).
    """

    kernel: Kernel
    inducing: Array
    factor: Array
    inverse: Array
    jitter: Array

    @classmethod
    def build(cls, kernel: Kernel, inducing: Array, jitter: float | None = None) -> "Basis":
        """Factorise ``k(Z, Z)``, with a jitter relative to its mean diagonal."""
        matrix, amount = jittered(kernel.matrix(inducing), jitter)
        return cls(kernel, inducing, *factorise(matrix), amount)

    @property
    def size(self) -> int:
        return self.inducing.shape[0]

    @property
    def dtype(self) -> Any:
        return self.factor.dtype

    def features(self, X: Array) -> Array:
        """``A = L^-1 k(Z, X)``; at the inducing points themselves ``A = L^T - eps L^-1``, with no new Gram matrix."""
        if X is self.inducing:
            return self.factor.T - self.jitter * self.inverse
        return self.inverse @ self.kernel.matrix(self.inducing, X)

    def diagonal(self, X: Array) -> Array:
        return self.kernel.diagonal(X)

    def matrix(self, X: Array) -> Array:
        return self.kernel.matrix(X)


@runtime_checkable
class Process(Protocol):
    """A Gaussian process over inputs: what `GaussianProcess` needs of the value it holds."""

    def marginals(self, basis: Any, X: Array) -> Marginals:
        """Mean and variance at each row of X, without the mean function."""

    def joint(self, basis: Any, X: Array) -> Joint:
        """Mean and covariance over the rows of X, without the mean function."""


class AbstractBelief(abc.ABC):
    """A variational posterior over the whitened values of one site.

    A new posterior is a new subclass with `whitened_mean` and three methods; no model changes.
    All arrays get a leading axis P for a site with ``outputs=P``.
    """

    @property
    @abc.abstractmethod
    def whitened_mean(self) -> Array:
        """The array this value looks like: mean of the whitened values, ``(M,)`` or ``(P, M)``."""

    @abc.abstractmethod
    def marginals(self, basis: Any, X: Array) -> Marginals:
        """Mean and variance of ``q(f(x_n))`` for rows of ``X`` ``(N, D)``: ``(N,)``, or ``(P, N)``."""

    @abc.abstractmethod
    def joint(self, basis: Any, X: Array) -> Joint:
        """Mean and covariance of ``q(f(X))``: ``(N,)`` and ``(N, N)``, with P on the left."""

    @abc.abstractmethod
    def kl(self, basis: Any) -> Array:
        """``KL[q || p]``, a scalar, summed over outputs; never negative up to rounding."""

    @property
    def whitened_scale(self) -> Array:
        """Standard deviations of the whitened values, shaped as `whitened_mean` (zero where none is held)."""
        return jnp.zeros_like(self.whitened_mean)

    def whitened_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the whitened values; beliefs that are not about them refuse."""
        return self.whitened_mean, self.whitened_scale

    def draw_whitened(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the whitened values ``v``, shape ``sample_shape + self.shape``."""
        noise = jax.random.normal(key, sample_shape + self.shape, self.dtype)
        lead = (None,) * len(sample_shape)
        return self.whitened_mean[lead] + self.whitened_scale[lead] * noise

    # What NumPyro looks at when it takes this value for an array.
    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whitened values."""
        return self.whitened_mean.shape

    @property
    def ndim(self) -> int:
        """Number of axes of the whitened values."""
        return self.whitened_mean.ndim

    @property
    def size(self) -> int:
        """Number of whitened values."""
        return self.whitened_mean.size

    @property
    def dtype(self) -> Any:
        """Floating point type."""
        return self.whitened_mean.dtype

    def __jax_array__(self) -> Array:
        return self.whitened_mean

    def __mul__(self, other: Any) -> Array:
        # NumPyro follows which sites depend on which by computing with their values (TraceGraph_ELBO).
        return self.whitened_mean * other

    __rmul__ = __mul__


@value_type()
class Point:
    """The process given its whitened values: ``p(f | v)``, what HMC and Stein particles hold.

    ``v`` is ``(M,)``, or has output or batch axes on the left; then the result has them too.
    """

    v: Array

    def marginals(self, basis: AbstractBasis, X: Array) -> Marginals:
        """``A^T v`` and ``k_nn - |A_n|^2`` (mathematics.md section 8)."""
        prior = basis.diagonal(X)
        if isinstance(basis, Basis) and X is basis.inducing:
            return self._marginals_at_inducing(basis, prior)
        features = basis.features(X)
        variance = positive(prior - jnp.sum(features**2, axis=0), prior)
        mean = self.v @ features
        return Marginals(mean, jnp.broadcast_to(variance, mean.shape))

    def _marginals_at_inducing(self, basis: Basis, prior: Array) -> Marginals:
        """The short path ``X is Z``: ``A = L^T - eps L^-1`` needs two products with a vector and no features.

        The variance ``eps - eps^2 (K + eps I)^-1_nn`` is replaced by its upper bound ``eps``, which
        keeps every bound a bound and saves the inverse.
        """
        mean = self.v @ basis.factor.T - basis.jitter * (self.v @ basis.inverse)
        variance = positive(jnp.broadcast_to(basis.jitter, prior.shape), prior)
        return Marginals(mean, jnp.broadcast_to(variance, mean.shape))

    def joint(self, basis: AbstractBasis, X: Array) -> Joint:
        """``A^T v`` and ``k(X, X) - A^T A``."""
        features = basis.features(X)
        mean = self.v @ features
        covariance = basis.matrix(X) - features.T @ features
        return Joint(mean, jnp.broadcast_to(covariance, mean.shape + mean.shape[-1:]))


def check_belief(site: str, belief: AbstractBelief, shape: tuple[int, ...]) -> None:
    """Refuse a belief whose whitened values do not fit its site."""
    if tuple(belief.shape) != tuple(shape):
        fail(
            f"the belief at site {site!r}",
            f"over whitened values of shape {tuple(shape)} (inducing points last, outputs before them)",
            f"{type(belief).__name__} over shape {tuple(belief.shape)}",
            "Build it for the site's own inducing points and outputs.",
        )
