"""Kernels as immutable values: what every kernel offers, and how kernels are combined.

A kernel is a pytree of its hyper-parameters, so it passes through ``jit``, ``vmap`` and ``grad``
like an array. Hyper-parameters are plain arrays: priors live in the user's model.
"""

import abc
import operator
from collections.abc import Sequence
from typing import Protocol, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, Converted, same_fields, store, value_type
from numpyro_gp.checks import are_integers, check_count, check_points, fail
from numpyro_gp.kernels.hyperparameters import as_integers, positive_scalar

# --------------------------------------------------------------------------------------
# What stands on the other side of a sign: functions that are kernels, numbers, and the start of a sum.


OPERAND = "a kernel or a positive number"


def is_start(value: object) -> bool:
    """Whether it is what the builtin sum(kernels) starts from."""
    return isinstance(value, int) and value == 0


def operand(sign: str, value: object, required: str) -> "KernelLike":
    """The kernel on the other side of a sign."""
    if not callable(value):
        fail(f"the other side of {sign}", required, f"a {type(value).__name__}", "Use kernels.Constant(c).", TypeError)
    return value


class KernelLike(Protocol):
    """A function of two sets of points, ``(N1, D)`` and ``(N2, D)``, that returns their covariances ``(N1, N2)``."""

    def __call__(self, X1: Array, X2: Array, /) -> Array: ...


def is_scaling(value: object) -> TypeGuard[ArrayLike]:
    """Whether it scales a kernel."""
    return isinstance(value, (int, float, np.ndarray, np.generic, jax.Array))


class Kernel(abc.ABC):
    """Base class of kernels: covariance functions ``k(x, y)``, with sums, products and chosen columns.

    ``matrix`` and ``diagonal`` check their inputs and call the three hooks a subclass fills: ``_cross(X1, X2)``,
    ``_diagonal(X)`` and, where it can do better than the default, ``_gram(X)``. Without subclassing, any function of
    two sets of points is a kernel too: see :func:`as_kernel`.

    Kernels combine with ``k1 + k2``, ``k1 * k2``, ``c * k`` for a positive scalar ``c``, and ``k.on(dims)``, which
    reads only the columns ``dims`` of the inputs.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_gp.kernels import RBF, Linear
    >>> X = jnp.array([[0.0, 1.0], [2.0, 1.0]])
    >>> kernel = 2.0 * RBF(1.0, 1.0).on(1) + Linear(0.5).on(0)
    >>> kernel.matrix(X).tolist()
    [[2.0, 2.0], [2.0, 4.0]]
    """

    __array_ufunc__ = None  # so that NumPy scalars hand ``c * k`` over to ``__rmul__``

    def matrix(self, X1: ArrayLike, X2: ArrayLike | None = None) -> Float[Array, "N1 N2"]:
        """Covariance ``k(X1, X2)`` of points ``(N1, D)`` and ``(N2, D)``.

        With one argument, or the same array twice, the square Gram matrix: exactly symmetric,
        with ``diagonal(X1)`` on its diagonal.
        """
        own = self.of_integers() if are_integers(X1) else self
        if X2 is None or X2 is X1:
            return own._gram(check_points("X1", X1))
        first, second = check_points("X1", X1), check_points("X2", X2)
        if first.shape[1] != second.shape[1]:
            cure = "Pass the same inputs in the same order, or choose columns with kernel.on(dims)."
            fail("X2", f"an array with {first.shape[1]} columns, as X1 has", f"shape {second.shape}", cure)
        return own._cross(first, second)

    def diagonal(self, X: ArrayLike) -> Float[Array, " N"]:
        """Variances ``k(x_n, x_n)`` of points ``(N, D)``."""
        own = self.of_integers() if are_integers(X) else self
        return own._diagonal(check_points("X", X))

    def of_integers(self) -> "Kernel":
        """The kernel of inputs that are integers: those of its parts that are functions get them as they are.

        Inputs are floats elsewhere, also those of kernels that are classes.
        """
        return self

    def __call__(self, X1: ArrayLike, X2: ArrayLike | None = None) -> Float[Array, "N1 N2"]:
        """The same as :meth:`matrix`."""
        return self.matrix(X1, X2)

    def on(self, dims: int | Sequence[int]) -> "Active":
        """The kernel that reads only the columns ``dims`` of the inputs, in that order."""
        return Active(self, dims)

    @abc.abstractmethod
    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        """Covariances between two sets of points."""

    @abc.abstractmethod
    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Variances."""

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        """Covariances of one set, symmetric to the last bit, with the exact diagonal."""
        matrix = self._cross(X, X)
        diagonal = jnp.broadcast_to(self._diagonal(X)[:, None], matrix.shape)
        return jnp.where(np.eye(X.shape[0], dtype=bool), diagonal, 0.5 * (matrix + matrix.T))

    def __add__(self, other: "KernelLike | int") -> "Kernel":
        return self if is_start(other) else Sum(self, operand("+", other, "a kernel"))

    def __radd__(self, other: "KernelLike | int") -> "Kernel":
        return self if is_start(other) else Sum(operand("+", other, "a kernel"), self)

    def __mul__(self, other: "KernelLike | ArrayLike") -> "Kernel":
        return Scaled(self, other) if is_scaling(other) else Product(self, operand("*", other, OPERAND))

    def __rmul__(self, other: "KernelLike | ArrayLike") -> "Kernel":
        return Scaled(self, other) if is_scaling(other) else Product(operand("*", other, OPERAND), self)


KernelField = Converted[Kernel, KernelLike]


@value_type()
class _OfTwo(Kernel):
    """What ``combine`` makes of the values of two kernels."""

    first: KernelField
    second: KernelField

    @staticmethod
    @abc.abstractmethod
    def combine(first: Array, second: Array, /) -> Array:
        """One value of the values of both."""

    def __post_init__(self) -> None:
        store(self, first=as_kernel(self.first), second=as_kernel(self.second))

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return self.combine(self.first._cross(X1, X2), self.second._cross(X1, X2))

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        return self.combine(self.first._gram(X), self.second._gram(X))

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return self.combine(self.first._diagonal(X), self.second._diagonal(X))

    def of_integers(self) -> Kernel:
        return type(self)(self.first.of_integers(), self.second.of_integers())


@same_fields
class Sum(_OfTwo):
    """A sum of two independent functions, ``k(x, y) = k1(x, y) + k2(x, y)``: what ``k1 + k2`` builds.

    Parameters
    ----------
    first, second : Kernel or callable

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> trend_and_wave = ngp.kernels.Linear(0.5) + ngp.kernels.Periodic(1.0, 1.0, 12.0)
    >>> trend_and_wave.diagonal(jnp.array([[0.0], [2.0]])).tolist()
    [1.0, 3.0]
    """

    combine = staticmethod(operator.add)


@same_fields
class Product(_OfTwo):
    """An effect of one kernel that another one modulates, ``k(x, y) = k1(x, y) k2(x, y)``: what ``k1 * k2`` builds.

    Of kernels on different columns it is an interaction: a function of all their columns together.

    Parameters
    ----------
    first, second : Kernel or callable

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> interaction = ngp.kernels.RBF(2.0, 1.0).on(0) * ngp.kernels.RBF(1.5, 1.0).on(1)
    >>> interaction.diagonal(jnp.zeros((1, 2))).tolist()
    [3.0]
    """

    combine = staticmethod(operator.mul)


@value_type()
class Scaled(Kernel):
    """A kernel with more or less variance, ``c k(x, y)`` with a positive scalar ``c``: what ``c * k`` builds.

    Parameters
    ----------
    kernel : Kernel or callable
    factor : positive scalar

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> (3.0 * ngp.kernels.RBF(2.0, 1.0)).diagonal(jnp.zeros((1, 1))).tolist()
    [6.0]
    """

    kernel: KernelField
    factor: ArrayField

    def __post_init__(self) -> None:
        store(self, kernel=as_kernel(self.kernel), factor=positive_scalar("factor", self.factor))

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return self.factor * self.kernel._cross(X1, X2)

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        return self.factor * self.kernel._gram(X)

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return self.factor * self.kernel._diagonal(X)

    def of_integers(self) -> Kernel:
        return Scaled(self.kernel.of_integers(), self.factor)


@value_type(static=("dims",))
class Active(Kernel):
    """A kernel that reads only some columns of its inputs: what ``kernel.on(dims)`` builds.

    Parameters
    ----------
    kernel : Kernel or callable
    dims : int or sequence of ints
        Columns, in the order in which the kernel reads them.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> second = ngp.kernels.Linear(1.0).on(1)
    >>> second.diagonal(jnp.array([[5.0, 2.0, 7.0]])).tolist()
    [4.0]
    """

    kernel: KernelField
    dims: Converted[tuple[int, ...], int | Sequence[int] | np.ndarray]

    def __post_init__(self) -> None:
        dims: object = np.atleast_1d(self.dims).tolist() if isinstance(self.dims, np.ndarray) else self.dims
        dims = (dims,) if isinstance(dims, (int, np.integer)) else dims
        if not isinstance(dims, (tuple, list, range)):
            fail("dims", "an int or a sequence of ints", repr(self.dims), "Pass kernel.on([0, 2]).", TypeError)
        checked = tuple(check_count("dims", dim, minimum=0) for dim in dims)
        if not checked or len(set(checked)) < len(checked):
            fail("dims", "one or more different columns", repr(self.dims), "Name each column once: kernel.on([0, 2]).")
        store(self, kernel=as_kernel(self.kernel), dims=checked)

    def of_columns(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the columns that it reads."""
        if max(self.dims) >= len(columns):
            cure = "Count columns from 0."
            fail("dims", f"less than {len(columns)}, the number of columns of the inputs", self.dims, cure)
        return tuple(columns[dim] for dim in self.dims)

    def _columns(self, X: Float[Array, "N D"]) -> Float[Array, "N A"]:
        every = tuple(range(X.shape[1]))
        own = self.of_columns(every)
        return X if own == every else jnp.stack([X[:, dim] for dim in own], axis=1)

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return self.kernel._cross(self._columns(X1), self._columns(X2))

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        return self.kernel._gram(self._columns(X))

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return self.kernel._diagonal(self._columns(X))

    def of_integers(self) -> Kernel:
        return Active(self.kernel.of_integers(), self.dims)


@value_type(static=("is_of_integers",))
class FunctionKernel(Kernel):
    """A function of your own as a kernel: any callable ``k(X1, X2) -> (N1, N2)``. Its diagonal is taken point by point.

    `as_kernel` makes one, and so does every function of this library that takes a kernel.

    Parameters
    ----------
    function : callable
    is_of_integers : bool
        Whether its inputs are integers, as numbers of the nodes of a graph: set where inducing inputs are.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.FunctionKernel(lambda X1, X2: jnp.minimum(X1, X2.T))   # Brownian motion
    >>> kernel.matrix(jnp.array([[1.0], [2.0]])).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """

    function: KernelLike
    is_of_integers: bool = False

    def __post_init__(self) -> None:
        # A callable that is itself a pytree keeps its parameters as leaves; a plain function is structure.
        if jax.tree_util.all_leaves([self.function]):
            store(self, function=jax.tree_util.Partial(self.function))

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        first, second = (as_integers(X1), as_integers(X2)) if self.is_of_integers else (X1, X2)
        matrix = jnp.asarray(self.function(first, second))
        if matrix.shape != (X1.shape[0], X2.shape[0]):
            required = f"of shape {(X1.shape[0], X2.shape[0])}, one row for each point of X1"
            cure = "For a function of one pair of points map it twice with jax.vmap."
            fail("kernel(X1, X2)", required, f"shape {matrix.shape}", cure)
        return matrix

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jax.vmap(lambda point: self._cross(point[None, :], point[None, :])[0, 0])(X)

    def of_integers(self) -> Kernel:
        return FunctionKernel(self.function, True)


def as_kernel(kernel: KernelLike) -> Kernel:
    """Turn what a user passed into a `Kernel`: a kernel stays as it is, any other callable ``k(X1, X2)`` is wrapped.

    Parameters
    ----------
    kernel : Kernel or callable
        A callable takes ``(N1, D)`` and ``(N2, D)`` and returns ``(N1, N2)``.

    Returns
    -------
    Kernel

    Raises
    ------
    TypeError
        For a class instead of a value, and for what cannot be called.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.as_kernel(lambda X1, X2: X1 @ X2.T)
    >>> kernel.diagonal(jnp.array([[1.0, 2.0], [3.0, 0.0]])).tolist()
    [5.0, 9.0]
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, type):
        cure = f"Pass a value, such as {kernel.__name__}(...)."
        fail("kernel", "a kernel or a function k(X1, X2)", f"the class {kernel.__name__}", cure, TypeError)
    if not callable(kernel):
        cure = "Pass ngp.kernels.RBF(1.0, 1.0)."
        fail("kernel", "a kernel or a function k(X1, X2)", f"a {type(kernel).__name__}", cure, TypeError)
    return FunctionKernel(kernel)
