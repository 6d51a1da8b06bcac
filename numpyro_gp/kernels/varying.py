"""Kernels that vary with the inputs (mathematics.md section 2.2): lengthscale or amplitude as functions; changes."""

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, as_pytree, value_type
from numpyro_gp.checks import check_count, check_floating, fail, when_known
from numpyro_gp.kernels.base import (
    Active,
    Kernel,
    KernelField,
    KernelLike,
    Product,
    Scaled,
    Sum,
    by_field,
    kernel_field,
    positive_scalar,
)
from numpyro_gp.kernels.stationary import RBF, Matern12, Matern32, Matern52, OfOneVariance, RationalQuadratic

# From points (N, D) to values (N,): a function, or a function draw, which is a pytree.
ValueFunction = Callable[..., Array]


def values_at(argument: str, function: ValueFunction, X: Float[Array, "N D"], columns: bool = False) -> Array:
    """Its values ``(N,)``, or with ``columns`` also ``(N, D)``, checked."""
    values = jnp.asarray(function(X))
    if values.shape != X.shape[:1] and not (columns and values.shape == X.shape):
        required = f"of shape {X.shape[:1]}" + (f" or {X.shape}" if columns else "")
        fail(f"{argument}(X)", required, f"shape {values.shape}", "Return one value for each row of X.")
    return values.astype(X.dtype)


@value_type()
class Gibbs(OfOneVariance):
    """Gibbs's kernel: a smooth function whose lengthscale ``l(x)`` changes with the inputs, and may be a process.

    ``k(x, y) = variance prod_d sqrt(2 l_d(x) l_d(y) / s_d) exp(-(x_d - y_d)^2 / s_d)``, ``s_d = l_d(x)^2 + l_d(y)^2``;
    `RBF` where ``l`` is constant (its lengthscale is ``l``).

    Parameters
    ----------
    variance : positive scalar
    log_lengthscale : callable
        From inputs ``(N, D)`` to ``log l``: ``(N,)`` for all columns, or ``(N, D)``. ``g.function("g_draw")`` of
        another `gp` in the model makes it a process: ``models/non_stationary.py``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.Gibbs(1.0, lambda X: X[:, 0])   # wiggly on the left, smooth on the right
    >>> matrix = kernel.matrix(jnp.array([[-2.0], [-1.0], [1.0], [2.0]]))
    >>> bool(matrix[0, 1] < 0.1), bool(matrix[2, 3] > 0.7)
    (True, True)
    """

    variance: ArrayField
    log_lengthscale: ValueFunction
    checks = by_field(**OfOneVariance.checks, log_lengthscale=lambda _, function: as_pytree(function))

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        logs = [values_at("log_lengthscale", self.log_lengthscale, X, columns=True) for X in (X1, X2)]
        first, second = (
            each if each.ndim == 2 else jnp.broadcast_to(each[:, None], X.shape) for each, X in zip(logs, (X1, X2))
        )
        total = jnp.zeros((X1.shape[0], X2.shape[0]), X1.dtype)
        for d in range(X1.shape[1]):
            a, b = first[:, d, None], second[None, :, d]
            # The root by cosh of the difference of logarithms: nothing is squared that could leave the range.
            squares = (X1[:, d, None] - X2[None, :, d]) ** 2 * jnp.exp(-(a + b))
            ratio = jnp.cosh(a - b)
            total = total - 0.5 * (jnp.log(ratio) + squares / ratio)
        return self.variance * jnp.exp(total)


@value_type()
class Modulated(Kernel):
    """A function whose size changes with the inputs, ``a(x) f(x)``: ``k(x, y) = a(x) kernel(x, y) a(y)``.

    Parameters
    ----------
    kernel : Kernel or callable
    amplitude : callable
        From inputs ``(N, D)`` to ``a`` ``(N,)``, of any sign: a function, or ``g.function("g_draw")`` of another `gp`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> growing = ngp.kernels.Modulated(ngp.kernels.RBF(1.0, 1.0), lambda X: X[:, 0])
    >>> growing.diagonal(jnp.array([[0.0], [3.0]])).tolist()
    [0.0, 9.0]
    """

    kernel: KernelField
    amplitude: ValueFunction
    checks = by_field(kernel=kernel_field, amplitude=lambda _, function: as_pytree(function))

    def at(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """The amplitude at some inputs."""
        return values_at("amplitude", self.amplitude, X)

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return self.at(X1)[:, None] * self.kernel._cross(X1, X2) * self.at(X2)[None]

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        amplitude = self.at(X)
        return (amplitude[:, None] * amplitude[None]) * self.kernel._gram(X)

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return self.at(X) ** 2 * self.kernel._diagonal(X)


def change_points(kernels: Sequence[KernelLike], locations: ArrayLike, width: ArrayLike, column: int = 0) -> Kernel:
    """A process that is one before a place, another after it: ``sum_i w_i(x) k_i(x, y) w_i(y)``.

    With ``s_j = sigmoid((x_column - locations_j) / width)`` and ``s_0 = 1``, the weight of kernel i is
    ``s_i (1 - s_(i+1))``: a step that takes some four widths. Locations and width may be sampled.

    Parameters
    ----------
    kernels : sequence of Kernel or callable
        One more than there are change points.
    locations : array (K - 1,), or a number where there is one
        In ascending order.
    width : positive scalar
    column : int
        The input column on which the process changes.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> calm, wild = ngp.kernels.RBF(0.1, 2.0), ngp.kernels.Matern32(4.0, 0.3)
    >>> kernel = ngp.kernels.change_points([calm, wild], 0.0, 0.1)
    >>> [round(float(variance), 3) for variance in kernel.diagonal(jnp.array([[-5.0], [5.0]]))]
    [0.1, 4.0]
    """
    places, scale = jnp.atleast_1d(check_floating("locations", locations)), positive_scalar("width", width)
    if len(kernels) < 2 or places.shape != (len(kernels) - 1,):
        cure = "Pass one location between each kernel and the next."
        fail("locations", f"{max(len(kernels) - 1, 1)} places, one less than kernels", f"shape {places.shape}", cure)

    def check(places: np.ndarray) -> None:
        if (places[1:] < places[:-1]).any():
            fail("locations", "in ascending order", f"{places.tolist()}", "Sort them.")

    when_known(check, places)
    ends = [None, *places, None]
    weights = [_Between(*pair, scale, check_count("column", column, 0)) for pair in pairwise(ends)]
    parts = [Modulated(kernel, weight) for kernel, weight in zip(kernels, weights, strict=True)]
    return sum(parts[1:], start=parts[0])


@value_type(static=("column",))
class _Between:
    """A weight that rises at one place and falls at the next; None is no place."""

    rise: Array | None
    fall: Array | None
    width: Array
    column: int

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        if self.column >= X.shape[1]:
            cure = "Count columns from 0."
            fail("column", f"less than {X.shape[1]}, the number of columns of the inputs", self.column, cure)
        x, weight = X[:, self.column], jnp.ones(X.shape[:1], X.dtype)
        for place, sign in ((self.rise, 1), (self.fall, -1)):
            weight = weight if place is None else weight * sigmoid(sign * (x - place) / self.width)
        return weight


# --------------------------------------------------------------------------------------
# Lengthscales of a kernel in the columns of its inputs: the units in which it tells near from far.


# A column that no part reads has a lengthscale of so many of the shortest: it may hold seconds since 1970.
FAR = 1e18


def lengthscales(kernel: Kernel, columns: int) -> Float[Array, " D"] | None:
    """One lengthscale for each of ``columns``; None of a kernel that has none, in some part of it.

    Of a sum the shortest counts. Of a product the inverse squares add up, as those of a product of `RBF` kernels do.
    """
    precisions = _precisions(kernel, columns)
    if precisions is None:
        return None
    # The square of the far one is beyond single precision.
    is_read = precisions > 0
    near = 1 / jnp.sqrt(jnp.where(is_read, precisions, 1.0))
    return jnp.where(is_read, near, FAR / jnp.sqrt(jnp.max(precisions)))


def _precisions(kernel: Kernel, columns: int) -> Array | None:
    """Inverse squares of the lengthscales, zero in columns that the kernel does not read."""
    if isinstance(kernel, (RBF, Matern12, Matern32, Matern52, RationalQuadratic)):
        return jnp.broadcast_to(kernel.lengthscale**-2, (columns,))
    if not isinstance(kernel, (Scaled, Modulated, Active, Sum, Product)):
        return None
    count = len(kernel.dims) if isinstance(kernel, Active) else columns
    parts = [inner for part in kernel.parts.values() if (inner := _precisions(part, count)) is not None]
    if len(parts) < len(kernel.parts):
        return None
    if isinstance(kernel, Active):
        return jnp.zeros(columns, parts[0].dtype).at[jnp.asarray(kernel.dims)].set(parts[0])
    return functools.reduce(jnp.maximum if isinstance(kernel, Sum) else jnp.add, parts)
