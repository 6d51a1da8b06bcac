"""Kernels of trends, which do not return to a mean: random walks and their integrals (mathematics.md section 2.6).

All are zero at an origin, from which they go both ways. Beside a level, and for the smooth ones a slope, of large
variance the origin is of no account; where numbers are smallest is amid the rows. Each is written in the distances
``a <= b`` of two inputs on one side, so that nothing of the size of ``b^2`` cancels.
"""

import abc
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, value_type
from numpyro_gp.checks import check_floating, check_type, fail
from numpyro_gp.kernels.base import Kernel, KernelField, by_field, kernel_field, positive_scalar, require_axes
from numpyro_gp.kernels.measures import Empirical
from numpyro_gp.kernels.profiles import integrated_walk, less_average
from numpyro_gp.kernels.stationary import ROUGH
from numpyro_gp.linalg import matmul

# Up to where ``exp(z) - 1 - z`` is a series, and its terms there: 0.5^14 / 15! is nothing in double precision.
SERIES_BELOW, TERMS = 0.5, 14


class _FromOrigin(Kernel):
    """A kernel of one column by what pairs of distances from its origin have, on one side of it and on two."""

    variance: ArrayField
    origin: ArrayField
    checks = by_field(
        variance=positive_scalar, origin=lambda name, value: require_axes(name, check_floating(name, value), 0)
    )

    @abc.abstractmethod
    def one_side(self, a: Array, b: Array) -> Array:
        """The covariance at distances ``0 <= a <= b`` on one side of the origin."""

    def two_sides(self, a: Array, b: Array) -> Array:  # noqa: ARG002
        """The covariance at distances on both sides of the origin."""
        return jnp.zeros_like(a)

    def _from_origin(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        if X.shape[1] != 1:
            cure = "Choose the column of time with kernel.on(column)."
            fail(f"inputs of {type(self).__name__}", "one column", f"shape {X.shape}", cure)
        return X[:, 0] - self.origin

    def _values(self, x: Array, y: Array) -> Array:
        # Not ``abs``, whose slope at zero is none: a function has a slope at its origin.
        p, q = (jnp.where(value >= 0, value, -value) for value in (x, y))
        is_less = p < q
        a, b = jnp.where(is_less, p, q), jnp.where(is_less, q, p)
        return jnp.where((x >= 0) == (y >= 0), self.one_side(a, b), self.two_sides(a, b))

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return self._values(self._from_origin(X1)[:, None], self._from_origin(X2)[None, :])

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        x = self._from_origin(X)
        return self._values(x, x)


@value_type()
class Wiener(_FromOrigin):
    """A random walk, ``variance min(|x|, |y|)`` for two inputs on one side of the origin, and none across it.

    Its value is zero at the origin, and its change over a gap ``h`` has the variance ``variance h``, outside of the
    data as inside: it does not return to a mean. The trend of a series has it beside `Constant`, and `IntegratedWiener`
    where the slope changes too.

    Parameters
    ----------
    variance
        Positive scalar, the variance of the change over a gap of one unit of the input.
    origin
        Scalar, where the value is zero; amid the rows numbers are smallest.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.Wiener(0.5).matrix(jnp.array([[1.0], [-2.0]]), jnp.array([[3.0], [-1.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """

    variance: ArrayField
    origin: ArrayField = cast("ArrayField", 0.0)
    without_slopes = ROUGH, "Use IntegratedWiener."

    def one_side(self, a: Array, b: Array) -> Array:  # noqa: ARG002
        """``variance a``."""
        return self.variance * a


@value_type()
class IntegratedWiener(_FromOrigin):
    """A trend whose slope is a random walk: ``variance a^2 (3 b - a) / 6`` at distances ``a <= b`` from the origin.

    The integral of a `Wiener` function, zero in value and slope at the origin, with none across it. Beside `Constant`
    and `Linear` it is the cubic smoothing spline; it goes on along its last slope, ever less certain.

    Parameters
    ----------
    variance
        Positive scalar, the variance of the change of the slope over a gap of one unit of the input.
    origin
        Scalar, where value and slope are zero.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.IntegratedWiener(3.0).matrix(jnp.array([[1.0]]), jnp.array([[2.0], [-1.0]])).tolist()
    [[2.5, 0.0]]
    """

    variance: ArrayField
    origin: ArrayField = cast("ArrayField", 0.0)

    def one_side(self, a: Array, b: Array) -> Array:
        """``variance a^2 (3 b - a) / 6``."""
        return self.variance * integrated_walk(a, b)


@value_type()
class IntegratedOU(_FromOrigin):
    """A trend whose slope forgets: the integral of a stationary slope with an exponential kernel.

    The slope has the covariance ``variance exp(-|x - y| / lengthscale)``. With ``g(h) = variance lengthscale^2 (r +
    exp(-r) - 1)`` and ``r = |h| / lengthscale``, ``k(x, y) = g(x) + g(y) - g(x - y)`` in distances from the origin.
    For a long lengthscale it is a straight line, ``variance x y``; for a short one a random walk, `Wiener` with ``2
    variance lengthscale``. In between it is a damped trend: a forecast goes on along the last slope, less and less.

    Parameters
    ----------
    variance
        Positive scalar, the variance of the slope.
    lengthscale
        Positive scalar: how long a slope is remembered.
    origin
        Scalar, where the value is zero.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.IntegratedOU(1.0, 2.0)
    >>> kernel.diagonal(jnp.array([[0.0], [2.0]])).round(4).tolist()   # 8 exp(-1)
    [0.0, 2.943]
    """

    variance: ArrayField
    lengthscale: ArrayField
    origin: ArrayField = cast("ArrayField", 0.0)
    checks = by_field(**_FromOrigin.checks, lengthscale=positive_scalar)

    def one_side(self, a: Array, b: Array) -> Array:
        """``variance l^2 (2 a + expm1(-a) - exp(-b) expm1(a))`` in distances over ``l``; near zero as a series."""
        p, q = a / self.lengthscale, b / self.lengthscale
        is_near = p < SERIES_BELOW
        near, far = jnp.where(is_near, p, 0.0), jnp.where(is_near, 1.0, p)
        # p (1 - exp(-q)) + (exp(-p) - 1 + p) - exp(-q) (exp(p) - 1 - p): the last, less than the others, is taken off.
        series = _beyond_line(-near) - jnp.exp(-q) * _beyond_line(near) - near * jnp.expm1(-q)
        later = jnp.where(is_near, 1.0, q)
        closed = 2 * far + jnp.expm1(-far) + jnp.exp(-later) - jnp.exp(far - later)
        return self.variance * self.lengthscale**2 * jnp.where(is_near, series, closed)

    def two_sides(self, a: Array, b: Array) -> Array:
        """``-variance l^2 (1 - exp(-a / l)) (1 - exp(-b / l))``."""
        p, q = a / self.lengthscale, b / self.lengthscale
        return -self.variance * self.lengthscale**2 * jnp.expm1(-p) * jnp.expm1(-q)


@jax.custom_jvp
def _beyond_line(z: Array) -> Array:
    """``exp(z) - 1 - z`` for ``|z| <= SERIES_BELOW``, with all its digits."""
    series = jnp.ones_like(z)
    for order in range(TERMS, 2, -1):
        series = 1 + z / order * series
    return 0.5 * z * z * series


# Its slope in closed form: through the series a program takes seconds longer to compile.
_beyond_line.defjvps(lambda change, _, z: jnp.expm1(z) * change)


@value_type()
class Centred(Kernel):
    """Functions less their average over points: ``k(x, y) - a(x) - a(y) + c``, as a term beside a constant has them.

    Here ``a(x) = sum_q w_q k(x, s_q)`` and ``c = sum_q w_q a(s_q)``. Of a function that grows outside of the points
    growth is left as it is: the variance of ``f(x) - f(y)`` is that of the kernel itself, at all inputs. `ZeroMean`
    conditions on an average of zero instead, which is right for functions that return to their mean, and would pull
    back those that do not.

    Parameters
    ----------
    kernel : Kernel or callable
        Of one column.
    measure
        :class:`Empirical`, of one column: the points and their weights.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> rows = jnp.array([[0.0], [1.0], [2.0]])
    >>> kernel = ngp.kernels.Centred(ngp.kernels.Wiener(1.0), ngp.kernels.Empirical(rows[:, 0]))
    >>> bool(abs(kernel.matrix(rows, jnp.array([[5.0]])).mean()) < 1e-6)
    True
    >>> at = kernel.matrix(jnp.array([[2.0], [5.0]]))
    >>> round(float(at[0, 0] + at[1, 1] - 2 * at[0, 1]), 5)   # the variance of a change over 3 units
    3.0
    """

    kernel: KernelField
    measure: Empirical
    checks = by_field(kernel=kernel_field)

    def __post_init__(self) -> None:
        cure = "Pass Empirical(rows), of the column that the kernel reads."
        check_type("measure of Centred", self.measure, Empirical, "Empirical(points)", cure)
        if self.measure.points.ndim != 1:
            fail("measure of Centred", "of one column", f"points of shape {self.measure.points.shape}", cure)
        super().__post_init__()

    def _average(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        if X.shape[1] != 1:
            fail("inputs of Centred", "one column", f"shape {X.shape}", "Choose the column with kernel.on(column).")
        return matmul(self.kernel._cross(X, self.measure.points[:, None]), self.measure.weights)

    def _less(self, values: Array, first: Array, second: Array) -> Array:
        points, weights = self.measure.points, self.measure.weights
        of_all = matmul(weights, matmul(self.kernel._gram(points[:, None]), weights))
        return less_average(values, first, second, of_all)

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        return self._less(self.kernel._cross(X1, X2), self._average(X1)[:, None], self._average(X2)[None, :])

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        average = self._average(X)
        return self._less(self.kernel._diagonal(X), average, average)
