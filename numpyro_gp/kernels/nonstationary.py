"""Kernels that are no functions of a difference: linear, neural, categorical (mathematics.md section 2.2)."""

import abc
import math
from dataclasses import field
from types import ModuleType
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, Values, same_fields, store, value_type
from numpyro_gp.checks import check_count, check_floating, check_nonnegative, check_positive, fail, when_known
from numpyro_gp.kernels.base import (
    Kernel,
    by_field,
    inner_products,
    nonnegative_scalar,
    per_input,
    positive_per_input,
    positive_scalar,
)
from numpyro_gp.kernels.measures import check_distribution
from numpyro_gp.kernels.stationary import OfOneVariance, safe_root

# Why a kernel that reads codes of categories has no slopes.
CODES = "which reads codes of categories there", "Take slopes in the other columns."


@value_type(static=("per_column",))
class Linear(Kernel):
    """Straight lines through the origin, ``k(x, y) = sum_d variance_d x_d y_d``: Bayesian linear regression.

    Parameters
    ----------
    variance
        Positive scalar or ``(D,)``: the prior variance of each slope.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.Linear(jnp.array([1.0, 0.5])).matrix(jnp.array([[1.0, 2.0]])).tolist()
    [[3.0]]
    """

    variance: ArrayField
    # Whether there is one variance for each column: with as many kernels in a batch as columns shapes do not say it.
    per_column: bool = field(default=True, init=False, repr=False)  # what a pickle of before is taken for

    def __post_init__(self) -> None:
        variance = positive_per_input("variance", self.variance)
        store(self, variance=variance, per_column=variance.ndim > 0)

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return inner_products(X1 * per_input("variance", self.variance, X1), X2)

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.sum(per_input("variance", self.variance, X) * X * X, axis=1)


@value_type(static=("degree",))
class Polynomial(Kernel):
    """Polynomials of a given degree: ``k(x, y) = (sum_d variance_d x_d y_d + offset)^degree``.

    Parameters
    ----------
    variance
        Positive scalar or ``(D,)``.
    offset
        Scalar, zero or positive; zero leaves the terms of the full degree alone.
    degree
        A positive Python int, part of the structure.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.Polynomial(1.0, 1.0, degree=3).matrix(jnp.array([[1.0]])).tolist()
    [[8.0]]
    """

    variance: ArrayField
    offset: ArrayField = cast("ArrayField", 1.0)
    degree: int = 2
    checks = by_field(variance=positive_per_input, offset=nonnegative_scalar, degree=check_count)

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return (inner_products(X1 * per_input("variance", self.variance, X1), X2) + self.offset) ** self.degree

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return (jnp.sum(per_input("variance", self.variance, X) * X * X, axis=1) + self.offset) ** self.degree


@same_fields
class Constant(OfOneVariance):
    """One unknown level, the same everywhere: ``variance`` for every pair.

    Parameters
    ----------
    variance
        Positive scalar.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.Constant(2.0).matrix(jnp.zeros((2, 1))).tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        dtype = jnp.result_type(self.variance, X1, X2)
        return jnp.broadcast_to(self.variance.astype(dtype), (X1.shape[0], X2.shape[0]))

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        return self._cross(X, X)


# J_n of Cho and Saul as functions of c = cos(angle). dJ_1/dc = J_0 and dJ_2/dc = 4 J_1 are finite for
# parallel inputs, where the angle itself has no derivative. J_0 has a kink there: its derivative is 0.


def _angle(cosine: Array) -> tuple[Array, Array]:
    bounded = jnp.clip(cosine, -1, 1)
    return jnp.arccos(bounded), jnp.sqrt((1 - bounded) * (1 + bounded))


@jax.custom_jvp
def _arc_0(cosine: Array) -> Array:
    """``pi - angle``."""
    return math.pi - _angle(cosine)[0]


_arc_0.defjvps(lambda change, _, cosine: safe_root((1 - cosine) * (1 + cosine))[1] * change)


@jax.custom_jvp
def _arc_1(cosine: Array) -> Array:
    """``sin(angle) + (pi - angle) cos(angle)``."""
    angle, sine = _angle(cosine)
    return sine + (math.pi - angle) * cosine


_arc_1.defjvps(lambda change, _, cosine: _arc_0(cosine) * change)


@jax.custom_jvp
def _arc_2(cosine: Array) -> Array:
    """``3 sin(angle) cos(angle) + (pi - angle) (1 + 2 cos^2(angle))``."""
    angle, sine = _angle(cosine)
    return 3 * sine * cosine + (math.pi - angle) * (1 + 2 * cosine * cosine)


_arc_2.defjvps(lambda change, _, cosine: 4 * _arc_1(cosine) * change)


@value_type(static=("order",))
class ArcCosine(Kernel):
    """Functions of an infinitely wide neural network with one hidden layer: the arc-cosine kernel (Cho and Saul 2009).

    ``variance / pi * (|x| |y|)^order * J_order(angle)`` with ``|x|^2 = sum_d weight_variance_d
    x_d^2 + bias_variance`` and ``angle`` that between ``x`` and ``y`` in the same inner product (their equation 3).

    Parameters
    ----------
    variance
        Positive scalar.
    weight_variance
        Positive scalar or ``(D,)``.
    bias_variance
        Positive scalar (zero would leave the angle at the origin undefined).
    order
        0 (steps), 1 (rectified linear) or 2 (rectified quadratic), part of the structure.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.ArcCosine(1.0).diagonal(jnp.array([[0.0], [2.0]])).round(4).tolist()
    [1.0, 5.0]
    """

    variance: ArrayField
    weight_variance: ArrayField = cast("ArrayField", 1.0)
    bias_variance: ArrayField = cast("ArrayField", 1.0)
    order: int = 1
    checks = by_field(variance=positive_scalar, weight_variance=positive_per_input, bias_variance=positive_scalar)

    def __post_init__(self) -> None:
        if isinstance(self.order, bool) or not isinstance(self.order, int) or self.order not in (0, 1, 2):
            fail("order", "0, 1 or 2", repr(self.order), "Pass order=1 for rectified linear units.")
        super().__post_init__()

    @property
    def without_slopes(self) -> tuple[str, str] | None:  # type: ignore[override]
        """Functions of order 0 are steps."""
        return None if self.order else ("of order 0, whose functions are steps", "Pass order=1 or order=2.")

    def _squared_norm(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.sum(per_input("weight_variance", self.weight_variance, X) * X * X, axis=1) + self.bias_variance

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        weighted = X1 * per_input("weight_variance", self.weight_variance, X1)
        norms = jnp.sqrt(self._squared_norm(X1))[:, None] * jnp.sqrt(self._squared_norm(X2))[None, :]
        cosine = (inner_products(weighted, X2) + self.bias_variance) / norms
        angular = (_arc_0, _arc_1, _arc_2)[self.order](cosine)
        return self.variance / math.pi * norms**self.order * angular

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        at_zero = (1, 1, 3)[self.order]  # J_order(0) / pi
        return self.variance * at_zero * self._squared_norm(X) ** self.order


@same_fields
class CategoryDelta(OfOneVariance):
    """Independent levels of a category: ``variance`` where all columns of two points are equal, else 0.

    The inputs hold category codes as floating point numbers, whole ones, which must be equal exactly. A value between
    two codes, as k-means makes of codes that it does not know for such, is an error where it is known.

    Parameters
    ----------
    variance
        Positive scalar, the prior variance of each level.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.CategoryDelta(2.0).matrix(jnp.array([[0.0], [1.0], [0.0]])).tolist()
    [[2.0, 0.0, 2.0], [0.0, 2.0, 0.0], [2.0, 0.0, 2.0]]
    """

    without_slopes = CODES

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        def check(values: np.ndarray) -> None:
            if (wrong := values != np.round(values)).any():
                fail(INPUTS, "category codes, whole numbers", f"{float(values[wrong][0]):.9g}", BETWEEN)

        for X in (X1, X2):
            when_known(check, X)
        return self.variance * jnp.all(X1[:, None, :] == X2[None, :, :], axis=-1).astype(X1.dtype)


INPUTS = "inputs of a kernel of categories"
BETWEEN = (
    "Give the column of codes as it is; inducing inputs by rows, or by "
    "ngp.inducing.kmeans(key, X, M, categorical=[column])."
)


def codes(X: Float[Array, "N D"], count: int) -> tuple[Int[Array, " N"], Bool[Array, " N"]]:
    """Category codes of the inputs, and which of them are codes."""
    if X.shape[1] != 1:
        cure = "Choose the column of codes with kernel.on(column)."
        fail(INPUTS, "one column of category codes", f"shape {X.shape}", cure)
    column = X[:, 0]

    def check(values: np.ndarray) -> None:
        wrong = (values != np.round(values)) | (values < 0) | (values >= count)
        if np.any(wrong):
            code = float(values[wrong][0])
            cure = "Number the categories from 0, and give the kernel a weight, or a row of weights, for each."
            cure = cure if code == round(code) else BETWEEN
            fail(INPUTS, f"category codes 0, 1, …, {count - 1}", f"{code:.9g}", cure)

    when_known(check, column)
    valid = (column == jnp.round(column)) & (column >= 0) & (column < count)
    return jnp.where(valid, column, 0).astype(int), valid


def at_codes(values: Float[Array, " C *rest"], X: Float[Array, "N D"]) -> Float[Array, " N *rest"]:
    """What each category has, for each row of codes; NaN where there is no such category."""
    rows, valid = codes(X, values.shape[0])
    picked = values[rows].astype(jnp.result_type(values, X))
    return jnp.where(valid.reshape(-1, *[1] * (values.ndim - 1)), picked, jnp.nan)


class OfCodes(Kernel):
    """A kernel of one column of category codes: a table of their covariances."""

    without_slopes = CODES

    @abc.abstractmethod
    def covariance(self) -> Float[Array, "C C"]:
        """The covariance of the categories."""

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        table = self.covariance()
        (rows, valid_rows), (columns, valid_columns) = (codes(X, table.shape[0]) for X in (X1, X2))
        values = table[rows[:, None], columns[None, :]].astype(jnp.result_type(table, X1, X2))
        return jnp.where(valid_rows[:, None] & valid_columns[None, :], values, jnp.nan)

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return at_codes(jnp.diagonal(self.covariance()), X)


@value_type()
class Coregion(OfCodes):
    """Correlated levels of a category, or outputs that share functions: ``B = weights weights^T + diag(diagonal)``.

    The input is one column of codes 0, 1, …, C-1 as floating point numbers; choose it with
    ``.on(column)``. A code out of range, or between two codes, is an error where it is known and
    gives NaN where it is traced.

    Parameters
    ----------
    weights
        ``(C, R)``: how the C categories share R unknown functions.
    diagonal
        Scalar or ``(C,)``, zero or positive: what each category has of its own.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.Coregion(jnp.array([[1.0], [2.0]]), 0.5)
    >>> kernel.matrix(jnp.array([[0.0], [1.0]])).tolist()
    [[1.5, 2.0], [2.0, 4.5]]
    """

    weights: ArrayField
    diagonal_values: ArrayField

    def __init__(self, weights: ArrayLike, diagonal: ArrayLike) -> None:
        matrix = check_floating("weights", weights)
        if matrix.ndim != 2 or matrix.size == 0:
            cure = "For one shared function pass weights[:, None]."
            fail("weights", "of shape (C, R): categories by shared functions", f"shape {matrix.shape}", cure)
        values = check_nonnegative("diagonal", diagonal)
        if values.shape not in ((), (matrix.shape[0],)):
            cure = "Pass one value for each row of weights."
            fail("diagonal", f"a scalar or of shape ({matrix.shape[0]},)", f"shape {values.shape}", cure)
        store(self, weights=matrix, diagonal_values=values)

    def covariance(self) -> Float[Array, "C C"]:
        """``B``, the covariance of the categories."""
        identity = jnp.eye(self.weights.shape[0], dtype=self.weights.dtype)
        products = inner_products(self.weights, self.weights)
        return 0.5 * (products + products.T) + identity * jnp.reshape(self.diagonal_values, (1, -1))


# --------------------------------------------------------------------------------------
# A kernel for one column of category codes whose functions average to zero: the main effect of a category.


@value_type()
class ZeroMeanCategory(OfCodes):
    """The effect of a category around its average: independent levels whose average under ``probabilities`` is zero.

    ``k0(i, j) = variance * (delta_ij - p_i p_j / sum_l p_l^2)``: what `ZeroMean` is for numbers
    (mathematics.md section 2.5), with the frequencies ``p`` of the categories as the measure.

    Parameters
    ----------
    variance
        Prior variance of a level before it is centred.
    probabilities
        ``(C,)``, positive, summing to 1: codes are 0, 1, …, C-1.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.ZeroMeanCategory(2.0, jnp.array([0.5, 0.5]))
    >>> kernel.matrix(jnp.array([[0.0], [1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    variance: ArrayField
    probabilities: ArrayField

    def __post_init__(self) -> None:
        weights = check_positive("probabilities", self.probabilities)
        if weights.ndim != 1 or weights.shape[0] < 2:
            cure = "Pass one probability for each level, such as jnp.full(C, 1 / C)."
            fail("probabilities", "of shape (C,) for two or more categories", f"shape {weights.shape}", cure)
        check_distribution("probabilities", weights)
        store(self, variance=positive_scalar("variance", self.variance), probabilities=weights)

    def quadrature(self) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        """The codes and their probabilities: nodes and weights of the measure."""
        count = self.probabilities.shape[0]
        return jnp.asarray(np.arange(count), self.probabilities.dtype), self.probabilities

    def covariance(self) -> Float[Array, "C C"]:
        return self.variance * around_average(self.probabilities)


def around_average(p: Values, xp: ModuleType = jnp) -> Values:
    """``I - p p^T / |p|^2``: covariances of levels of unit variance whose average under ``p`` is zero, a projection."""
    return xp.eye(p.shape[0], dtype=p.dtype) - xp.outer(p, p) / xp.sum(p**2)
