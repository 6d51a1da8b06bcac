"""What a belief stands on: the inducing points of one Gaussian process, or of several side by side, factorised."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from numpyro_gp.arrays import Array, Shape, over_axes, value_type
from numpyro_gp.beliefs.products import lower_congruence
from numpyro_gp.checks import fail
from numpyro_gp.kernels import FunctionKernel, Kernel
from numpyro_gp.kernels.functionals import OfFunctionals
from numpyro_gp.kernels.jitter import steady
from numpyro_gp.kernels.members import batch_shape
from numpyro_gp.linalg import cholesky, einsum, flipped, half_log_det, matmul, moved, nothing, product

# --------------------------------------------------------------------------------------
# The normal distribution of the whitened values, and how it follows from what a belief says about the function.
#
# A belief need not hold ``q(v)``: on a white process, ``f(x_i) = v_i``, its `joint` is that distribution. A belief
# that says more about the function than ``q(v) p(f | v)`` is known by its divergence: by the chain rule it is the
# larger.


def covariance_kl(factor: Float[Array, "*batch M M"]) -> Float[Array, ""]:
    """``kl(C) = (|C|_F^2 - M)/2 - sum_i log C_ii``, summed over leading axes (mathematics.md section 3.1)."""
    return 0.5 * (jnp.sum(factor**2) - factor.size / factor.shape[-1]) - jnp.sum(half_log_det(factor))


class Whitened(NamedTuple):
    """A normal distribution of whitened values: mean and lower factor, outputs first."""

    mean: Float[Array, "*batch M"]
    scale_tril: Float[Array, "*batch M M"]

    def kl(self) -> Float[Array, ""]:
        """``|m|^2/2 + kl(C)``, the divergence from ``N(0, I)``, summed over outputs."""
        return 0.5 * jnp.sum(self.mean**2) + covariance_kl(self.scale_tril)

    def draw(self, key: Array, sample_shape: Shape = ()) -> Array:
        """Draws of the values, shape ``sample_shape + mean.shape``."""
        noise = jax.random.normal(key, sample_shape + self.mean.shape, self.mean.dtype)
        lead = (None,) * len(sample_shape)
        return self.mean[lead] + einsum("...ij,...j->...i", self.scale_tril[lead], noise)


def numbered(size: int, inputs: Float[Array, "M D"]) -> Float[Array, "{size} D"]:
    """Inputs, each row full of its number."""
    return jnp.broadcast_to(jnp.arange(size, dtype=inputs.dtype)[:, None], (size, inputs.shape[-1]))


def is_same_row(X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
    """The kernel of white noise over such inputs."""
    return (X1[:, None, 0] == X2[None, :, 0]).astype(X1.dtype)


def derived(
    mean: Float[Array, "*batch M"], covariance: Float[Array, "*batch M M"], prior: Float[Array, "M M"]
) -> Whitened:
    """``m`` and ``chol S`` of a belief about whitened values alone, from its joint on the white process.

    There the prior covariance is ``C I`` for an additive site of C components, whose values are among them:
    ``cov f = C I - I + S`` (mathematics.md section 3.5).
    """
    eye = jnp.eye(prior.shape[0], dtype=covariance.dtype)
    change = (prior - eye)[(None,) * (covariance.ndim - 2)]
    rounded = 0.5 * (covariance + jnp.swapaxes(covariance, -1, -2)) - change
    # Rounding of values near one, which may have made the smallest eigenvalues of S negative.
    floor = 8 * jnp.finfo(rounded.dtype).eps * eye[(None,) * (covariance.ndim - 2)]
    return Whitened(mean, cholesky(rounded + floor))


def agreement(kl: Float[Array, "*batch"], whitened: Whitened) -> Bool[Array, ""]:
    """Whether the KL divergence of a belief, or of all members, is that of its whitened values, up to rounding."""
    kl = jnp.sum(kl)
    slack = jnp.sqrt(jnp.finfo(kl.dtype).eps) * (whitened.mean.size + jnp.abs(kl))
    return jnp.abs(whitened.kl() - kl) <= slack


Pytree = TypeVar("Pytree")


class Cross(NamedTuple):
    """What features are made of, ``A = W k(Z, X)``, and how ``W`` moves: ``dW = -Phi(d turn) W`` (`Frame`)."""

    inverse: Float[Array, "M M"]
    turn: Float[Array, "M M"]
    values: Float[Array, "M N"]


class Frame(NamedTuple):
    """What the whitened values are in: ``u = level + L v``.

    ``turn`` is zero and its lower triangle has the derivative ``W dK W^T``, so that ``dL = L Phi(d turn)``: for rules
    that are written in it and pass ``L`` and ``W`` by.
    """

    factor: Float[Array, "M M"]
    inverse: Float[Array, "M M"]
    turn: Float[Array, "M M"]


@jax.custom_jvp
def turn_of(gram: Float[Array, "M M"], inverse: Float[Array, "M M"]) -> Float[Array, "M M"]:  # noqa: ARG001
    """Zero, whose lower triangle has the derivative ``W dK W^T`` (`Frame`)."""
    return nothing(gram)


@turn_of.defjvp
def _turn_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return turn_of(*primals), lower_congruence(primals[1], tangents[0])


@jax.custom_jvp
def features_but_turned(
    gram: Float[Array, "M M"],  # noqa: ARG001
    inverse: Float[Array, "M M"],
    cross: Float[Array, "M N"],
) -> Float[Array, "M N"]:
    """``A = W k``, with the derivative of its rows turned: right for what is a function of ``A^T A``, and only there.

    ``dA = W (dk - dK W^T A / 2)``. That of ``W`` itself has ``W dK W^T``, in which single precision leaves no digits
    where ``K`` is nearly singular: slopes by precise data were then of any size. Here ``dK`` and ``dk`` are subtracted
    before ``W`` makes differences of them large (mathematics.md section 3.3).
    """
    return matmul(inverse, cross)


@features_but_turned.defjvp
def _features_but_turned_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    (_, inverse, cross), (gram_dot, _, cross_dot) = primals, tangents
    features = matmul(inverse, cross)  # no call of itself: a second derivative turns with that of ``W``
    half = matmul(0.25 * (gram_dot + gram_dot.T), flipped(inverse))
    return features, moved(inverse, cross_dot - matmul(half, features))


class AbstractBasis(abc.ABC):
    """What beliefs ask of a site: whitened features of inputs and the prior covariance.

    A single GP (`Basis`) and the stacked components of an additive model answer alike, so a
    belief written for whitened values serves both.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    >>> isinstance(basis, ngp.beliefs.AbstractBasis), basis.size
    (True, 2)
    """

    level: Array | None = None  # mean function at the inducing inputs, ``(M,)`` or ``(P, M)``; None is zero

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

    def features_for_squares(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "M N"], Float[Array, "M N"]]:
        """`features`, and the same for what is a function of ``A^T A`` alone (`features_but_turned`)."""
        features = self.features(X)
        return features, features

    def cross(self, X: Float[Array, "N D"]) -> Cross | None:  # noqa: ARG002
        """The two parts of `features`, for forms that never make them; None where they have no such parts."""
        return None

    def left_by_jitter(self) -> Float[Array, "M M"] | None:
        """``R`` with ``R R^T = W eps W^T``: of the variance of ``f(x)`` a jitter leaves ``|R^T A_x|^2`` and more.

        None where predictions do not take it back.
        """
        return None

    def at_level(self, level: Array) -> "AbstractBasis":
        """The same basis with a mean function at its inducing inputs, for beliefs that read it."""
        basis: Any = self
        return dataclasses.replace(basis, level=level)

    def frame(self) -> Frame:
        """Where the whitened values of a single process stand, for beliefs about its values themselves."""
        cure = "Write out frame(), as numpyro_gp.beliefs.Basis has it."
        fail("the basis of a conditional belief", "one with a factor", f"a {type(self).__name__}", cure, TypeError)

    @abc.abstractmethod
    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Prior variance ``k(x_n, x_n)``."""

    @abc.abstractmethod
    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        """Prior covariance ``k(X, X)``."""

    @abc.abstractmethod
    def white(self) -> tuple["AbstractBasis", Float[Array, "M D"]]:
        """The site with white noise for its process, and inputs at which that is the whitened values."""


@value_type(static=("at_inducing", "is_noisy", "is_exact"))
class Basis(AbstractBasis):
    """The inducing points of one GP, with the single factorisation that a step makes of them.

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
        ``k(Z, Z) + eps I`` itself.
    level : Array (M,) or (P, M), optional
        Mean function at ``Z``, where a belief reads it (`AbstractBelief.reads_basis`).
    turn : Array (M, M), optional
        That of `Frame`, one for all that is asked of the basis, so that derivatives come back to ``gram`` once.
    at_inducing : bool
        Whether `features` of ``inducing`` itself are read off the factor.
    is_noisy : bool
        Whether the process at ``inducing`` itself is ``u = L v``, the jitter being part of the kernel there, as
        `GaussianProcess.at_inducing` asks: features ``L^T``, prior variance ``k + eps``, nothing left to chance.
    is_exact : bool
        Whether `left_by_jitter` is taken off variances, as predictions do: ``eps`` is then there for the factor alone.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    >>> basis.features(jnp.zeros((3, 1))).shape
    (2, 3)
    """

    kernel: Kernel
    inducing: Array
    factor: Array
    inverse: Array
    jitter: Array
    gram: Array
    at_inducing: bool = False
    is_noisy: bool = False
    level: Array | None = None
    turn: Array | None = None
    is_exact: bool = False

    @classmethod
    def build(cls, kernel: Kernel, inducing: Array, jitter: float | None = None) -> "Basis":
        """Factorise ``k(Z, Z)``, with a jitter relative to its mean diagonal, or to each entry of functionals.

        None is the least that factorises.
        """
        # Values and slopes have units of their own.
        steadied = steady(kernel.matrix(inducing), jitter, own=isinstance(kernel, OfFunctionals))
        turn = turn_of(steadied.matrix, steadied.inverse)
        return cls(kernel, inducing, steadied.factor, steadied.inverse, steadied.amount, steadied.matrix, turn=turn)

    @property
    def size(self) -> int:
        return self.inducing.shape[-2]

    @property
    def columns(self) -> int:
        """Number D of columns of plain inputs."""
        return self.kernel.columns if isinstance(self.kernel, OfFunctionals) else self.inducing.shape[-1]

    @property
    def dtype(self) -> np.dtype:
        return self.factor.dtype

    def features(self, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """``A = L^-1 k(Z, X)``, which is ``L^T - eps L^-1`` at the inducing points: no new Gram matrix, if so asked."""
        if self.at_inducing and X is self.inducing:
            change = 0.0 if self.is_noisy else self.inverse * jnp.broadcast_to(self.jitter, self.inverse.shape)
            return self.factor.T - change
        return product(self.inverse, self.kernel.matrix(self.inducing, X))

    def features_for_squares(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "M N"], Float[Array, "M N"]]:
        if self.at_inducing and X is self.inducing:
            return super().features_for_squares(X)
        cross = self.kernel.matrix(self.inducing, X)
        return product(self.inverse, cross), features_but_turned(self.gram, self.inverse, cross)

    def cross(self, X: Float[Array, "N D"]) -> Cross | None:
        """None at the inducing points themselves, whose features are read off the factor."""
        if self.at_inducing and X is self.inducing:
            return None
        return Cross(self.inverse, self._turn, self.kernel.matrix(self.inducing, X))

    def left_by_jitter(self) -> Float[Array, "M M"] | None:
        if not self.is_exact:
            return None
        # W W^T eps, or W diag(eps) W^T for a jitter of each row.
        return self.inverse * jnp.broadcast_to(jnp.sqrt(self.jitter), self.inverse.shape)

    @property
    def _turn(self) -> Array:
        return turn_of(self.gram, self.inverse) if self.turn is None else self.turn

    def frame(self) -> Frame:
        return Frame(self.factor, self.inverse, self._turn)

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


def batch_of_bases(kernel: Kernel, inducing: Array, jitter: float | None = None) -> Basis:
    """A `Basis`, or one for each kernel of a batch, or set of inducing inputs: their axes on the left of its leaves.

    One kernel may serve several sets of inducing inputs, and one set several kernels.
    """
    return over_batch(lambda member, at: Basis.build(member, at, jitter), kernel, inducing, batch_shape(kernel))


def over_batch(
    build: Callable[[Kernel, Array], Basis], kernel: Kernel, inducing: Array, batch: Shape, axes: int = 2
) -> Basis:
    """What ``build`` makes of each kernel of a batch ``own``, and each set of inducing inputs, of ``axes`` axes."""
    points = inducing.shape[:-axes]
    lead = np.broadcast_shapes(batch, points)
    mapped = (None if not batch else 0, None if not points else 0)
    kernel = spread(kernel, batch, lead) if batch else kernel
    inducing = spread(inducing, points, lead) if points else inducing
    return over_axes(build, len(lead), mapped)(kernel, inducing)


def spread(tree: Pytree, lead: Shape, target: Shape) -> Pytree:
    """A tree whose leaves have ``target`` on their left where they had ``lead``, which broadcasts to it."""

    def one(leaf: Array) -> Array:
        aligned = leaf.reshape((1,) * (len(target) - len(lead)) + leaf.shape)
        return jnp.broadcast_to(aligned, target + leaf.shape[len(lead) :])

    return jax.tree.map(one, tree)


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether a shape broadcasts to another."""
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def in_plates(tree: Pytree, lead: Shape, batch: Shape, site: str) -> Pytree:
    """A tree whose leaves have ``batch`` on their left where they had ``lead``.

    ``lead``, the axes of kernels, broadcasts against ``batch``; where the last axis of that is free, which is then the
    one of data, they may leave it out.
    """
    without_data = batch[:-1] if batch and batch[-1] == 1 else batch
    if broadcasts_to(lead, batch):
        return spread(tree, lead, batch)
    if broadcasts_to(lead, without_data):
        return jax.tree.map(lambda leaf: jnp.expand_dims(leaf, len(without_data)), spread(tree, lead, without_data))
    required = f"a batch of the plates around it, {batch}" if batch else "no batch outside of every plate"
    cure = 'Call it inside numpyro.plate("group", G). For outputs pass outputs=P, for rows of data noise of shape (N,).'
    fail(f"the kernel, the inducing inputs or the noise of site {site!r}", required, f"leading axes {lead}", cure)


# --------------------------------------------------------------------------------------
# The bases of members in plates, as one.


@value_type(static=("batch", "own"))
class BatchBasis(AbstractBasis):
    """Processes side by side. A belief is written for one: here its methods are mapped over all (`over_members`).

    Attributes
    ----------
    members : AbstractBasis
        A basis whose leaves have the axes of the batch on their left where ``own``, or one that all members share.
    batch : tuple of int, or None
        Shape of the plates around the site. None: the members are the P outputs of one site, with kernels or inducing
        inputs of their own. KL divergences of outputs are summed, those of plates are not.
    own : bool
    level : Array (*batch, M) or (*batch, P, M), optional
        As of `Basis`: it is of each member, whether the rest is or not.
    """

    members: AbstractBasis
    batch: Shape | None = None
    own: bool = True
    level: Array | None = None

    @property
    def axes(self) -> int:
        """Number of axes of the batch."""
        return 1 if self.batch is None else len(self.batch)

    @property
    def size(self) -> int:
        return self.members.size

    @property
    def dtype(self) -> np.dtype:
        return self.members.dtype

    def _each(self, function: Callable[[AbstractBasis], Array]) -> Array:
        return over_axes(function, self.axes if self.own else 0)(self.members)

    def features(self, X: Float[Array, "N D"]) -> Float[Array, "*batch M N"]:
        return self._each(lambda member: member.features(X))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "*batch N"]:
        return self._each(lambda member: member.diagonal(X))

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "*batch N N"]:
        return self._each(lambda member: member.matrix(X))

    def white(self) -> tuple[AbstractBasis, Float[Array, "M D"]]:
        return first_member(self).white()


def first_member(basis: AbstractBasis) -> AbstractBasis:
    """The basis of one process: of several the first. Leaves may be shapes without values."""
    if not isinstance(basis, BatchBasis):
        return basis
    if not basis.own:
        return first_member(basis.members)
    count = basis.axes

    def first(leaf: Array | jax.ShapeDtypeStruct) -> Array | jax.ShapeDtypeStruct:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(leaf.shape[count:], leaf.dtype)
        return leaf[(0,) * count]

    return first_member(jax.tree.map(first, basis.members))


def marked(basis: AbstractBasis, **marks: Any) -> AbstractBasis:
    """A basis of inducing points, or those of all members, with marks such as `Basis.is_exact`."""
    if isinstance(basis, BatchBasis):
        return dataclasses.replace(basis, members=marked(basis.members, **marks))
    return dataclasses.replace(basis, **marks) if isinstance(basis, Basis) else basis


def has_own_outputs(basis: AbstractBasis) -> bool:
    """Whether the outputs of a site have kernels or inducing inputs of their own."""
    return isinstance(basis, BatchBasis) and (basis.batch is None or has_own_outputs(basis.members))


def placed(basis: AbstractBasis, batch: Shape, site: str) -> AbstractBasis:
    """The basis of a site in plates of the shape ``batch``, in which axes that no plate has are 1."""
    if not isinstance(basis, BatchBasis) or basis.batch is None:
        return BatchBasis(basis, batch, own=False) if batch else basis
    return BatchBasis(in_plates(basis.members, basis.batch, batch, site), batch)
