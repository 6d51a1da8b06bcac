"""Probability measures over the inputs, with their quadrature: functions of `ZeroMean` integrate to zero under one."""

import math
from typing import cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, store, value_type
from numpyro_gp.checks import check_count, check_floating, fail, when_known
from numpyro_gp.kernels.base import _require_axes, positive_per_input

# Nodes and weights of a quadrature.
Rule = tuple[Float[Array, " Q"], Float[Array, " Q"]]


def _finite(argument: str, value: ArrayLike) -> Array:
    return _require_axes(argument, check_floating(argument, value), 1)


def legendre(order: int) -> tuple[Float[np.ndarray, " {order}"], Float[np.ndarray, " {order}"]]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return 0.5 * (nodes + 1), 0.5 * weights


def _pieces(ends: Float[Array, " E"], order: int) -> Rule:
    """Gauss-Legendre points and weights on the intervals between sorted ``ends``, one after the other."""
    nodes, weights = (jnp.asarray(rule, ends.dtype)[None, :] for rule in legendre(order))
    lengths = jnp.diff(ends)[:, None]
    return (ends[:-1, None] + lengths * nodes).reshape(-1), (lengths * weights).reshape(-1)


def _interior(breaks: ArrayLike | None, like: Array) -> Float[Array, " B"]:
    return jnp.zeros((0,), like.dtype) if breaks is None else jnp.reshape(jnp.asarray(breaks, like.dtype), (-1,))


@value_type()
class Uniform:
    """Inputs that are spread evenly: the uniform probability measure on ``[low, high]``, for `ZeroMean` kernels.

    Parameters
    ----------
    low, high
        Scalars or ``(D,)``: the ends of the interval in each column.

    Examples
    --------
    >>> nodes, weights = Uniform(0.0, 2.0).quadrature()
    >>> round(float((weights * nodes**2).sum()), 12)
    1.333333333333
    """

    low: ArrayField = cast("ArrayField", 0.0)
    high: ArrayField = cast("ArrayField", 1.0)

    def __post_init__(self) -> None:
        low, high = _finite("low", self.low), _finite("high", self.high)

        def check(first: np.ndarray, last: np.ndarray) -> None:
            if not np.all(first < last):
                fail("high", "greater than low", f"low={first.tolist()}, high={last.tolist()}", "Swap the two ends.")

        when_known(check, low, high)
        store(self, low=low, high=high)

    def column(self, index: int) -> "Uniform":
        """The one-dimensional measure of one input."""
        return Uniform(*(column_of(value, index) for value in (self.low, self.high)))

    def density(self, x: Array) -> Array:
        """Density at ``x``, for a one-dimensional measure."""
        return jnp.where((x >= self.low) & (x <= self.high), 1 / (self.high - self.low), 0)

    def quadrature(self, breaks: ArrayLike | None = None, order: int = 16) -> Rule:
        """Nodes and weights (which sum to 1) of a one-dimensional measure.

        Gauss-Legendre with ``order`` nodes on each piece between the ``breaks``, the points where
        the integrand has a kink; ``(len(breaks) + 1) * order`` nodes.
        """
        low, high = (jnp.reshape(value, (1,)) for value in (self.low, self.high))
        inside = jnp.clip(_interior(breaks, low), low, high)
        nodes, weights = _pieces(jnp.concatenate([low, jnp.sort(inside), high]), check_count("order", order))
        return nodes, weights / (high - low)


@value_type()
class Gaussian:
    """Inputs that are normally distributed: the probability measure ``N(mean, sd^2)``, for `ZeroMean` kernels.

    Parameters
    ----------
    mean, sd
        Scalars or ``(D,)``: mean and standard deviation in each column.

    Examples
    --------
    >>> nodes, weights = Gaussian(1.0, 2.0).quadrature()
    >>> round(float((weights * nodes**2).sum()), 6)
    5.0
    """

    mean: ArrayField = cast("ArrayField", 0.0)
    sd: ArrayField = cast("ArrayField", 1.0)

    def __post_init__(self) -> None:
        store(self, mean=_finite("mean", self.mean), sd=positive_per_input("sd", self.sd))

    def column(self, index: int) -> "Gaussian":
        """The one-dimensional measure of one input."""
        return Gaussian(*(column_of(value, index) for value in (self.mean, self.sd)))

    def density(self, x: Array) -> Array:
        """Density at ``x``, for a one-dimensional measure."""
        return jnp.exp(-0.5 * ((x - self.mean) / self.sd) ** 2) / (self.sd * math.sqrt(2 * math.pi))

    def quadrature(self, breaks: ArrayLike | None = None, order: int = 16) -> Rule:
        """Nodes and weights of a one-dimensional measure, as :meth:`Uniform.quadrature`.

        Pieces reach nine standard deviations from the mean and are at most 1.5 of them long.
        """
        mean, sd = (jnp.reshape(value, (1,)) for value in (self.mean, self.sd))
        own = mean + sd * jnp.asarray(np.linspace(-9, 9, 13), mean.dtype)
        inside = jnp.clip(_interior(breaks, own), own[:1], own[-1:])
        nodes, weights = _pieces(jnp.sort(jnp.concatenate([own, inside])), check_count("order", order))
        return nodes, weights * self.density(nodes)


def column_of(value: Array, index: int) -> Array:
    """The entry of one input; a scalar serves all."""
    return value if value.ndim == 0 else value[index]
