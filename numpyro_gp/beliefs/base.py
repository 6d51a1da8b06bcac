"""What a belief is, and what it stands on: the basis of inducing points of one Gaussian process site.

A *belief* is a variational posterior held as a value: a pytree that knows its marginals, its joint
covariance and its KL divergence from the prior. To NumPyro it looks like the array of its whitened
mean, so traces, handlers and shape checks treat it as they treat a latent vector.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.beliefs.whitened import Whitened, agreement, derived, is_same_row, numbered
from numpyro_gp.checks import fail, known
from numpyro_gp.kernels import FunctionKernel, Kernel
from numpyro_gp.linalg import factorise, jittered, product

__all__ = [
    "AbstractBasis",
    "AbstractBelief",
    "Basis",
    "Cross",
    "Joint",
    "Marginals",
    "OutputsBasis",
    "Point",
    "Process",
    "output_axes",
    "positive",
]


class Marginals(NamedTuple):
    """Mean and variance at each input, with batch or output axes on the left."""

    mean: Float[Array, "*batch N"]
    variance: Float[Array, "*batch N"]


class Joint(NamedTuple):
    """Mean and covariance over all inputs together."""

    mean: Float[Array, "*batch N"]
    covariance: Float[Array, "*batch N N"]


class Cross(NamedTuple):
    """What features are made of, ``A = W k(Z, X)``, and the matrix that ``W`` is the inverse factor of."""

    inverse: Float[Array, "M M"]
    gram: Float[Array, "M M"]
    values: Float[Array, "M N"]


def positive(variance: Float[Array, "*batch N"], scale: Array) -> Float[Array, "*batch N"]:
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
    def dtype(self) -> np.dtype:
        """Floating point type of the factors."""

    @abc.abstractmethod
    def features(self, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """``A = L^-1 k(Z, X)`` (mathematics.md section 1.2)."""

    def cross(self, X: Float[Array, "N D"]) -> Cross | None:  # noqa: ARG002
        """The two parts of `features`, for forms that never make them; None where they have no such parts."""
        return None

    @abc.abstractmethod
    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Prior variance ``k(x_n, x_n)``."""

    @abc.abstractmethod
    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        """Prior covariance ``k(X, X)``."""

    @abc.abstractmethod
    def white(self) -> tuple["AbstractBasis", Float[Array, "M D"]]:
        """The site with white noise for its process, and inputs at which that is the whitened values."""


@value_type(static=("at_inducing", "is_noisy"))
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
    jitter : Array () or (M,)
        ``eps``. It is part of the model: ``u = L v`` is a noisy copy of ``f(Z)`` (mathematics.md section 1.3). For
        `gp_regression` at its data it is the variance of their noise.
    gram : Array (M, M)
        ``k(Z, Z) + eps I`` itself, which derivatives of `whitened_marginals` are taken in.
    at_inducing : bool
        Whether `features` of ``inducing`` itself are read off the factor.
    is_noisy : bool
        Whether the process at ``inducing`` itself is ``u = L v``, the jitter being part of the kernel there, as
        `GaussianProcess.at_inducing` asks: features ``L^T``, prior variance ``k + eps``, nothing left to chance.
    """

    kernel: Kernel
    inducing: Array
    factor: Array
    inverse: Array
    jitter: Array
    gram: Array
    at_inducing: bool = False
    is_noisy: bool = False

    @classmethod
    def build(cls, kernel: Kernel, inducing: Array, jitter: float | None = None) -> "Basis":
        """Factorise ``k(Z, Z)``, with a jitter relative to its mean diagonal."""
        matrix, amount = jittered(kernel.matrix(inducing), jitter)
        return cls(kernel, inducing, *factorise(matrix), amount, matrix)

    @property
    def size(self) -> int:
        return self.inducing.shape[0]

    @property
    def dtype(self) -> np.dtype:
        return self.factor.dtype

    def features(self, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """``A = L^-1 k(Z, X)``, which is ``L^T - eps L^-1`` at the inducing points: no new Gram matrix, if so asked."""
        if self.at_inducing and X is self.inducing:
            change = 0.0 if self.is_noisy else self.inverse * jnp.broadcast_to(self.jitter, self.inverse.shape)
            return self.factor.T - change
        return product(self.inverse, self.kernel.matrix(self.inducing, X))

    def cross(self, X: Float[Array, "N D"]) -> Cross | None:
        """None at the inducing points themselves, whose features are read off the factor."""
        if self.at_inducing and X is self.inducing:
            return None
        return Cross(self.inverse, self.gram, self.kernel.matrix(self.inducing, X))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        variance = self.kernel.diagonal(X)
        return variance + self.jitter if self.is_noisy and X is self.inducing else variance

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        return self.kernel.matrix(X)

    def white(self) -> tuple["Basis", Float[Array, "M D"]]:
        labels = numbered(self.size, self.inducing)
        return self.white_at(labels), labels

    def white_at(self, labels: Float[Array, "M D"]) -> "Basis":
        """White noise with inducing inputs ``labels``: ``L = I``, no jitter, and so ``f(labels) = v``."""
        eye = jnp.eye(self.size, dtype=self.dtype)
        return Basis(FunctionKernel(is_same_row), labels, eye, eye, jnp.zeros((), self.dtype), eye)


@value_type()
class OutputsBasis(AbstractBasis):
    """P processes with kernels of their own, or inducing inputs: a `Basis` whose leaves have a leading axis P.

    Features are ``(P, M, N)`` and covariances ``(P, N, N)``. A belief is written for one kernel: here each method is
    mapped over the outputs (`over_outputs`).
    """

    members: Basis

    @classmethod
    def build(cls, kernel: Kernel, inducing: Array, jitter: float | None, is_batch: bool) -> "OutputsBasis":
        """Factorise the Gram matrix of each output; one kernel may serve all, and so may inputs ``(M, D)``."""
        axes = (0 if is_batch else None, 0 if inducing.ndim == 3 else None)
        return cls(jax.vmap(lambda own, points: Basis.build(own, points, jitter), in_axes=axes)(kernel, inducing))

    @property
    def size(self) -> int:
        return self.members.inducing.shape[-2]

    @property
    def dtype(self) -> np.dtype:
        return self.members.dtype

    def features(self, X: Float[Array, "N D"]) -> Float[Array, "P M N"]:
        features: Array = jax.vmap(lambda one: one.features(X))(self.members)
        return features

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "P N"]:
        diagonal: Array = jax.vmap(lambda one: one.diagonal(X))(self.members)
        return diagonal

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "P N N"]:
        matrix: Array = jax.vmap(lambda one: one.matrix(X))(self.members)
        return matrix

    def white(self) -> tuple[Basis, Float[Array, "M D"]]:
        first: Basis = jax.tree.map(lambda leaf: leaf[0], self.members)
        return first.white()


def over_outputs(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of one process and its basis; at a batch of processes, mapped over the outputs of both.

    Arrays have the outputs on their first axis, but for the fields named ``Z_...``, ``columns`` and ``weight``, which
    all outputs share. A KL divergence is summed.
    """

    @functools.wraps(method)
    def mapped(self: Any, basis: Any = None, *arguments: Any) -> Any:
        if not isinstance(basis, OutputsBasis):
            return method(self, basis, *arguments)
        axes = (output_axes(self), 0)
        each = jax.vmap(lambda own, one: method(own, one, *arguments), in_axes=axes)(self, basis.members)
        return jnp.sum(each) if method.__name__ == "kl" else each

    return mapped


def output_axes(process: Any) -> Any:
    """For ``vmap``: where the outputs are in each array of a belief or a point."""

    def axis(path: tuple[Any, ...], _: Array) -> int | None:
        names = [str(key).lstrip(".") for key in path]
        return None if any(name.startswith("Z_") or name in ("columns", "weight") for name in names) else 0

    return jax.tree_util.tree_map_with_path(axis, process)


@runtime_checkable
class Process(Protocol):
    """A Gaussian process over inputs: what `GaussianProcess` needs of the value it holds."""

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """Mean and variance at each row of X, without the mean function."""

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """Mean and covariance over the rows of X, without the mean function."""


class AbstractBelief(abc.ABC):
    """A variational posterior over the whitened values of one site.

    A new posterior is a new subclass with `whitened_mean` and three methods; no model changes. All else follows
    from these; `whitened` and `draw_whitened` may be written out for speed.
    All arrays get a leading axis P for a site with ``outputs=P``. Where each output has a kernel of its own the
    methods of a subclass are mapped over them (`over_outputs`).
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("marginals", "joint", "kl"):
            if name in vars(cls):
                setattr(cls, name, over_outputs(vars(cls)[name]))

    @property
    @abc.abstractmethod
    def whitened_mean(self) -> Float[Array, "*batch M"]:
        """The array this value looks like: mean of the whitened values, ``(M,)`` or ``(P, M)``."""

    @abc.abstractmethod
    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """Mean and variance of ``q(f(x_n))`` for rows of ``X`` ``(N, D)``: ``(N,)``, or ``(P, N)``."""

    @abc.abstractmethod
    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """Mean and covariance of ``q(f(X))``: ``(N,)`` and ``(N, N)``, with P on the left."""

    @abc.abstractmethod
    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """``KL[q || p]``, a scalar, summed over outputs; never negative up to rounding."""

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
            found = derived(*self.joint(white, labels), white.matrix(labels))
            agrees = agreement(self.kl(basis), found)
            if known(agrees) is None or known(agrees):
                return Whitened(*(jnp.where(agrees, values, jnp.nan) for values in found))
        fail(
            "a belief that is asked for whitened values",
            "one over the inducing values, such as Coupled, or one that they follow from, with the site's basis",
            f"a {type(self).__name__} " + ("without it" if basis is None else "of another KL divergence"),
            "Draw functions or data with ngp.Posterior(...).predict.",
        )

    def is_whitened(self, basis: AbstractBasis) -> Bool[Array, ""]:
        """Whether this is no more than a distribution of the whitened values, a draw of which is then a model's point.

        Then, and only then, is `kl` that of `whitened`: what a belief says about the function beyond ``p(f | v)``
        adds to its divergence.
        """
        # Traced, so that a belief without whitened values answers NaN, whose comparison is false, and does not refuse.
        answer: Array = jax.jit(lambda: agreement(self.kl(basis), self.whitened(basis)))()
        return answer

    def whitened_moments(self, basis: AbstractBasis | None = None) -> tuple[Array, Array]:
        """Means and standard deviations of the whitened values, shaped as `whitened_mean`."""
        found = self.whitened(basis)
        return found.mean, jnp.sqrt(jnp.sum(found.scale_tril**2, axis=-1))

    @property
    def whitened_scale(self) -> Float[Array, "*batch M"]:
        """Standard deviations of the whitened values, of beliefs that hold them."""
        return self.whitened_moments()[1]

    def draw_whitened(
        self, key: Array, sample_shape: tuple[int, ...] = (), basis: AbstractBasis | None = None
    ) -> Array:
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
    def dtype(self) -> np.dtype:
        """Floating point type."""
        return self.whitened_mean.dtype

    def __jax_array__(self) -> Array:
        return self.whitened_mean


@value_type()
class Point:
    """The process given its whitened values: ``p(f | v)``, what HMC and Stein particles hold.

    Where ``v`` has output or batch axes on the left, the result has them too.
    """

    v: Float[Array, "*batch M"]

    @over_outputs
    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """``A^T v`` and ``k_nn - |A_n|^2`` (mathematics.md section 8)."""
        prior, features = basis.diagonal(X), basis.features(X)
        variance = positive(prior - jnp.sum(features**2, axis=0), prior)
        mean = self.v @ features
        return Marginals(mean, jnp.broadcast_to(variance, mean.shape))

    @over_outputs
    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """``A^T v`` and ``k(X, X) - A^T A``."""
        features = basis.features(X)
        mean = self.v @ features
        covariance = basis.matrix(X) - features.T @ features
        return Joint(mean, jnp.broadcast_to(covariance, mean.shape + mean.shape[-1:]))


def check_belief(site: str, belief: AbstractBelief, shape: tuple[int, ...]) -> None:
    """Refuse a belief whose whitened values do not fit its site."""
    if tuple(belief.shape) != tuple(shape):
        required = f"over whitened values of shape {tuple(shape)} (inducing points last, outputs before them)"
        got = f"{type(belief).__name__} over shape {tuple(belief.shape)}"
        fail(f"the belief at site {site!r}", required, got, "Build it for the site's own inducing points and outputs.")
