"""Kernels of the difference of two points (mathematics.md section 2.1).

Squared distances of centred and scaled inputs are squared differences in one column, right however many lengthscales
the inputs span; in several they have the product form ``|a|^2 + |b|^2 - 2 a.b``, whose gradient is a matrix product,
several times cheaper, and whose error is some ``eps |a|^2``. Kernels are then functions of the squared distance
``s = r^2``, each with its closed derivative in ``s``, so that nothing differentiates a square root at zero.
"""

import abc
import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, same_fields, store, value_type
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.distances import squared_distances, squared_distances_gram
from numpyro_gp.kernels.hyperparameters import inner_products, per_input, positive_per_input, positive_scalar
from numpyro_gp.linalg import scaled
from numpyro_gp.programs.trace import ANY_POINT

# Three functions of s = z^2: e^-z, (1 + z) e^-z and (1 + z + z^2 / 3) e^-z. Each is, up to a factor,
# the derivative of the next, so that two derivatives of all of them are finite at s = 0.


def safe_root(squares: Array) -> tuple[Array, Array]:
    """Root and inverse root, both zero where ``s`` is zero or so small that powers of it would overflow."""
    tiny = math.sqrt(float(jnp.finfo(squares.dtype).tiny))
    apart = squares > tiny
    inverse = jnp.where(apart, lax.rsqrt(jnp.where(apart, squares, 1)), 0)
    return squares * inverse, inverse


@jax.custom_jvp
def exponential_12(squares: Array) -> Array:
    """``e^-z``; its derivative at zero, where the kernel has a kink, is defined as 0."""
    return jnp.exp(-jnp.sqrt(squares))


def slope_12(squares: Array) -> Array:
    """The derivative of ``e^-z`` in ``s``."""
    root, inverse = safe_root(squares)
    return -0.5 * inverse * jnp.exp(-root)


exponential_12.defjvps(lambda change, _, squares: slope_12(squares) * change)


@jax.custom_jvp
def exponential_32(squares: Array) -> Array:
    """``(1 + z) e^-z``."""
    root = jnp.sqrt(squares)
    return (1 + root) * jnp.exp(-root)


exponential_32.defjvps(lambda change, _, squares: -0.5 * exponential_12(squares) * change)


@jax.custom_jvp
def exponential_52(squares: Array) -> Array:
    """``(1 + z + z^2 / 3) e^-z``."""
    root = jnp.sqrt(squares)
    return (1 + root * (1 + root * (1 / 3))) * jnp.exp(-root)


exponential_52.defjvps(lambda change, _, squares: (-1 / 6) * exponential_32(squares) * change)


@value_type()
class OfOneVariance(Kernel):
    """A kernel whose functions have the same variance at all inputs."""

    variance: ArrayField

    def __post_init__(self) -> None:
        store(self, variance=positive_scalar("variance", self.variance))

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return constant_like(self.variance, X)


@value_type()
class _OfLengthscale(OfOneVariance):
    """One of those with a lengthscale, or one for each input."""

    variance: ArrayField
    lengthscale: ArrayField

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, lengthscale=positive_per_input("lengthscale", self.lengthscale))

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return constant_like(self.variance, X, per_input("lengthscale", self.lengthscale, X))


class _Stationary(_OfLengthscale):
    """``variance * correlation(s)`` with ``s`` the squared distance of what ``_scaled`` makes of the inputs."""

    @abc.abstractmethod
    def correlation(self, squares: Float[Array, "N1 N2"]) -> Float[Array, "N1 N2"]:
        """Correlation as a function of the squared scaled distance; 1 at 0."""

    def _scaled(self, X: Float[Array, "N D"], centre: Float[Array, "1 D"]) -> Float[Array, "N E"]:
        return (X - centre) / per_input("lengthscale", self.lengthscale, X)

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        centre = _centre(X2)
        squares = squared_distances(self._scaled(X1, centre), self._scaled(X2, centre))
        return scaled(self.variance, self.correlation(squares))

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        return scaled(self.variance, self.correlation(squared_distances_gram(self._scaled(X, _centre(X)))))


def _centre(X: Float[Array, "N D"]) -> Float[Array, "1 D"]:
    """A point amid the inputs: subtracted from all, it changes no distance, only its rounding error."""
    with jax.named_scope(ANY_POINT):
        return lax.stop_gradient(jnp.mean(X, axis=0, keepdims=True))


def constant_like(variance: Float[Array, ""], X: Float[Array, "N D"], *others: Array) -> Float[Array, " N"]:
    """``variance`` for each row of ``X``, in the precision that ``matrix`` has with these arrays."""
    return jnp.broadcast_to(variance.astype(jnp.result_type(variance, X, *others)), (X.shape[0],))


@same_fields
class RBF(_Stationary):
    """Very smooth functions: the squared exponential kernel ``variance * exp(-r^2 / 2)``.

    Here ``r^2 = sum_d ((x_d - y_d) / lengthscale_d)^2``, as in the Matérn kernels below. Where data are less smooth,
    `Matern52` is the safer default.

    Parameters
    ----------
    variance
        Positive scalar, the prior variance of the function.
    lengthscale
        Positive scalar, or ``(D,)`` with one value for each input (ARD).

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.RBF(2.0, jnp.array([1.0, 10.0]))
    >>> kernel.matrix(jnp.zeros((1, 2)), jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).round(3).tolist()
    [[2.0, 1.213, 1.99]]
    """

    def correlation(self, squares: Float[Array, "N1 N2"]) -> Float[Array, "N1 N2"]:
        """``exp(-s / 2)``."""
        return jnp.exp(-0.5 * squares)


@same_fields
class Matern12(_Stationary):
    """Rough, continuous functions: the exponential kernel ``variance * exp(-r)``, with ``r`` as in `RBF`.

    Parameters
    ----------
    variance, lengthscale
        As in `RBF`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.Matern12(1.0, 2.0).matrix(jnp.array([[0.0]]), jnp.array([[0.0], [2.0]])).round(4).tolist()
    [[1.0, 0.3679]]
    """

    def correlation(self, squares: Float[Array, "N1 N2"]) -> Float[Array, "N1 N2"]:
        """``exp(-sqrt(s))``."""
        return exponential_12(squares)


@same_fields
class Matern32(_Stationary):
    """Functions with one derivative: ``variance * (1 + z) exp(-z)`` with ``z = sqrt(3) r`` and ``r`` as in `RBF`.

    Parameters
    ----------
    variance, lengthscale
        As in `RBF`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.Matern32(1.0, 2.0).matrix(jnp.array([[0.0]]), jnp.array([[0.0], [2.0]])).round(4).tolist()
    [[1.0, 0.4834]]
    """

    def correlation(self, squares: Float[Array, "N1 N2"]) -> Float[Array, "N1 N2"]:
        """``(1 + z) exp(-z)`` with ``z^2 = 3 s``."""
        return exponential_32(3 * squares)


@same_fields
class Matern52(_Stationary):
    """Functions with two derivatives, the usual default: ``variance * (1 + z + z^2/3) exp(-z)`` with ``z = sqrt(5) r``.

    Here ``r`` is the distance in lengthscales, as in `RBF`.

    Parameters
    ----------
    variance, lengthscale
        As in `RBF`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.Matern52(1.0, 2.0).matrix(jnp.array([[0.0]]), jnp.array([[0.0], [2.0]])).round(4).tolist()
    [[1.0, 0.524]]
    """

    def correlation(self, squares: Float[Array, "N1 N2"]) -> Float[Array, "N1 N2"]:
        """``(1 + z + z^2 / 3) exp(-z)`` with ``z^2 = 5 s``."""
        return exponential_52(5 * squares)


@value_type()
class RationalQuadratic(_Stationary):
    """Smooth functions on several lengthscales at once: ``variance * (1 + r^2 / (2 alpha))^-alpha``.

    It is a mixture of `RBF` kernels over lengthscales, and the RBF kernel is its limit at infinite ``alpha``.

    Parameters
    ----------
    variance, lengthscale
        As in `RBF`.
    alpha
        Positive scalar: the smaller, the wider the range of lengthscales.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.RationalQuadratic(1.0, 1.0, 1.0).matrix(jnp.array([[0.0]]), jnp.array([[2.0]])).round(4).tolist()
    [[0.3333]]
    """

    variance: ArrayField
    lengthscale: ArrayField
    alpha: ArrayField

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, alpha=positive_scalar("alpha", self.alpha))

    def correlation(self, squares: Float[Array, "N1 N2"]) -> Float[Array, "N1 N2"]:
        """``(1 + s / (2 alpha))^-alpha``."""
        return jnp.exp(-self.alpha * jnp.log1p(squares / (2 * self.alpha)))


@value_type()
class Periodic(_Stationary):
    """Functions that repeat: ``variance * exp(-2 sum_d sin^2(pi (x_d - y_d) / period_d) / lengthscale_d^2)``.

    The form of Rasmussen and Williams (2006, equation 4.31): an RBF kernel of the points
    ``(cos, sin)(2 pi x / period)`` on the unit circle, whose lengthscale has no unit. GPflow and
    PyMC write ``1/2`` for the ``2``: their lengthscale is half of this one.

    Parameters
    ----------
    variance
        Positive scalar.
    lengthscale, period
        Positive scalars or ``(D,)``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> year = ngp.kernels.Periodic(1.0, 1.0, 12.0)
    >>> year.matrix(jnp.array([[0.0]]), jnp.array([[6.0], [12.0]])).round(4).tolist()
    [[0.1353, 1.0]]
    """

    variance: ArrayField
    lengthscale: ArrayField
    period: ArrayField

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, period=positive_per_input("period", self.period))

    def correlation(self, squares: Float[Array, "N1 N2"]) -> Float[Array, "N1 N2"]:
        """``exp(-s / 2)`` of the squared chord ``s = 4 sum_d sin^2(...) / lengthscale_d^2``."""
        return jnp.exp(-0.5 * squares)

    def _scaled(self, X: Float[Array, "N D"], centre: Float[Array, "1 D"]) -> Float[Array, "N E"]:
        lengthscale = per_input("lengthscale", self.lengthscale, X)
        angles = 2 * math.pi * (X - centre) / per_input("period", self.period, X)
        return jnp.concatenate([jnp.cos(angles) / lengthscale, jnp.sin(angles) / lengthscale], axis=1)

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        scales = (per_input(name, getattr(self, name), X) for name in ("lengthscale", "period"))
        return constant_like(self.variance, X, *scales)


@same_fields
class Cosine(_OfLengthscale):
    """One plane wave: ``variance * cos(2 pi sum_d (x_d - y_d) / lengthscale_d)``, of rank two.

    Parameters
    ----------
    variance
        Positive scalar.
    lengthscale
        Positive scalar or ``(D,)``: the wavelength along each input.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.kernels.Cosine(1.0, 4.0).matrix(jnp.array([[0.0]]), jnp.array([[2.0], [4.0]])).round(4).tolist()
    [[-1.0, 1.0]]
    """

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        lengthscale, centre = per_input("lengthscale", self.lengthscale, X2), _centre(X2)
        first, second = (waves(2 * math.pi * jnp.sum((X - centre) / lengthscale, axis=1)) for X in (X1, X2))
        return self.variance * inner_products(first, second)


def waves(angles: Float[Array, " N"]) -> Float[Array, "N 2"]:
    """Features with ``cos(a_i - a_j)`` as inner products."""
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
