"""Mean functions: immutable values that map inputs ``(..., D)`` to ``(...)``, or to ``(..., P)`` for P outputs.

The fixed projections at the end are the means of the inner layers of a deep Gaussian process
(mathematics.md section 5.4).
"""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, as_pytree, store, value_type
from numpyro_gp.checks import check_count, check_floating, check_points, fail
from numpyro_gp.linalg import matmul

__all__ = ["Zero", "Constant", "Linear", "Projection", "FunctionMean", "as_mean"]
__all__ += ["identity", "pca", "padding", "linear_projection"]


def _inputs(X: ArrayLike, columns: int | None = None) -> Float[Array, "*batch D"]:
    return check_points("X", X, columns=columns, leading=True)


@value_type(static=("outputs",))
class Zero:
    """A mean of zero, ``c(x) = 0``: what a process has where none is given.

    Parameters
    ----------
    outputs : int, optional
        Number P of outputs; None for a single one.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.means.Zero(2)(jnp.ones((3, 1))).shape
    (3, 2)
    """

    outputs: int | None = None

    def __post_init__(self) -> None:
        if self.outputs is not None:
            check_count("outputs", self.outputs)

    def __call__(self, X: ArrayLike) -> Array:
        """Zeros of shape ``(...)`` or ``(..., P)``."""
        X = _inputs(X)
        return jnp.zeros(X.shape[:-1] + (() if self.outputs is None else (self.outputs,)), X.dtype)


@value_type()
class Constant:
    """An unknown or known level, ``c(x) = value``: sample ``value`` in the model to learn it.

    Parameters
    ----------
    value
        A scalar for one output, ``(P,)`` for P outputs.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.means.Constant(jnp.array([1.0, 2.0]))(jnp.zeros((3, 4))).shape
    (3, 2)
    """

    value: ArrayField

    def __post_init__(self) -> None:
        value = check_floating("value", self.value)
        if value.ndim > 1:
            fail("value", "a scalar or of shape (P,)", f"shape {value.shape}", "Pass one value for each output.")
        store(self, value=value)

    def __call__(self, X: ArrayLike) -> Array:
        """``value`` at every point."""
        X = _inputs(X)
        dtype = jnp.result_type(self.value, X)
        return jnp.broadcast_to(self.value.astype(dtype), X.shape[:-1] + self.value.shape)


@value_type()
class Linear:
    """A linear trend that the process departs from: ``c(x) = x W + bias``.

    Parameters
    ----------
    weights
        ``(D,)`` for one output, ``(D, P)`` for P.
    bias
        Scalar, or ``(P,)``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.means.Linear(jnp.array([1.0, 2.0]), 0.5)(jnp.array([[1.0, 1.0], [0.0, 2.0]])).tolist()
    [3.5, 4.5]
    """

    weights: ArrayField
    bias: ArrayField = cast("ArrayField", 0.0)

    def __post_init__(self) -> None:
        weights, bias = check_floating("weights", self.weights), check_floating("bias", self.bias)
        if weights.ndim not in (1, 2) or weights.size == 0:
            fail("weights", "of shape (D,) or (D, P)", f"shape {weights.shape}", "Pass a slope for each input.")
        if bias.shape not in ((), weights.shape[1:]):
            required = "a scalar" + (f" or of shape {weights.shape[1:]}" if weights.ndim == 2 else "")
            fail("bias", required, f"shape {bias.shape}", "Pass one bias for each output: jnp.zeros(P).")
        store(self, weights=weights, bias=bias)

    def __call__(self, X: ArrayLike) -> Array:
        """``X W + bias``, of shape ``(...)`` or ``(..., P)``."""
        projected = matmul(_inputs(X, self.weights.shape[0]), self.weights)
        return projected + (self.bias if self.bias.ndim == 0 else jnp.broadcast_to(self.bias, projected.shape))


@value_type()
class Projection:
    """The fixed linear mean of a layer of a deep process: ``c(x) = x W``, and no gradient reaches ``W``.

    The next layer's inducing inputs belong at ``projection(Z)``.

    Parameters
    ----------
    weights
        ``(D, P)``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.means.Projection(jnp.array([[1.0], [2.0]]))(jnp.array([[3.0, 4.0]])).tolist()
    [[11.0]]
    """

    weights: ArrayField

    def __post_init__(self) -> None:
        weights = check_floating("weights", self.weights)
        if weights.ndim != 2 or weights.size == 0:
            fail("weights", "of shape (D, P)", f"shape {weights.shape}", "For one output pass weights[:, None].")
        store(self, weights=weights)

    def __call__(self, X: ArrayLike) -> Array:
        """``X W``, of shape ``(..., P)``."""
        return matmul(_inputs(X, self.weights.shape[0]), lax.stop_gradient(self.weights))


@value_type()
class FunctionMean:
    """A function of your own as a mean: any callable whose value has the leading shape of the points.

    `as_mean` makes one, and so does every function of this library that takes a mean.

    Parameters
    ----------
    function : callable
        ``(..., D)`` to ``(...)``, or to ``(..., P)`` for P outputs.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.means.FunctionMean(lambda X: X[..., 0] ** 2)(jnp.array([[3.0]])).tolist()
    [9.0]
    """

    function: Callable[[Array], ArrayLike]

    def __post_init__(self) -> None:
        store(self, function=as_pytree(self.function))

    def __call__(self, X: ArrayLike) -> Array:
        """The function's value, ``(...)`` or ``(..., P)``."""
        X = _inputs(X)
        value = jnp.asarray(self.function(X))
        points = X.shape[:-1]
        if value.ndim not in (len(points), len(points) + 1) or value.shape[: len(points)] != points:
            cure = "Return one value, or one row of values, for each point; c(x) of one input is X[..., 0]."
            fail("mean(X)", f"of shape {points} or {(*points, 'P')}", f"shape {value.shape}", cure)
        return value


# What maps inputs to a mean, and all that a user may pass for one.
Mean = Callable[[ArrayLike], Array]
MeanLike = Callable[[Array], ArrayLike] | ArrayLike | None


def as_mean(mean: MeanLike) -> Mean:
    """Turn what a user passed into a mean function: None is `Zero`, a number is a level, other callables are wrapped.

    Parameters
    ----------
    mean : callable, number or None

    Returns
    -------
    Mean
        A callable ``(..., D)`` to ``(...)`` or ``(..., P)``.

    Raises
    ------
    TypeError
        For arrays with axes, whose shape would not say what they are, for classes, and for what cannot be called.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.means.as_mean(2.0)(jnp.zeros((3, 1))).tolist()
    [2.0, 2.0, 2.0]
    """
    if mean is None:
        return Zero()
    if isinstance(mean, (Zero, Constant, Linear, Projection, FunctionMean)):
        return mean
    if isinstance(mean, (int, float, jax.Array, np.ndarray, np.generic)):
        if np.ndim(mean) == 0 and not isinstance(mean, bool):
            return Constant(mean)
    elif callable(mean) and not isinstance(mean, type):
        return FunctionMean(mean)
    got = f"the class {mean.__name__}" if isinstance(mean, type) else f"a {type(mean).__name__}"
    cure = "For one level for each output pass numpyro_gp.means.Constant(values)."
    fail("mean", "a number or a function of the inputs", got, cure, TypeError)


def identity(inputs: int, *, dtype: Any = float) -> Projection:
    """The mean of a layer as wide as its inputs, which starts by passing them on: ``W = I``.

    Parameters
    ----------
    inputs : int
        Number D of columns.
    dtype : dtype, optional

    Returns
    -------
    Projection
        Weights ``(D, D)``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.means.identity(2)(jnp.array([[3.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """
    return Projection(jnp.eye(check_count("inputs", inputs), dtype=dtype))


def pca(X: ArrayLike, outputs: int) -> Projection:
    """The mean of a layer narrower than its inputs: the principal directions ``W = V[:, :outputs]`` of ``X = U S V^T``.

    ``X`` is *not* centred. Signs, which the decomposition leaves open, are chosen so that the largest entry of each
    column is positive.

    Parameters
    ----------
    X : array (N, D)
        The (standardised) inputs of the first layer.
    outputs : int
        Number P of columns to keep, at most the smaller side of ``X``.

    Returns
    -------
    Projection
        Weights ``(D, P)``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.array([[1.0, 1.0], [2.0, 2.0], [-1.0, -1.0]])
    >>> ngp.means.pca(X, 1).weights.round(4).tolist()
    [[0.7071], [0.7071]]
    """
    array = check_points("X", X)
    largest = min(array.shape)
    if check_count("outputs", outputs) > largest:
        required = f"at most {largest}, the smaller side of X {array.shape}"
        fail("outputs", required, outputs, "Use padding(inputs, outputs) for more outputs than inputs.")
    columns = jnp.linalg.svd(array, full_matrices=False)[2][:outputs].T
    peaks = jnp.take_along_axis(columns, jnp.argmax(jnp.abs(columns), axis=0)[None, :], axis=0)
    return Projection(columns * jnp.where(peaks < 0, -1, 1))


def padding(inputs: int, outputs: int, *, dtype: Any = float) -> Projection:
    """The mean of a layer wider than its inputs: ``W = [I 0]``, inputs first, then zeros.

    Parameters
    ----------
    inputs, outputs : int
        Numbers of columns, D and P with P at least D.
    dtype : dtype, optional

    Returns
    -------
    Projection
        Weights ``(D, P)``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.means.padding(1, 3)(jnp.array([[5.0]])).tolist()
    [[5.0, 0.0, 0.0]]
    """
    count = check_count("inputs", inputs)
    if check_count("outputs", outputs) < count:
        fail("outputs", f"at least {count}, the number of inputs", outputs, "Use pca(X, outputs) for fewer.")
    return Projection(jnp.eye(count, outputs, dtype=dtype))


def linear_projection(X: ArrayLike, outputs: int) -> Projection:
    """The fixed mean of an inner layer of any width: `identity`, `pca` or `padding`, by ``D`` and ``outputs``.

    Parameters
    ----------
    X : array (N, D)
        Inputs of the layer.
    outputs : int
        Number P of outputs.

    Returns
    -------
    Projection
        Weights ``(D, P)``.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> X = np.array([[1.0, 0.0], [2.0, 0.1], [3.0, -0.1]])
    >>> [ngp.means.linear_projection(X, outputs).weights.shape for outputs in (1, 2, 3)]
    [(2, 1), (2, 2), (2, 3)]
    """
    array = check_points("X", X)
    inputs = array.shape[1]
    if check_count("outputs", outputs) < inputs:
        return pca(array, outputs)
    return padding(inputs, outputs, dtype=array.dtype)
