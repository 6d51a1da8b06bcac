"""What kernels say of linear functionals: covariances of slopes, averages and values (mathematics.md section 15.1)."""

from collections.abc import Sequence
from typing import Any

import jax
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, store, value_type
from numpyro_gp.checks import check_points, fail
from numpyro_gp.kernels.base import Active, Kernel, KernelField, KernelLike, Product, Scaled, Sum, as_kernel
from numpyro_gp.kernels.functionals import Functional, applied, as_functional, terms
from numpyro_gp.kernels.nonstationary import ArcCosine, CategoryDelta, OfCodes
from numpyro_gp.kernels.stationary import Matern12
from numpyro_gp.kernels.trends import Centred, Wiener
from numpyro_gp.kernels.varying import Modulated
from numpyro_gp.kernels.zero_mean import ZeroMean
from numpyro_gp.linalg import matmul


@value_type(static=("columns",))
class OfFunctionals(Kernel):
    """The covariance of functionals of a function with this kernel, ``cov(L f, L' f) = L L' k``, of plain points too.

    Both are taken by directional derivatives of ``k(X1, X2)``, each row along its own direction, so that the price is
    some four Gram matrices of the points, whatever D is.
    """

    kernel: KernelField
    columns: int

    def __post_init__(self) -> None:
        store(self, kernel=as_kernel(self.kernel))

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


# Kernels made of others, by their fields.
MADE_OF: dict[type, tuple[str, ...]] = dict.fromkeys((Sum, Product), ("first", "second"))
MADE_OF |= dict.fromkeys((Scaled, Active, ZeroMean, Centred, OfFunctionals, Modulated), ("kernel",))


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
    own, sides = as_kernel(kernel), [one for one in (first, second) if one is not None]
    shapes = [one.shape for one in map(as_functional, sides)]
    if len({shape[-1] for shape in shapes}) > 1:
        fail("second", f"of {shapes[0][-1]} columns, as the first", f"shape {shapes[1]}", "Pass the same inputs.")
    for side in sides:
        check_slopes(own, getattr(side, "slopes", ()))
    rows = [side.rows if isinstance(side, Functional) else side for side in sides]
    return OfFunctionals(own, shapes[0][-1]).matrix(*rows)


def check_slopes(kernel: Kernel, columns: Sequence[int]) -> None:
    """Refuse a kernel whose functions have no slopes in these columns."""
    if not columns:
        return
    own = columns
    if isinstance(kernel, Active):
        own = [place for place, dim in enumerate(kernel.dims) if dim in columns]
    for part in next((fields for kind, fields in MADE_OF.items() if isinstance(kernel, kind)), ()):
        check_slopes(getattr(kernel, part), own)
    name, required = f"the kernel of a slope in column {columns[0]}", "one whose functions have a slope"
    if isinstance(kernel, (Matern12, Wiener)):
        cure = "Use Matern32, Matern52 or RBF." if isinstance(kernel, Matern12) else "Use IntegratedWiener."
        got = f"{type(kernel).__name__}, whose functions are too rough: the variance of a slope is infinite"
        fail(name, required, got, cure)
    if isinstance(kernel, ArcCosine) and kernel.order == 0:
        fail(name, required, "ArcCosine of order 0, whose functions are steps", "Pass order=1 or order=2.")
    if isinstance(kernel, (CategoryDelta, OfCodes)):
        got = f"{type(kernel).__name__}, which reads codes of categories there"
        fail(name, required, got, "Take slopes in the other columns.")
