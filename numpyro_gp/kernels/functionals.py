"""Rows that are linear functionals of a function in place of its values.

``L f = sum_q w_q f(x_q) + d_q . grad f(x_q)``: an average, a total, a slope, a difference of any of them
(mathematics.md section 15.1). A row holds the Q weights, then the Q points, then the Q directions if it has slopes. It
is a row of one array, so that all that cuts rows, copies them and sends them to devices does the same with these. Its
length says what it holds: D for a plain point, an even number without slopes, an odd number with them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, store, value_type
from numpyro_gp.checks import check_count, check_floating, check_points, check_values, fail, known
from numpyro_gp.kernels.base import Active, Kernel, KernelField, KernelLike, as_kernel, by_field, kernel_field
from numpyro_gp.linalg import matmul

Values_ = TypeVar("Values_")


class FunctionalTerms(NamedTuple):
    """What rows are made of; None for weights of one, and where there are no slopes."""

    points: Float[Array, "*batch N Q D"]
    weights: Any  # (*batch, N, Q)
    directions: Float[Array, "*batch N Q D"] | None


def terms(rows: Float[Array, "*batch N W"], columns: int) -> FunctionalTerms:
    """Weights, points and directions of rows; plain points ``(..., N, D)`` are one term each."""
    width = rows.shape[-1]
    if width == columns:
        return FunctionalTerms(rows[..., None, :], None, None)
    has_slopes = width % 2 == 1
    each = 1 + columns * (1 + has_slopes)
    count = width // each
    flat = rows[..., count : each * count].reshape(*rows.shape[:-1], 1 + has_slopes, count, columns)
    return FunctionalTerms(flat[..., 0, :, :], rows[..., :count], flat[..., 1, :, :] if has_slopes else None)


def applied(
    function: Callable[[Array], Values_], rows: Float[Array, "*batch N W"], columns: int, axis: int = -1
) -> Values_:
    """``L_n g`` of a function ``g`` with a value for each of ``(..., N, D)`` points, on ``axis`` (from the end).

    The function's value at a point must depend on that point alone: slopes of all rows are one directional derivative.
    """
    at = terms(rows, columns)
    if (of_terms := at.weights) is None:
        return function(rows)
    points = at.points.reshape(*rows.shape[:-2], -1, columns)
    if at.directions is None:
        values, slopes = function(points), None
    else:
        values, slopes = jax.jvp(function, (points,), (at.directions.reshape(points.shape),))
    weights = of_terms.reshape(points.shape[:-1])

    def total(value: Array, slope: Array | float = 0.0) -> Array:
        scale = weights.reshape((1,) * (value.ndim + axis + 1 - weights.ndim) + weights.shape + (1,) * (-axis - 1))
        place = value.ndim + axis
        each = (scale * value + slope).reshape(*value.shape[:place], *of_terms.shape[-2:], *value.shape[place + 1 :])
        return jnp.sum(each, axis=place + 1)

    return jax.tree.map(total, values) if slopes is None else jax.tree.map(total, values, slopes)


@value_type(static=("columns", "slopes"))
class Functional:
    """Linear functionals of a function, one in each row: ``L_n f = sum_q w_nq f(x_nq) + d_nq . grad f(x_nq)``.

    They go wherever inputs ``X`` go: ``f(L)`` is the distribution of ``L f``, and so for ``f.joint``, ``f.draw``, fixed
    functions, ``inducing=`` and predictions. It is a pytree of one array with a row for each: index it by rows, as
    ``L[idx]``. Functionals of equally many rows add, subtract, and multiply by numbers; an array stands for the values.

    Parameters
    ----------
    points : array (..., N, Q, D)
        Q points in each row.
    weights : array (..., N, Q) or (Q,)
        Weights of the values there.
    directions : array (..., N, Q, D), optional
        Directions of slopes there, in units of the inputs; None for no slopes.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.array([[0.0], [1.0], [3.0]])
    >>> steps = ngp.functionals.Values(X[1:]) - ngp.functionals.Values(X[:-1])
    >>> steps.shape, steps.of(lambda X: X[..., 0] ** 2).tolist()
    ((2, 1), [1.0, 8.0])
    """

    rows: ArrayField
    columns: int
    slopes: tuple[int, ...]

    def __init__(self, points: ArrayLike, weights: ArrayLike, directions: ArrayLike | None = None) -> None:
        at = check_floating("points", points)
        if at.ndim < 3 or at.size == 0:
            cure = "Put the points of a row on an axis of their own: points[:, None, :] for one point in each row."
            fail("points", "a non-empty array of shape (..., N, Q, D)", f"shape {at.shape}", cure)
        along = None if directions is None else check_floating("directions", directions)
        if along is not None and along.shape != at.shape:
            cure = "Pass a direction for each point, zero where the value counts alone."
            fail("directions", f"of the shape of the points, {at.shape}", f"shape {along.shape}", cure)
        each, wanted = check_floating("weights", weights), at.shape[:-1]
        if each.shape not in (wanted, wanted[-1:]):
            required = f"of shape {wanted}, or {wanted[-1:]} for all rows"
            fail("weights", required, f"shape {each.shape}", "Pass one weight for each point.")
        self._hold(at, jnp.broadcast_to(each, wanted), along)

    def _hold(
        self, points: Array, weights: Array, directions: Array | None, slopes: tuple[int, ...] | None = None
    ) -> None:
        """Keep rows of these parts; ``slopes`` are the columns in which they have slopes, as far as is known."""
        if directions is None:
            slopes = ()
        elif slopes is None:
            seen = known(directions)
            every = range(points.shape[-1])
            slopes = tuple(d for d in every if seen is None or np.any(seen[..., d]))
        parts = [weights, *(x.reshape(*x.shape[:-2], -1) for x in (points, directions) if x is not None)]
        parts = [part.astype(points.dtype) for part in parts]
        if sum(part.shape[-1] for part in parts) % 2 != (directions is not None):
            parts.append(jnp.zeros((*weights.shape[:-1], 1), points.dtype))
        store(self, rows=jnp.concatenate(parts, axis=-1), columns=points.shape[-1], slopes=slopes)

    __array_ufunc__ = None  # so that NumPy hands ``X - L`` and ``c * L`` over

    @property
    def shape(self) -> tuple[int, ...]:
        """That of as many plain points, ``(..., N, D)``."""
        return (*self.rows.shape[:-1], self.columns)

    @property
    def ndim(self) -> int:
        """Number of axes of as many plain points."""
        return self.rows.ndim

    def __len__(self) -> int:
        return self.rows.shape[0]

    def __iter__(self) -> Iterator[Self]:
        """Row by row; JAX clamps a number beyond the last row, so that Python's own way to go over rows never ends."""
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        cure = "Pass the points themselves, or use this where a model, `gp_regression` or `predict` takes inputs."
        fail("inputs", "an array of points", f"a Functional of {len(self)} rows", cure, TypeError)

    def __getitem__(self, index: object) -> Self:
        """Some of the rows; an index has no place for columns."""
        places = index if isinstance(index, tuple) else (index,)
        rest = slice(None) if any(place is Ellipsis for place in places) else Ellipsis
        return jax.tree.map(lambda rows: rows[(*places, rest)], self)

    @property
    def terms(self) -> FunctionalTerms:
        """Points ``(..., N, Q, D)``, weights ``(..., N, Q)``, and directions as the points or None."""
        return terms(self.rows, self.columns)

    @property
    def in_full(self) -> tuple[Array, Array, Array]:
        """Points, weights and directions, which are zero where there are no slopes."""
        points, weights, directions = self.terms
        return points, weights, jnp.zeros_like(points) if directions is None else directions

    def of(self, function: Callable[[Array], Array], axis: int = -1) -> Array:
        """``L_n g`` of a function ``g`` of points ``(..., N, D)``, each alone; values have the rows on ``axis``."""
        return applied(function, self.rows, self.columns, axis)

    def __add__(self, other: "Functional | ArrayLike") -> "Functional":
        other = as_functional(other)
        if self.shape != other.shape:
            cure = "Add row to row; ngp.functionals.stack puts rows below each other."
            fail("the other functional", f"of shape {self.shape}", f"shape {other.shape}", cure)
        pair = [side.terms for side in of_one_form([self, other])]
        points = jnp.concatenate([at.points for at in pair], -2)
        weights = jnp.concatenate([at.weights for at in pair], -1)
        directions = [at.directions for at in pair if at.directions is not None]
        slopes = tuple(sorted({*self.slopes, *other.slopes}))
        return _functional(points, weights, jnp.concatenate(directions, -2) if directions else None, slopes)

    def __mul__(self, factor: ArrayLike) -> "Functional":
        """``c L``, of a number or of one for each row."""
        scale, at = check_floating("the factor", factor), self.terms
        if scale.shape not in ((), self.shape[:-1]):
            cure = "Pass a number, or one for each row."
            fail("the factor", f"a number or of shape {self.shape[:-1]}", f"shape {scale.shape}", cure)
        scale = jnp.broadcast_to(scale, self.shape[:-1])[..., None].astype(self.rows.dtype)
        along = None if at.directions is None else scale[..., None] * at.directions
        return _functional(at.points, scale * at.weights, along, self.slopes)

    __rmul__ = __mul__

    def __radd__(self, other: ArrayLike) -> "Functional":
        return as_functional(other) + self

    def __rsub__(self, other: ArrayLike) -> "Functional":
        return as_functional(other) - self

    def __neg__(self) -> "Functional":
        return -1.0 * self

    def __sub__(self, other: "Functional | ArrayLike") -> "Functional":
        return self + (-as_functional(other))


def _functional(
    points: Array, weights: Array, directions: Array | None, slopes: tuple[int, ...] | None = None
) -> Functional:
    functional = object.__new__(Functional)
    functional._hold(points, weights, directions, slopes)
    return functional


def as_functionals(rows: Array, columns: int | None) -> Functional | Array:
    """Functionals again of their rows; plain points, or rows of anything where no number of columns is given."""
    if columns is None or rows.shape[-1] == columns:
        return rows
    return _functional(*terms(rows, columns))


@value_type(static=("columns", "slopes"))
class Values(Functional):
    """Values as functionals, ``L_n f = f(x_n)``: to stack with slopes and averages, and to subtract.

    Parameters
    ----------
    X : array (..., N, D)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.array([[0.0], [1.0]])
    >>> ngp.functionals.Values(X).of(lambda X: jnp.exp(X[..., 0])).round(3).tolist()
    [1.0, 2.718]
    """

    def __init__(self, X: ArrayLike) -> None:
        points = check_points("X", X, leading=True)
        self._hold(points[..., None, :], jnp.ones((*points.shape[:-1], 1), points.dtype), None)


def stack(functionals: Sequence[Functional | ArrayLike]) -> Functional:
    """Rows of several kinds below each other: values at arrays of points, slopes, averages.

    Parameters
    ----------
    functionals : sequence of Functional or array
        Of the same columns. An array ``(..., N, D)`` stands for the values there.

    Returns
    -------
    Functional
        The rows of the first, then those of the next. Rows of fewer points are filled up with weights of zero.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.array([[0.0], [1.0]])
    >>> both = ngp.functionals.stack([X, ngp.functionals.Derivative(X, 0)])
    >>> both.of(lambda X: 3 * X[..., 0]).tolist()
    [0.0, 3.0, 3.0, 3.0]
    """
    if not isinstance(functionals, (list, tuple)) or not functionals:
        got = f"a {type(functionals).__name__}"
        cure = "Pass stack([X, Derivative(X, 0)])."
        fail("functionals", "a list of functionals or arrays of points", got, cure, TypeError)
    parts = of_one_form(functionals)
    if len({(part.columns, part.shape[:-2]) for part in parts}) > 1:
        got = f"shapes {[part.shape for part in parts]}"
        fail("functionals", "alike but for the number of rows", got, "Pass functionals of the same inputs.")
    whole = object.__new__(Functional)
    slopes = tuple(sorted({column for part in parts for column in part.slopes}))
    store(whole, rows=jnp.concatenate([part.rows for part in parts], axis=-2), columns=parts[0].columns, slopes=slopes)
    return whole


def as_functional(X: Functional | ArrayLike) -> Functional:
    """A functional as it is; the values at an array of points."""
    return X if isinstance(X, Functional) else Values(X)


def of_one_form(functionals: Sequence[Functional | ArrayLike]) -> list[Functional]:
    """The same functionals with equally many terms, all with directions if any has them."""
    parts = [as_functional(functional) for functional in functionals]
    most = max(part.terms.points.shape[-2] for part in parts)
    with_slopes, filled = any(part.terms.directions is not None for part in parts), []
    for part in parts:
        points, weights, along = part.terms
        missing = most - points.shape[-2]
        pad = [(0, 0)] * (points.ndim - 2) + [(0, missing)]
        along = jnp.zeros_like(points) if along is None and with_slopes else along
        along = None if along is None else jnp.pad(along, [*pad, (0, 0)])
        # Copies of the last point, which have no weight: a point of zeros may be none that a kernel knows.
        points = jnp.concatenate([points, jnp.repeat(points[..., -1:, :], missing, axis=-2)], axis=-2)
        filled.append(_functional(points, jnp.pad(weights, pad), along, part.slopes))
    return filled


# --------------------------------------------------------------------------------------
# Functionals by their kind: slopes, averages.


@value_type(static=("columns", "slopes"))
class Derivative(Functional):
    """Slopes in one input, ``L_n f = df/dx_column (x_n)``.

    Parameters
    ----------
    X : array (..., N, D)
    column : int
        The input in which they are taken, counted from 0.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.array([[1.0, 5.0], [2.0, 5.0]])
    >>> slopes = ngp.functionals.Derivative(X, 0)
    >>> slopes.shape, slopes.of(lambda X: X[..., 0] ** 2 * X[..., 1]).tolist()
    ((2, 2), [10.0, 20.0])
    """

    def __init__(self, X: ArrayLike, column: int) -> None:
        points, column = check_points("X", X, leading=True), check_count("column", column, minimum=0)
        if column >= points.shape[-1]:
            fail("column", f"less than {points.shape[-1]}, the number of columns of X", column, "Count columns from 0.")
        unit = jnp.asarray(np.arange(points.shape[-1]) == column, points.dtype)
        directions = jnp.broadcast_to(unit, points.shape)[..., None, :]
        self._hold(points[..., None, :], jnp.zeros((*points.shape[:-1], 1), points.dtype), directions, (column,))


@value_type(static=("columns", "slopes"))
class Average(Functional):
    """Averages and totals over points, ``L_n f = sum_q w_nq f(x_nq)``: over bins, regions, windows of exposure.

    Points and weights of a quadrature rule make it an integral. Weights are taken as they are: those that sum to one
    make a mean, widths or areas make a total.

    Parameters
    ----------
    points : array (..., N, Q, D)
        Q points of each row.
    weights : array (..., N, Q) or (Q,), optional
        Zero or positive; ``1 / Q`` each where they are left out.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> points = jnp.array([[[0.0], [1.0], [2.0]], [[2.0], [3.0], [4.0]]])   # two rows of three points
    >>> ngp.functionals.Average(points).of(lambda X: X[..., 0]).round(6).tolist()
    [1.0, 3.0]
    """

    def __init__(self, points: ArrayLike, weights: ArrayLike | None = None) -> None:
        at = check_floating("points", points)
        if weights is None:
            weights = jnp.full(at.shape[-2:-1], 1 / max(1, *at.shape[-2:-1]), at.dtype)
        cure = "For differences subtract one average from another, or write out an ngp.functionals.Functional."
        checked = check_values("weights", weights, lambda array: array >= 0, "zero or positive", cure)
        Functional.__init__(self, at, checked)


# --------------------------------------------------------------------------------------
# What kernels say of them: covariances of slopes, averages and values (mathematics.md section 15.1).


@value_type(static=("columns",))
class OfFunctionals(Kernel):
    """The covariance of functionals of a function with this kernel, ``cov(L f, L' f) = L L' k``, of plain points too.

    Both are taken by directional derivatives of ``k(X1, X2)``, each row along its own direction, so that the price is
    some four Gram matrices of the points, whatever D is.
    """

    kernel: KernelField
    columns: int
    checks = by_field(kernel=kernel_field)

    def matrix(self, X1: ArrayLike, X2: ArrayLike | None = None) -> Float[Array, "N1 N2"]:
        """Covariances of rows, of which those of the two sides may be of several kinds."""
        if X2 is None or X2 is X1:
            return self._gram(check_points("X1", X1))
        return self._cross(check_points("X1", X1), check_points("X2", X2))

    def _cross(self, X1: Float[Array, "N1 W1"], X2: Float[Array, "N2 W2"]) -> Float[Array, "N1 N2"]:
        def of_second(points: Array) -> Array:
            return applied(lambda others: self.kernel._cross(points, others), X2, self.columns)

        return applied(of_second, X1, self.columns, axis=-2)

    def _gram(self, X: Float[Array, "N W"]) -> Float[Array, "N N"]:
        return self.kernel._gram(X) if X.shape[1] == self.columns else super()._gram(X)

    def _diagonal(self, X: Float[Array, "N W"]) -> Float[Array, " N"]:
        if X.shape[1] == self.columns:
            return self.kernel._diagonal(X)
        if X.shape[1] % 2:
            return jax.vmap(lambda row: self._cross(row[None], row[None])[0, 0])(X)

        def variance(points: Array, weights: Any) -> Array:
            return matmul(matmul(weights, self.kernel._gram(points)), weights)

        return jax.vmap(variance)(*terms(X, self.columns)[:2])


def covariance(
    kernel: KernelLike, first: Functional | ArrayLike, second: Functional | ArrayLike | None = None
) -> Float[Array, "N1 N2"]:
    """Covariances of functionals of a function with this kernel: ``cov(L_i f, L'_j f)``.

    Parameters
    ----------
    kernel : Kernel or callable
        Any whose functions have the slopes that are asked for; a callable must be twice differentiable.
    first, second : Functional or array (N, D)
        Arrays stand for values. Without the second, those of the first among themselves.

    Returns
    -------
    Array (N1, N2)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> slope = ngp.functionals.Derivative(jnp.array([[0.0]]), 0)
    >>> ngp.functionals.covariance(ngp.kernels.RBF(1.0, 0.5), slope).tolist()   # variance / lengthscale^2
    [[4.0]]
    """
    kernel, sides = as_kernel(kernel), [side for side in (first, second) if side is not None]
    shapes = [side.shape for side in map(as_functional, sides)]
    if len({shape[-1] for shape in shapes}) > 1:
        fail("second", f"of {shapes[0][-1]} columns, as the first", f"shape {shapes[1]}", "Pass the same inputs.")
    for side in sides:
        check_slopes(kernel, getattr(side, "slopes", ()))
    rows = [side.rows if isinstance(side, Functional) else side for side in sides]
    return OfFunctionals(kernel, shapes[0][-1]).matrix(*rows)


def check_slopes(kernel: Kernel, columns: Sequence[int]) -> None:
    """Refuse a kernel whose functions have no slopes in these columns."""
    if not columns:
        return
    places = columns
    if isinstance(kernel, Active):
        places = [place for place, dim in enumerate(kernel.dims) if dim in columns]
    for part in kernel.parts.values():
        check_slopes(part, places)
    if kernel.without_slopes is not None:
        why, cure = kernel.without_slopes
        got = f"{type(kernel).__name__}, {why}"
        fail(f"the kernel of a slope in column {columns[0]}", "one whose functions have a slope", got, cure)
