"""Probability measures over the inputs, with their quadrature: functions of `ZeroMean` integrate to zero under one."""

import math
from typing import Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, store, value_type
from numpyro_gp.checks import check_count, check_floating, check_nonnegative, fail, known, when_known
from numpyro_gp.kernels.base import positive_per_input, require_axes

# Nodes and weights of a quadrature.
Rule = tuple[Float[Array, " Q"], Float[Array, " Q"]]


def _floating_axis(argument: str, value: ArrayLike) -> Array:
    return require_axes(argument, check_floating(argument, value), 1)


def legendre(order: int) -> tuple[Float[np.ndarray, " {order}"], Float[np.ndarray, " {order}"]]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return 0.5 * (nodes + 1), 0.5 * weights


def _piecewise_rule(ends: Float[Array, " E"], order: int) -> Rule:
    """Gauss-Legendre points and weights on the intervals between sorted ``ends``, one after the other."""
    nodes, weights = (jnp.asarray(rule, ends.dtype)[None, :] for rule in legendre(order))
    lengths = jnp.diff(ends)[:, None]
    return (ends[:-1, None] + lengths * nodes).reshape(-1), (lengths * weights).reshape(-1)


def _interior(breaks: ArrayLike | None, like: Array) -> Float[Array, " B"]:
    return jnp.zeros((0,), like.dtype) if breaks is None else jnp.reshape(jnp.asarray(breaks, like.dtype), (-1,))


def check_distribution(argument: str, weights: Array) -> None:
    """Refuse known weights that do not sum to 1 over the last axis."""

    def check(values: np.ndarray) -> None:
        if not np.allclose(total := values.sum(-1), 1, rtol=0, atol=1.1e-4):
            cure = f"Divide by the sum: {argument} / {argument}.sum()."
            fail(argument, "a distribution that sums to 1", f"a sum of {np.ravel(total)[0]:.6g}", cure)

    when_known(check, weights)


class OfColumns:
    """A measure of one column, or of several that are independent: arrays of one axis more."""

    axes = 0  # of the arrays of one column

    def column(self, index: int) -> Self:
        """The one-dimensional measure of one input; what has no axis for columns serves all."""
        return jax.tree.map(lambda value: value[index] if value.ndim > self.axes else value, self)


@value_type()
class Uniform(OfColumns):
    """Inputs that are spread evenly: the uniform probability measure on ``[low, high]``, for `ZeroMean` kernels.

    Parameters
    ----------
    low, high
        Scalars or ``(D,)``: the ends of the interval in each column.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> nodes, weights = ngp.kernels.Uniform(0.0, 2.0).quadrature()
    >>> round(float((weights * nodes**2).sum()), 12)
    1.333333333333
    """

    low: ArrayField = cast("ArrayField", 0.0)
    high: ArrayField = cast("ArrayField", 1.0)

    def __post_init__(self) -> None:
        low, high = _floating_axis("low", self.low), _floating_axis("high", self.high)

        def check(first: np.ndarray, last: np.ndarray) -> None:
            if not np.all(first < last):
                fail("high", "greater than low", f"low={first.tolist()}, high={last.tolist()}", "Swap the two ends.")

        when_known(check, low, high)
        store(self, low=low, high=high)

    def quadrature(self, breaks: ArrayLike | None = None, order: int = 16) -> Rule:
        """Nodes and weights (which sum to 1) of a one-dimensional measure.

        Gauss-Legendre with ``order`` nodes on each piece between the ``breaks``, the points where
        the integrand has a kink; ``(len(breaks) + 1) * order`` nodes.
        """
        low, high = (jnp.reshape(value, (1,)) for value in (self.low, self.high))
        inside = jnp.clip(_interior(breaks, low), low, high)
        nodes, weights = _piecewise_rule(jnp.concatenate([low, jnp.sort(inside), high]), check_count("order", order))
        return nodes, weights / (high - low)


@value_type()
class Gaussian(OfColumns):
    """Inputs that are normally distributed: the probability measure ``N(mean, sd^2)``, for `ZeroMean` kernels.

    Parameters
    ----------
    mean, sd
        Scalars or ``(D,)``: mean and standard deviation in each column.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> nodes, weights = ngp.kernels.Gaussian(1.0, 2.0).quadrature()
    >>> round(float((weights * nodes**2).sum()), 6)
    5.0
    """

    mean: ArrayField = cast("ArrayField", 0.0)
    sd: ArrayField = cast("ArrayField", 1.0)

    def __post_init__(self) -> None:
        store(self, mean=_floating_axis("mean", self.mean), sd=positive_per_input("sd", self.sd))

    def quadrature(self, breaks: ArrayLike | None = None, order: int = 16) -> Rule:
        """Nodes and weights of a one-dimensional measure, as :meth:`Uniform.quadrature`.

        Pieces reach nine standard deviations from the mean and are at most 1.5 of them long.
        """
        mean, sd = (jnp.reshape(value, (1,)) for value in (self.mean, self.sd))
        edges = mean + sd * jnp.asarray(np.linspace(-9, 9, 13), mean.dtype)
        inside = jnp.clip(_interior(breaks, edges), edges[:1], edges[-1:])
        nodes, weights = _piecewise_rule(jnp.sort(jnp.concatenate([edges, inside])), check_count("order", order))
        density = jnp.exp(-0.5 * ((nodes - self.mean) / self.sd) ** 2) / (self.sd * math.sqrt(2 * math.pi))
        return nodes, weights * density


@value_type()
class Empirical(OfColumns):
    """Inputs as they occur: the measure with weights on the values of the data themselves, for `ZeroMean` kernels.

    Functions average to zero over the data. `of` makes it of a column: all its values where they are few, else the
    means of bins with as much weight each, so that a kernel costs some 32 values for each row.

    Parameters
    ----------
    points
        ``(Q,)``, or ``(D, Q)`` with those of each column.
    weights : optional
        Of the same shape, zero or positive, summing to 1 over the last axis; equal ones where nothing is said.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> measure = ngp.kernels.Empirical(jnp.array([0.0, 1.0, 5.0]))
    >>> kernel = ngp.kernels.ZeroMean(ngp.kernels.Matern52(1.0, 2.0), measure)
    >>> mean = kernel.matrix(jnp.array([[0.3]]), measure.points[:, None]) @ measure.weights
    >>> bool(abs(mean[0]) < 1e-6)
    True
    """

    points: ArrayField
    weights: ArrayField = cast("ArrayField", None)
    axes = 1

    def __post_init__(self) -> None:
        points = require_axes("points", check_floating("points", self.points), 2)
        if points.ndim == 0 or points.shape[-1] == 0:
            fail("points", "of shape (Q,) or (D, Q)", f"shape {points.shape}", "Pass Empirical.of(column).")
        if self.weights is None:
            store(self, points=points, weights=jnp.full(points.shape, 1 / points.shape[-1], points.dtype))
            return
        weights = check_nonnegative("weights", self.weights)
        if weights.shape != points.shape:
            cure = "Pass a weight for each point, or leave weights out."
            fail("weights", f"of shape {points.shape}, as points", f"shape {weights.shape}", cure)
        check_distribution("weights", weights)
        store(self, points=points, weights=weights)

    @classmethod
    def of(cls, column: ArrayLike, weights: ArrayLike | None = None, most: int = 32) -> "Empirical":
        """The measure of a column of data ``(N,)``: exact up to ``most`` different values, else by that many bins."""
        if known(checked := check_floating("column", column)) is None:
            cure = "Make the measure outside of the model, of the training rows."
            fail("column", "known", "a traced array", cure, TypeError)
        x = np.asarray(checked)
        if x.ndim != 1 or not x.size:
            fail("column", "of shape (N,), one value for each row", f"shape {x.shape}", "Pass one column: X[:, 0].")
        w = np.ones_like(x) if weights is None else np.asarray(check_nonnegative("weights", weights), x.dtype)
        if w.shape != x.shape or not w.sum() > 0:
            fail("weights", f"of shape {x.shape} and not all zero", f"shape {w.shape}", "Leave weights out.")
        values, place = np.unique(x, return_inverse=True)
        mass = np.bincount(place, w) / w.sum()
        if len(values) > check_count("most", most):
            number = np.minimum((most * (np.cumsum(mass) - mass / 2)).astype(int), most - 1)
            total, first = np.bincount(number, mass), np.bincount(number, mass * values)
            values, mass = first[total > 0] / total[total > 0], total[total > 0]
        # In their type before JAX takes them, which would compile a program that converts them.
        return cls(*(jnp.asarray(np.asarray(array, x.dtype)) for array in (values, mass / mass.sum())))

    def quadrature(self, breaks: ArrayLike | None = None, order: int = 16) -> Rule:  # noqa: ARG002
        """The points and their weights, of a one-dimensional measure: exact for every function."""
        return self.points, self.weights


Measure = Uniform | Gaussian | Empirical


def mean_of_measure(measure: Measure) -> Array:
    """The mean of each column, ``()`` or ``(D,)``."""
    if isinstance(measure, Gaussian):
        return measure.mean
    if isinstance(measure, Uniform):
        return 0.5 * (measure.low + measure.high)
    return jnp.sum(measure.points * measure.weights, axis=-1)


def column_of(value: Array, index: int) -> Array:
    """The entry of one input; a scalar serves all."""
    return value if value.ndim == 0 else value[index]
