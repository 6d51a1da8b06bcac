"""Kernels whose functions integrate to zero, for functional ANOVA (mathematics.md section 2.4).

Every formula is written in deviations from 1, ``d = kappa - 1``, ``a = kbar - 1``, ``b = cbar - 1``:
for long lengthscales the plain form subtracts numbers near 1 and has no correct digit in float32.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, store, value_type
from numpyro_gp.checks import check_count, check_type, fail
from numpyro_gp.kernels.base import Kernel, by_field, kernel_field, per_input, positive_scalar
from numpyro_gp.kernels.measures import Empirical, Gaussian, Measure, Uniform, column_of, legendre, mean_of_measure
from numpyro_gp.kernels.profiles import averages, deviation_of, double_mean, integral, of_average, over_normal
from numpyro_gp.kernels.stationary import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    exponential_12,
    exponential_32,
    slope_12,
)
from numpyro_gp.linalg import matmul

# Below this lengthscale (relative to the interval) the closed forms have no cancellation and the
# 20-node rule of the deviation form would no longer resolve the kernel.
CLOSED_FORM_BELOW = 0.2
NODES = 20


OfDistance = Callable[[Array], Array]

# d = kappa - 1 as a function of s = (t / lengthscale)^2, with the closed derivative in s.


def _deviation_in_squares(kind: type, factor: float, slope: OfDistance) -> OfDistance:
    @jax.custom_jvp
    def d(squares: Array) -> Array:
        found: Array = deviation_of(kind, jnp.sqrt(factor * squares))[0]
        return found

    d.defjvps(lambda change, _, squares: slope(squares) * change)
    return d


_DEVIATIONS: dict[type, OfDistance] = {
    RBF: lambda squares: deviation_of(RBF, squares)[0],
    Matern12: _deviation_in_squares(Matern12, 1, slope_12),
    Matern32: _deviation_in_squares(Matern32, 3, lambda squares: -1.5 * exponential_12(3 * squares)),
    Matern52: _deviation_in_squares(Matern52, 5, lambda squares: -5 / 6 * exponential_32(5 * squares)),
}


# Closed forms on [0, 1]: G(t) / lengthscale as an odd function of t / lengthscale.


def _odd_integral(kind: type) -> OfDistance:
    """``g(x) = int_0^x kappa``, odd; its derivative is ``kappa``, also at 0."""

    @jax.custom_jvp
    def g(x: Array) -> Array:
        return jnp.sign(x) * integral(kind, jnp.abs(x))

    g.defjvps(lambda change, _, x: (1 + _DEVIATIONS[kind](x**2)) * change)
    return g


_INTEGRALS: dict[type, OfDistance] = {RBF: partial(integral, RBF)}
_INTEGRALS |= {kind: _odd_integral(kind) for kind in (Matern12, Matern32, Matern52)}


def _deviation(kind: type, gaps: Array, lengthscale: Array, *own: Array) -> Array:
    """``kappa - 1`` of a class of kernels at gaps of one column; ``own`` is a period, or ``alpha``."""
    if kind is Periodic:
        gaps = 2 * jnp.sin(math.pi * gaps / own[0])  # chords: an RBF kernel of the circle
    squares = (gaps / lengthscale) ** 2
    if kind is RationalQuadratic:
        return jnp.expm1(-own[0] * jnp.log1p(squares / (2 * own[0])))
    return _DEVIATIONS.get(kind, _DEVIATIONS[RBF])(squares)


def _check_zero_mean_measure(measure: object) -> None:
    required = "Uniform(low, high), Gaussian(mean, sd) or Empirical(points)"
    check_type("measure", measure, (Uniform, Gaussian, Empirical), required, "Pass Uniform(0.0, 1.0).")


@value_type()
class ZeroMean(Kernel):
    """An effect around its average: a kernel whose functions integrate to zero under a measure (Durrande et al. 2013).

    In one dimension, for the base kernel ``variance * kappa(x, y)`` and the measure ``nu``,

    ``k0(x, y) = variance * [kappa(x, y) - kbar(x) kbar(y) / cbar]``

    with ``kbar(x) = int kappa(x, s) dnu(s)`` and ``cbar = int kbar dnu``, so that ``int k0(x, s)
    dnu(s) = 0`` for every ``x``. With more columns: the product over the columns of such kernels of
    unit variance, times ``variance``, which is an interaction of functional ANOVA. The formulas and
    how they are kept accurate are in mathematics.md section 2.4.

    Parameters
    ----------
    kernel
        :class:`RBF`, :class:`Matern12`, :class:`Matern32` or :class:`Matern52`; with an :class:`Empirical` measure
        also :class:`RationalQuadratic` and :class:`Periodic`.
    measure
        :class:`Empirical`, :class:`Uniform`, or :class:`Gaussian` for the RBF kernel.

    Raises
    ------
    TypeError
        For any other kernel or measure.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.ZeroMean(ngp.kernels.Matern32(1.0, 0.5), ngp.kernels.Uniform(0.0, 2.0)).on(0)
    >>> nodes, weights = ngp.kernels.Uniform(0.0, 2.0).quadrature(breaks=[0.3])
    >>> integral = kernel.matrix(jnp.array([[0.3]]), nodes[:, None]) @ weights
    >>> bool(abs(integral[0]) < 1e-6)
    True
    """

    kernel: RBF | Matern12 | Matern32 | Matern52 | RationalQuadratic | Periodic
    measure: Measure
    checks = by_field(kernel=kernel_field)  # for `parts`

    def __post_init__(self) -> None:
        _check_zero_mean_measure(self.measure)
        if type(self.kernel) in (RationalQuadratic, Periodic) and isinstance(self.measure, Empirical):
            return
        if type(self.kernel) not in _DEVIATIONS:
            cure = "Take columns and factors outside: 2.0 * ZeroMean(RBF(1.0, 0.3), Uniform(0.0, 1.0)).on(0)."
            if type(self.kernel) in (RationalQuadratic, Periodic):
                cure = "Give it an Empirical measure: of the data, or Empirical(jnp.linspace(0.0, 1.0, 32))."
            got = f"a {type(self.kernel).__name__}"
            fail("kernel of ZeroMean", "RBF, Matern12, Matern32 or Matern52", got, cure, TypeError)
        if isinstance(self.measure, Gaussian) and type(self.kernel) is not RBF:
            got, cure = f"Gaussian with {type(self.kernel).__name__}", "Use Uniform(low, high), or an RBF kernel."
            fail("measure", "Uniform or Empirical for Matern kernels", got, cure, TypeError)

    def factors(self, columns: int) -> tuple["ZeroMean", ...]:
        """The one-dimensional kernels of unit variance whose product, times ``variance``, is this kernel."""
        like = jnp.zeros((1, check_count("columns", columns)), self.kernel.lengthscale.dtype)
        for argument, value in self._parameters().items():
            per_input(argument, value, like)  # checks the number of columns
        own = {name: getattr(self.kernel, name) for name in ("lengthscale", "period") if hasattr(self.kernel, name)}
        found = []
        for d in range(columns):
            options: dict[str, Any] = {name: column_of(value, d) for name, value in own.items()}
            found.append(ZeroMean(replace(self.kernel, variance=1.0, **options), self.measure.column(d)))
        return tuple(found)

    def _parameters(self) -> dict[str, Array]:
        own = {"lengthscale": self.kernel.lengthscale}
        if isinstance(self.kernel, Periodic):
            own["period"] = self.kernel.period
        if isinstance(self.measure, Empirical):
            own_points = self.measure.points
            return own | ({"points of the measure": own_points[:, 0]} if own_points.ndim == 2 else {})
        fields = ("low", "high") if isinstance(self.measure, Uniform) else ("mean", "sd")
        return own | {name: getattr(self.measure, name) for name in fields}

    def _own(self, d: int) -> tuple[Array, ...]:
        """Parameters of column ``d``, as `_deviation` takes them."""
        kernel, own = self.kernel, (column_of(self.kernel.lengthscale, d),)
        if isinstance(kernel, Periodic):
            return (*own, column_of(kernel.period, d))
        return (*own, kernel.alpha) if isinstance(kernel, RationalQuadratic) else own

    def _deviations(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N D"], Float[Array, "1 D"]]:
        """``a`` of each coordinate, and ``b``."""
        if isinstance(self.measure, Empirical):
            for name, value in self._parameters().items():
                per_input(name, value, X)  # checks the number of columns
            # Averages over the points: exact for every kernel.
            averaged, twice, profile = [], [], partial(_deviation, type(self.kernel))
            for d in range(X.shape[1]):
                points, weights = (value.astype(X.dtype) for value in self.measure.column(d).quadrature())
                both = averages(profile, jnp.concatenate([X[:, d], points]), points, weights, *self._own(d))
                averaged.append(both[: X.shape[0]])
                twice.append(matmul(weights, both[X.shape[0] :]))
            return jnp.stack(averaged, axis=1), jnp.stack(twice)[None, :]
        lengthscale, first, second = (per_input(name, value, X) for name, value in self._parameters().items())
        if isinstance(self.measure, Gaussian):
            a, b = over_normal(X, lengthscale, first, second)
            return a, jnp.broadcast_to(b, (1, X.shape[1]))
        x, l = (X - first) / (second - first), lengthscale / (second - first)  # the interval becomes [0, 1]
        deviation_at, whole = _DEVIATIONS[type(self.kernel)], _INTEGRALS[type(self.kernel)]
        nodes, weights = (jnp.asarray(rule, x.dtype)[None, None, :] for rule in legendre(NODES))
        is_short = l < CLOSED_FORM_BELOW
        # Each branch sees a lengthscale at which it is finite, so that the unused one has no NaN gradient.
        long = jnp.where(is_short, CLOSED_FORM_BELOW, l)
        short = jnp.where(is_short, l, CLOSED_FORM_BELOW)
        ends = jnp.concatenate([x, 1 - x])  # kbar(x) = G(x) + G(1 - x)
        # Far outside of the interval the nodes are as few for as many lengthscales.
        is_far = jnp.abs(ends) * CLOSED_FORM_BELOW > long
        near, far = jnp.where(is_far, 0.0, ends), jnp.where(is_far, ends, 0.0)
        quadrature = near * jnp.sum(weights * deviation_at((near[:, :, None] * nodes / long[:, :, None]) ** 2), axis=-1)
        quadrature = jnp.where(is_far, long * whole(far / long) - far, quadrature)
        double = 2 * jnp.sum(weights * (1 - nodes) * deviation_at((nodes / long[:, :, None]) ** 2), axis=-1)
        left, right = jnp.split(jnp.where(is_short, short * whole(ends / short), quadrature), 2)
        b = jnp.where(is_short, double_mean(type(self.kernel), short) - 1, double)
        return left + right - jnp.where(is_short, 1, 0), jnp.broadcast_to(b, (1, x.shape[1]))

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        if X2 is X1:
            a, b = self._deviations(X1)
            a_1 = a_2 = a
        else:
            a, b = self._deviations(jnp.concatenate([X1, X2]))
            a_1, a_2 = a[: X1.shape[0]], a[X1.shape[0] :]
        value = self.kernel.variance
        for d in range(X1.shape[1]):
            row, column = a_1[:, d][:, None], a_2[:, d][None, :]
            d_12 = _deviation(type(self.kernel), X1[:, d][:, None] - X2[:, d][None, :], *self._own(d))
            value = value * (d_12 - of_average(row, column, b[0, d]))
        return value

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        return self._cross(X, X)  # every term is symmetric and exact on the diagonal

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        a, b = self._deviations(X)
        return self.kernel.variance * jnp.prod(-of_average(a, a, b), axis=1)


@value_type()
class ZeroMeanLinear(Kernel):
    """A straight line around its average, ``k(x, y) = variance (x - m)(y - m)`` with ``m`` the mean of a measure.

    What `ZeroMean` is for curves: a line whose level is of no interest, because another component has it. It reads one
    column.

    Parameters
    ----------
    variance
        Positive scalar, the prior variance of the slope.
    measure
        :class:`Empirical`, :class:`Uniform` or :class:`Gaussian`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.ZeroMeanLinear(2.0, ngp.kernels.Empirical(jnp.array([0.0, 0.0, 3.0])))
    >>> kernel.matrix(jnp.array([[1.0], [2.0]])).round(6).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """

    variance: ArrayField
    measure: Measure

    def __post_init__(self) -> None:
        _check_zero_mean_measure(self.measure)
        store(self, variance=positive_scalar("variance", self.variance))

    def _from_mean(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        if X.shape[1] != 1:
            cure = "Choose the column with kernel.on(column), and multiply kernels for an interaction."
            fail("inputs of ZeroMeanLinear", "one column", f"shape {X.shape}", cure)
        mean = mean_of_measure(self.measure)
        if mean.size != 1:
            fail("measure of ZeroMeanLinear", "of one column", f"one of {mean.size}", "Pass measure.column(index).")
        return X[:, 0] - mean.reshape(())

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return self.variance * self._from_mean(X1)[:, None] * self._from_mean(X2)[None, :]

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return self.variance * self._from_mean(X) ** 2
