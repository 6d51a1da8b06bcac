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
from numpyro_gp.beliefs.whitened import Whitened, agreement, derived, is_same_row, numbered
from numpyro_gp.checks import fail, known
from numpyro_gp.kernels import FunctionKernel, Kernel
from numpyro_gp.linalg import factorise, jittered

__all__ = [
    "AbstractBasis",
    "AbstractBelief",
    "Basis",
    "Joint",
    "Marginals",
    "Point",
    "Process",
    "positive",
]


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

    @abc.abstractmethod
    def white(self) -> tuple["AbstractBasis", Array]:
        """The site with white noise for its process, and inputs ``(M, D)`` at which that is the whitened values."""


@value_type(static=("at_inducing",))
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
    at_inducing : bool
        Whether `features` of ``inducing`` itself are read off the factor, as `GaussianProcess.at_inducing` asks.
    """

    kernel: Kernel
    inducing: Array
    factor: Array
    inverse: Array
    jitter: Array
    at_inducing: bool = False

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
        """``A = L^-1 k(Z, X)``, which is ``L^T - eps L^-1`` at the inducing points: no new Gram matrix, if so asked."""
        if self.at_inducing and X is self.inducing:
            return self.factor.T - self.jitter * self.inverse
        return self.inverse @ self.kernel.matrix(self.inducing, X)

    def diagonal(self, X: Array) -> Array:
        return self.kernel.diagonal(X)

    def matrix(self, X: Array) -> Array:
        return self.kernel.matrix(X)

    def white(self) -> tuple["Basis", Array]:
        labels = numbered(self.size, self.inducing)
        return self.white_at(labels), labels

    def white_at(self, labels: Array) -> "Basis":
        """White noise with inducing inputs ``labels`` ``(M, D)``: ``L = I``, no jitter, and so ``f(labels) = v``."""
        eye = jnp.eye(self.size, dtype=self.dtype)
        return Basis(FunctionKernel(is_same_row), labels, eye, eye, jnp.zeros((), self.dtype))


@runtime_checkable
class Process(Protocol):
    """A Gaussian process over inputs: what `GaussianProcess` needs of the value it holds."""

    def marginals(self, basis: Any, X: Array) -> Marginals:
        """Mean and variance at each row of X, without the mean function."""

    def joint(self, basis: Any, X: Array) -> Joint:
        """Mean and covariance over the rows of X, without the mean function."""


class AbstractBelief(abc.ABC):
    """A variational posterior over the whitened values of one site.

    A new posterior is a new subclass with `whitened_mean` and three methods; no model changes. All else follows
    from these; `whitened` and `draw_whitened` may be written out for speed.
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

    def whitened(self, basis: Any = None) -> Whitened:
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
            found = derived(self, basis)
            agrees = agreement(self, found, basis)
            if known(agrees) is None or known(agrees):
                return jax.tree.map(lambda leaf: jnp.where(agrees, leaf, jnp.nan), found)
        fail(
            "a belief that is asked for whitened values",
            "one over the inducing values, such as Coupled, or one that they follow from, with the site's basis",
            f"a {type(self).__name__} " + ("without it" if basis is None else "of another KL divergence"),
            "Draw functions or data with ngp.Posterior(...).predict.",
        )

    def is_whitened(self, basis: Any) -> Array:
        """Whether this is no more than a distribution of the whitened values, a draw of which is then a model's point.

        Then, and only then, is `kl` that of `whitened`: what a belief says about the function beyond ``p(f | v)``
        adds to its divergence.
        """
        # Traced, so that a belief without whitened values answers NaN, whose comparison is false, and does not refuse.
        return jax.jit(lambda: agreement(self, self.whitened(basis), basis))()

    def whitened_moments(self, basis: Any = None) -> tuple[Array, Array]:
        """Means and standard deviations of the whitened values, shaped as `whitened_mean`."""
        found = self.whitened(basis)
        return found.mean, jnp.sqrt(jnp.sum(found.scale_tril**2, axis=-1))

    @property
    def whitened_scale(self) -> Array:
        """Standard deviations of the whitened values, of beliefs that hold them."""
        return self.whitened_moments()[1]

    def draw_whitened(self, key: Array, sample_shape: tuple[int, ...] = (), basis: Any = None) -> Array:
        """Draws of the whitened values ``v``, shape ``sample_shape + self.shape``; ``basis`` as in `whitened`."""
        return self.whitened(basis).draw(key, sample_shape)

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


@value_type()
class Point:
    """The process given its whitened values: ``p(f | v)``, what HMC and Stein particles hold.

    ``v`` is ``(M,)``, or has output or batch axes on the left; then the result has them too.
    """

    v: Array

    def marginals(self, basis: AbstractBasis, X: Array) -> Marginals:
        """``A^T v`` and ``k_nn - |A_n|^2`` (mathematics.md section 8)."""
        prior, features = basis.diagonal(X), basis.features(X)
        variance = positive(prior - jnp.sum(features**2, axis=0), prior)
        mean = self.v @ features
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
