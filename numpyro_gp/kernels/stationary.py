"""Kernels of the difference of two points (mathematics.md section 2.1).

Squared distances of centred and scaled inputs are squared differences in one column, right however many lengthscales
the inputs span; in several they have the product form ``|a|^2 + |b|^2 - 2 a.b``, whose gradient is a matrix product,
several times cheaper, and whose error is some ``eps |a|^2``. Kernels are then functions of the squared distance
``s = r^2``, each with its closed derivative in ``s``, so that nothing differentiates a square root at zero.
"""

import abc
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, same_fields, store, value_type
from numpyro_gp.checks import check_floating, check_positive, fail
from numpyro_gp.kernels.base import Kernel, by_field, inner_products, per_input, positive_per_input, positive_scalar
from numpyro_gp.linalg import moved_columns
from numpyro_gp.programs.trace import ANY_POINT

# --------------------------------------------------------------------------------------
# Squared distances between rows, with derivatives that are finite where rows are equal.


# Rows and columns of a matrix in single precision whose distances are found by differences, at little more cost there.
FEW_ROWS, FEW_COLUMNS = 300, 16
# Columns up to which those between two sets of rows are found by differences there, which takes less time on a CPU.
FEWEST_COLUMNS = 4


def squared_distances(A: Float[Array, "N1 D"], B: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
    """``|a_i - b_j|^2``: by differences in few columns, whose error is that of the inputs, and the product in more."""
    return jnp.square(A - B.T) if A.shape[1] == 1 else _in_columns(A, B)


def _differences_of_one(A: Float[Array, "N 1"], B: Float[Array, "N 1"]) -> Float[Array, "N N"]:
    """Of a column and itself: in ``a_i - a_j`` a compiler that has fused the scaling rounds only one of the two."""
    return jnp.square(jnp.maximum(A, B.T) - jnp.minimum(A, B.T))


def _by_columns(
    of_one: Callable[[Array, Array], Array], A: Float[Array, "N1 D"], B: Float[Array, "N2 D"]
) -> Float[Array, "N1 N2"]:
    """The sum over columns of their squared differences."""
    total = jnp.zeros((A.shape[0], B.shape[0]), jnp.result_type(A, B))
    for column in range(A.shape[1]):
        total = total + of_one(*(rows[:, column : column + 1] for rows in (A, B)))
    return total


@jax.custom_jvp
def _in_columns(A: Float[Array, "N1 D"], B: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
    """``|a_i|^2 + |b_j|^2 - 2 a_i . b_j``; rounding below zero is cut off, the derivative is that of the distance.

    Of rows R lengthscales apart rounding of the product is ``1e-7 R^2``, which in single precision is soon more than a
    jitter: in few columns by differences.
    """
    if jnp.finfo(A.dtype).bits <= 32 and A.shape[1] <= FEWEST_COLUMNS:
        return _by_columns(lambda a, b: jnp.square(a - b.T), A, B)
    norms = jnp.sum(A * A, axis=1)[:, None] + jnp.sum(B * B, axis=1)[None, :]
    return jnp.maximum(norms - 2 * inner_products(A, B), 0)


@_in_columns.defjvp
def _in_columns_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (A, B), (change_A, change_B) = primals, tangents
    return _in_columns(A, B), 2 * (
        inner_products(*_moved_pair(A, change_A, B)) + moved_columns(*_moved_pair(B, change_B, A))
    )


def _moved_pair(A: Float[Array, "N1 D"], change: Float[Array, "N1 D"], B: Float[Array, "N2 D"]) -> tuple[Array, Array]:
    """``(a_i . da_i, da_i)`` and ``(1, -b_j)``, whose inner products are ``(a_i - b_j) . da_i``.

    The column of ones lets one product take sums as well, in its transpose too.
    """
    left = jnp.concatenate([jnp.sum(A * change, axis=1, keepdims=True), change], axis=1)
    return left, jnp.concatenate([jnp.ones((len(B), 1), B.dtype), -B], axis=1)


@jax.custom_jvp
def squared_distances_gram(A: Float[Array, "N D"]) -> Float[Array, "N N"]:
    """``|a_i - a_j|^2``: symmetric to the last bit; it and its derivatives are exactly zero on the diagonal.

    By differences in one column, and of few rows or columns in single precision: rows that are near to each other and
    many lengthscales from the mean of all, as in blocks of neighbours, are then as far apart as they are.
    """
    is_single, most = jnp.finfo(A.dtype).bits <= 32, FEW_COLUMNS if A.shape[0] <= FEW_ROWS else FEWEST_COLUMNS
    if A.shape[1] == 1 or (is_single and A.shape[1] <= most):
        return _by_columns(_differences_of_one, A, A)
    products, norms = inner_products(A, A), jnp.sum(A * A, axis=1)
    # On a CPU a large product of rows with themselves is symmetric to the last bit, and reading it by columns as well
    # would take several times as long as the product does. Of few rows, and on other devices, it takes no time.
    is_even = A.shape[0] > FEW_ROWS and jax.default_backend() == "cpu"
    twice = 2 * products if is_even else products + products.T
    return _off_diagonal(jnp.maximum((norms[:, None] + norms[None, :]) - twice, 0))


@squared_distances_gram.defjvp
def _squared_distances_gram_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    if primals[0].shape[1] == 1:
        change = jax.jvp(lambda A: jnp.square(A - A.T), primals, tangents)[1]
    else:
        # Two products: the transpose of ``half + half.T`` reads a matrix by rows and by columns at once.
        left, right = _moved_pair(primals[0], tangents[0], primals[0])
        change = 2 * (inner_products(left, right) + moved_columns(left, right))
    return squared_distances_gram(*primals), _off_diagonal(change)


def _off_diagonal(matrix: Float[Array, "N N"]) -> Float[Array, "N N"]:
    return jnp.where(jnp.eye(len(matrix), dtype=bool), 0, matrix)


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


# Why a kernel has no slopes.
ROUGH = "whose functions are too rough: the variance of a slope is infinite"


@value_type()
class OfOneVariance(Kernel):
    """A kernel whose functions have the same variance at all inputs."""

    variance: ArrayField
    checks = by_field(variance=positive_scalar)

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        scales = [name for name, check in self.checks.items() if check is positive_per_input]
        return constant_like(self.variance, X, *[per_input(name, getattr(self, name), X) for name in scales])


@value_type()
class _OfLengthscale(OfOneVariance):
    """One of those with a lengthscale, or one for each input."""

    variance: ArrayField
    lengthscale: ArrayField
    checks = by_field(variance=positive_scalar, lengthscale=positive_per_input)


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
        return self.variance * self.correlation(squares)

    def _gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        return self.variance * self.correlation(squared_distances_gram(self._scaled(X, _centre(X))))


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

    without_slopes = ROUGH, "Use Matern32, Matern52 or RBF."

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
    checks = by_field(**_Stationary.checks, alpha=positive_scalar)

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
    checks = by_field(**_Stationary.checks, period=positive_per_input)

    def correlation(self, squares: Float[Array, "N1 N2"]) -> Float[Array, "N1 N2"]:
        """``exp(-s / 2)`` of the squared chord ``s = 4 sum_d sin^2(...) / lengthscale_d^2``."""
        return jnp.exp(-0.5 * squares)

    def _scaled(self, X: Float[Array, "N D"], centre: Float[Array, "1 D"]) -> Float[Array, "N E"]:
        lengthscale = per_input("lengthscale", self.lengthscale, X)
        angles = 2 * math.pi * (X - centre) / per_input("period", self.period, X)
        return jnp.concatenate([jnp.cos(angles) / lengthscale, jnp.sin(angles) / lengthscale], axis=1)


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


@value_type()
class SHO(OfOneVariance):
    """A damped oscillation of one column, driven by noise: ``SHOTerm`` of celerite and ``SHO`` of tinygp.

    ``variance * exp(-d / (2 quality)) (cos(b d) + sin(b d) / (2 quality b))`` with ``d = 2 pi |x - y| / period`` and
    ``b^2 = 1 - 1 / (4 quality^2)``. Of a quality of a half or less it is a memory that does not swing. On
    `numpyro_gp.line` it takes linear time.

    Parameters
    ----------
    variance
        Positive scalar.
    period
        Positive scalar: of a swing without friction, ``2 pi / omega``.
    quality
        Positive scalar: some ``quality`` swings until they are forgotten.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.SHO(1.0, 2.0, 10.0)
    >>> kernel.matrix(jnp.array([[0.0]]), jnp.array([[1.0], [2.0]])).round(3).tolist()
    [[-0.855, 0.73]]
    """

    variance: ArrayField
    period: ArrayField
    quality: ArrayField
    checks = by_field(variance=positive_scalar, period=positive_scalar, quality=positive_scalar)

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        if X2.shape[1] != 1:
            fail("inputs of SHO", "one column", f"shape {X2.shape}", "Choose it with kernel.on(column).")
        apart = X1 - X2.T
        cosine, sine = damped(2 * math.pi / self.period * jnp.where(apart < 0, -apart, apart), self.quality)
        return self.variance * (cosine + 0.5 / self.quality * sine)


def damped(d: Float[Array, "*N"], quality: Float[Array, ""]) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
    """``exp(-a d)`` times ``cos(b d)`` and ``sin(b d) / b`` of ``d >= 0``, with ``a = 1 / (2 quality)``.

    Of a negative ``b^2 = 1 - a^2`` these are hyperbolic. Where ``b d`` is small they are series in its square.
    """
    a = 0.5 / quality
    square = (1 - a) * (1 + a)
    u = square * d * d
    is_near = jnp.abs(u) < 1
    near, root = jnp.where(is_near, u, 0), jnp.sqrt(jnp.where(is_near, 1, jnp.abs(u)))
    even, odd = jnp.ones_like(u), jnp.ones_like(u)
    for k in range(9, 0, -1):
        even, odd = 1 - even * near / (2 * k * (2 * k - 1)), 1 - odd * near / (2 * k * (2 * k + 1))
    is_slow = square < 0
    slow = jnp.exp(-d / (a + jnp.sqrt(jnp.where(is_slow, -square, 1))))
    twice = jnp.exp(-2 * jnp.where(is_slow, root, 1))
    decay, is_over = jnp.exp(-a * d), is_slow & ~is_near
    cosine = jnp.where(is_near, even * decay, decay * jnp.cos(root))
    sine = jnp.where(is_near, odd * decay, decay * jnp.sin(root) / root)
    cosine, sine = (
        jnp.where(is_over, 0.5 * slow * (1 + twice), cosine),
        jnp.where(is_over, 0.5 * slow * (1 - twice) / root, sine),
    )
    return cosine, d * sine


def waves(angles: Float[Array, "*N"]) -> Float[Array, "*N 2"]:
    """Cosine and sine on a new last axis, with ``cos(a_i - a_j)`` as inner products."""
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)


# --------------------------------------------------------------------------------------
# Kernels given by their spectral density (mathematics.md section 2.3).


@value_type()
class SpectralMixture(Kernel):
    """Quasi-periodic functions whose frequencies are learned: the spectral mixture kernel (Wilson and Adams 2013).

    ``k(x, y) = sum_q weights_q prod_d exp(-2 pi^2 t_d^2 scales_qd^2) cos(2 pi t_d means_qd)`` with
    ``t = x - y`` (their equation 12): the spectral density is a mixture of Gaussians with those means and scales.

    Parameters
    ----------
    weights
        ``(Q,)``, positive; their sum is the variance.
    means
        ``(Q, D)``, frequencies in cycles for each unit of the input.
    scales
        ``(Q, D)``, positive: standard deviations of the frequencies.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.SpectralMixture(jnp.array([1.0, 0.5]), jnp.array([[0.5], [0.0]]), jnp.full((2, 1), 1e-3))
    >>> kernel.matrix(jnp.array([[0.0]]), jnp.array([[0.0], [1.0]])).round(3).tolist()
    [[1.5, -0.5]]
    """

    weights: ArrayField
    means: ArrayField
    scales: ArrayField

    def __post_init__(self) -> None:
        weights = check_positive("weights", self.weights)
        means, scales = check_floating("means", self.means), check_positive("scales", self.scales)
        if weights.ndim != 1 or weights.size == 0:
            fail("weights", "of shape (Q,)", f"shape {weights.shape}", "Pass one weight for each component.")
        if means.ndim != 2 or means.shape[0] != weights.shape[0]:
            required = f"of shape ({weights.shape[0]}, D), one row for each weight"
            fail("means", required, f"shape {means.shape}", "For one input dimension pass means[:, None].")
        if scales.shape != means.shape:
            fail("scales", f"of shape {means.shape}, as means", f"shape {scales.shape}", "Pass jnp.ones_like(means).")
        store(self, weights=weights, means=means, scales=scales)

    def _require_columns(self, X: Float[Array, "N D"]) -> None:
        if X.shape[1] != self.means.shape[1]:
            required = f"of shape (Q, {X.shape[1]}), one frequency for each column of the inputs"
            fail("means", required, f"shape {self.means.shape}", "Choose the columns with kernel.on(dims).")

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        self._require_columns(X2)
        X1, X2 = X1 - _centre(X2), X2 - _centre(X2)
        widths = 2 * math.pi * self.scales[:, None, :]
        terms = []
        for q in range(self.weights.shape[0]):
            value = self.weights[q] * jnp.exp(-0.5 * squared_distances(X1 * widths[q], X2 * widths[q]))
            for column in range(X1.shape[1]):
                frequency = 2 * math.pi * self.means[q, column]
                value = value * inner_products(waves(frequency * X1[:, column]), waves(frequency * X2[:, column]))
            terms.append(value)
        return sum(terms[1:], start=terms[0])

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        self._require_columns(X)
        return constant_like(jnp.sum(self.weights), X, self.means, self.scales)
