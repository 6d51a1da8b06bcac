"""Kernels as immutable values: what every kernel offers, and how kernels are combined.

A kernel is a pytree of its hyper-parameters, so it passes through ``jit``, ``vmap`` and ``grad``
like an array. Hyper-parameters are plain arrays: priors live in the user's model.
"""

import abc
import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, Converted, as_pytree, same_fields, store, value_type
from numpyro_gp.checks import (
    are_integers,
    check_count,
    check_nonnegative,
    check_points,
    check_positive,
    fail,
    when_known,
)
from numpyro_gp.linalg import matmul

# --------------------------------------------------------------------------------------
# Hyper-parameters: their shapes, and how they meet the columns of inputs.


def require_axes(argument: str, array: Array, most: int) -> Array:
    """Return an array of at most so many axes; else name the batch of kernels, or the plate, that gave it more."""
    if array.ndim > most:
        required = "a scalar" if most == 0 else "a scalar or one value for each input, shape (D,)"
        cure = "For a batch of kernels use ngp.kernels.stack([...]), or jax.vmap over one value for each kernel."
        if array.ndim > 1 and array.shape[-1] == 1:  # what a sample site in a plate has, whose rows have the last axis
            cure = (
                f"A value sampled in plate(..., dim=-2) has an axis for rows: take {argument}[..., 0] and make a "
                f"kernel for each member, jax.vmap(lambda own: ngp.kernels.RBF(1.0, own))({argument}[..., 0]). A value "
                "that all members share is sampled outside of the plate."
            )
        fail(argument, required, f"shape {array.shape}", cure)
    return array


def positive_scalar(argument: str, value: ArrayLike) -> Float[Array, ""]:
    """A positive scalar hyper-parameter, which may be traced."""
    return require_axes(argument, check_positive(argument, value), 0)


def nonnegative_scalar(argument: str, value: ArrayLike) -> Float[Array, ""]:
    """A scalar hyper-parameter that may be zero."""
    return require_axes(argument, check_nonnegative(argument, value), 0)


def positive_per_input(argument: str, value: ArrayLike) -> Array:
    """A positive hyper-parameter, ``()`` or ``(D,)``."""
    return require_axes(argument, check_positive(argument, value), 1)


def per_input(argument: str, value: Array, X: Float[Array, "N D"]) -> Float[Array, "1 #D"]:
    """``value`` as a row ``(1, D)`` or ``(1, 1)`` that multiplies the inputs; its length must be theirs."""
    if value.ndim == 1 and value.shape[0] != X.shape[1]:
        required = f"a scalar or of shape ({X.shape[1]},), one value for each column of the inputs"
        cure = "Choose the columns with kernel.on(dims), pass one value for each, or map over members with jax.vmap."
        fail(argument, required, f"shape {value.shape}", cure)
    return value.reshape(1, -1)


def inner_products(A: Float[Array, "N1 D"], B: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
    """``A B^T`` in full precision: accelerators would round float32 inputs to fewer bits by default."""
    return matmul(A, B.T)


# --------------------------------------------------------------------------------------
# Kernels, and how they are combined.

# What a constructor makes of a field, by name and value.
Check = Callable[[str, Any], object]


def by_field(**checks: Check) -> Mapping[str, Check]:
    """Return the checks of a kernel's fields."""
    return checks


SCALE_TYPES = (int, float, np.ndarray, np.generic, jax.Array)  # what scales a kernel


class KernelLike(Protocol):
    """A function of two sets of points, ``(N1, D)`` and ``(N2, D)``, that returns their covariances ``(N1, N2)``."""

    def __call__(self, X1: Array, X2: Array, /) -> Array: ...


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
    # For fields by name: the check of what the constructor is given, which returns what is held.
    checks: ClassVar[Mapping[str, Check]] = by_field()
    # What functions of the kernel are that have no slopes, and what to do about it.
    without_slopes: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        store(self, **{name: check(name, getattr(self, name)) for name, check in self.checks.items()})

    @property
    def parts(self) -> dict[str, "Kernel"]:
        """The kernels that this one is made of, by field."""
        return {name: getattr(self, name) for name, check in self.checks.items() if check is kernel_field}

    def matrix(self, X1: ArrayLike, X2: ArrayLike | None = None) -> Float[Array, "N1 N2"]:
        """Covariance ``k(X1, X2)`` of points ``(N1, D)`` and ``(N2, D)``.

        With one argument, or the same array twice, the square Gram matrix: exactly symmetric,
        with ``diagonal(X1)`` on its diagonal.
        """
        kernel = self.of_integers() if are_integers(X1) else self
        if X2 is None or X2 is X1:
            return kernel._gram(check_points("X1", X1))
        first, second = check_points("X1", X1), check_points("X2", X2)
        if first.shape[1] != second.shape[1]:
            cure = "Pass the same inputs in the same order, or choose columns with kernel.on(dims)."
            fail("X2", f"an array with {first.shape[1]} columns, as X1 has", f"shape {second.shape}", cure)
        return kernel._cross(first, second)

    def diagonal(self, X: ArrayLike) -> Float[Array, " N"]:
        """Variances ``k(x_n, x_n)`` of points ``(N, D)``."""
        kernel = self.of_integers() if are_integers(X) else self
        return kernel._diagonal(check_points("X", X))

    def of_integers(self) -> "Kernel":
        """The kernel of inputs that are integers: those of its parts that are functions get them as they are.

        Inputs are floats elsewhere, also those of kernels that are classes.
        """
        value: Any = self
        parts = {name: part.of_integers() for name, part in self.parts.items()}
        return self if parts == self.parts else dataclasses.replace(value, **parts)

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
        return self if isinstance(other, int) and other == 0 else Sum(self, other)  # type: ignore[arg-type]

    def __radd__(self, other: "KernelLike | int") -> "Kernel":  # sum(kernels) starts from 0
        return self if isinstance(other, int) and other == 0 else Sum(other, self)  # type: ignore[arg-type]

    def __mul__(self, other: "KernelLike | ArrayLike") -> "Kernel":
        return Scaled(self, other) if isinstance(other, SCALE_TYPES) else Product(self, other)  # type: ignore[arg-type]

    def __rmul__(self, other: "KernelLike | ArrayLike") -> "Kernel":
        return Scaled(self, other) if isinstance(other, SCALE_TYPES) else Product(other, self)  # type: ignore[arg-type]


KernelField = Converted[Kernel, KernelLike]


class _Combined(Kernel):
    """What ``_combine`` makes of the values that other kernels have at columns of the inputs."""

    _combine: Callable[..., Array]  # one value of those of the parts

    def _columns(self, X: Float[Array, "N D"]) -> Float[Array, "N A"]:
        """Return the columns that the parts read."""
        return X

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        X1, X2 = self._columns(X1), self._columns(X2)
        return self._combine(*[part._cross(X1, X2) for part in self.parts.values()])

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        X = self._columns(X)
        return self._combine(*[part._gram(X) for part in self.parts.values()])

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        X = self._columns(X)
        return self._combine(*[part._diagonal(X) for part in self.parts.values()])


def kernel_field(_: str, value: "KernelLike") -> Kernel:
    """Check a field that is a kernel."""
    return as_kernel(value)


@value_type()
class _OfTwo(_Combined):
    """A kernel made of two."""

    first: KernelField
    second: KernelField
    checks = by_field(first=kernel_field, second=kernel_field)


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

    _combine = staticmethod(operator.add)


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

    _combine = staticmethod(operator.mul)


@value_type()
class Scaled(_Combined):
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
    checks = by_field(kernel=kernel_field, factor=positive_scalar)

    def _combine(self, value: Array) -> Array:
        return self.factor * value


@value_type(static=("dims",))
class Active(_Combined):
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
    checks = by_field(kernel=kernel_field)

    def __post_init__(self) -> None:
        if not isinstance(self.dims, (int, np.integer, np.ndarray, tuple, list, range)):
            fail("dims", "an int or a sequence of ints", repr(self.dims), "Pass kernel.on([0, 2]).", TypeError)
        checked = tuple(check_count("dims", dim, minimum=0) for dim in np.atleast_1d(self.dims).tolist())
        if not checked or len(set(checked)) < len(checked):
            fail("dims", "one or more different columns", repr(self.dims), "Name each column once: kernel.on([0, 2]).")
        super().__post_init__()
        store(self, dims=checked)

    def of_columns(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the columns that it reads."""
        if max(self.dims) >= len(columns):
            cure = "Count columns from 0."
            fail("dims", f"less than {len(columns)}, the number of columns of the inputs", self.dims, cure)
        return tuple(columns[dim] for dim in self.dims)

    def _columns(self, X: Float[Array, "N D"]) -> Float[Array, "N A"]:
        every = tuple(range(X.shape[1]))
        dims = self.of_columns(every)
        return X if dims == every else jnp.stack([X[:, dim] for dim in dims], axis=1)

    def _combine(self, value: Array) -> Array:
        return value


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
        store(self, function=as_pytree(self.function))

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        if self.is_of_integers:

            def check(values: np.ndarray) -> None:
                if (values != np.round(values)).any():
                    cure = "Pass numbers of nodes, or give the process inducing inputs that are floats."
                    got = f"{values[values != np.round(values)][0]}"
                    fail("X", "whole numbers, as the inducing inputs are", got, cure)

            for X in (X1, X2):
                when_known(check, X)
            X1, X2 = X1.astype(int), X2.astype(int)
        matrix = jnp.asarray(self.function(X1, X2))
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
    if isinstance(kernel, type) or not callable(kernel):
        got, cure = f"a {type(kernel).__name__}", "Pass ngp.kernels.RBF(1.0, 1.0), or Constant(c) for a number c."
        if isinstance(kernel, type):
            got, cure = f"the class {kernel.__name__}", f"Pass a value, such as {kernel.__name__}(...)."
        fail("kernel", "a kernel or a function k(X1, X2)", got, cure, TypeError)
    return FunctionKernel(kernel)
