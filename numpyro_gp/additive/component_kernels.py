"""Kernels of the components of an additive model: of each column one that averages to zero; those alike as one batch.

Designs of `ngp.anova` (mathematics.md section 2.4) and formulas of `ngp.gam` (mathematics.md section 6.5) are made of
them.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.members import alike, picked
from numpyro_gp.kernels import Kernel, Periodic, ZeroMean, ZeroMeanCategory
from numpyro_gp.kernels.measures import Measure
from numpyro_gp.kernels.members import Batch, kernel_batch_of, stacked
from numpyro_gp.linalg import matmul


class Component(NamedTuple):
    """What the kernel of a component is made of.

    Attributes
    ----------
    name : str
    columns : tuple of int
        Those of the inputs that it reads.
    given : sequence
        Of each column its measure, its measure and period, or the frequencies ``(C,)`` of its levels.
    lengthscales : int
        How many it has.
    kind : hashable
        Equal for components whose kernels are one batch.
    make : callable
        ``(variance, lengthscales, given) -> Kernel`` on columns 0, 1, ....
    """

    name: str
    columns: tuple[int, ...]
    given: Sequence[object]
    lengthscales: int
    kind: Hashable
    make: Callable[..., Kernel]


def batches_of(components: Sequence[Component], variances: Array, lengthscales: Array) -> list[Batch]:
    """Kernels of components by their variances ``(C,)`` and lengthscales ``(L,)``, which stand one after the other."""
    dtype, ends = jnp.result_type(variances), np.cumsum([0, *(component.lengthscales for component in components)])
    batches = []
    for members in alike(component.kind for component in components):
        some, size = [components[at] for at in members], components[members[0]].lengthscales
        lengths = jnp.zeros((len(members), 0), dtype)
        if size:
            lengths = picked(lengthscales, ends[list(members), None] + np.arange(size))
        names, columns, given = zip(*(component[:3] for component in some), strict=True)
        variance = picked(variances, np.asarray(members))
        batches.append(kernel_batch_of(names, columns, some[0].make, variance, lengths, stacked(given, dtype)))
    return batches


def column_kernel(
    unit: Array, given: Any, family: Callable[..., Any] | None = None, lengthscale: Array | None = None
) -> Kernel:
    """The kernel of variance ``unit`` of one column: a curve, one that repeats, or levels; see `Component.given`."""
    if isinstance(given, tuple):
        measure, period = given
        assert lengthscale is not None
        return ZeroMean(Periodic(unit, lengthscale, period), measure)
    if isinstance(given, Measure):
        assert family is not None
        return ZeroMean(family(unit, lengthscale), given)
    return ZeroMeanCategory(unit, given)


# --------------------------------------------------------------------------------------
# How much variance each component has, in NumPy as in JAX: its square integrated (mathematics.md section 6.4).


# Both kinds of arrays have the operators and methods that stand here.
AnyArray = jax.Array | np.ndarray


class Squares(NamedTuple):
    """What ``D_c = int f_c^2 dnu`` is made of, for one component or for a stack ``(..., M, M)``, ``(...,)``.

    Attributes
    ----------
    gram : array (..., M, M)
        ``G_c = int A_c A_c^T dnu`` of whitened features ``A_c``.
    prior : array (...)
        ``int k_c(x, x) dnu``.
    """

    gram: AnyArray
    prior: AnyArray

    @classmethod
    def over(cls, A: AnyArray, prior: AnyArray, mass: AnyArray) -> "Squares":
        """Over rows of mass ``(N,)`` that sums to one, around the average of each function there.

        From features ``A (..., M, N)`` and prior variances ``(..., N)``: ``prior`` is the average of
        ``k_c(x_n, x_n) - |mean_n a_c(x_n)|^2``.
        """
        middle = _matrix_product(A, mass)
        away = (A - middle[..., None]) * (mass**0.5).reshape((1,) * (A.ndim - 1) + (-1,))
        return cls(_matrix_product(away, away.swapaxes(-1, -2)), _matrix_product(prior, mass) - (middle**2).sum(-1))

    @property
    def left(self) -> Any:
        """``int k_c dnu - tr G_c``: what the inducing inputs leave open."""
        return self.prior - self.gram.trace(axis1=-2, axis2=-1)

    def of_values(self, values: AnyArray) -> Any:
        """``v^T G_c v`` of values ``(..., M, S)``: ``(..., S)``."""
        return (values * _matrix_product(self.gram, values)).sum(-2)

    def expected(self, mean: AnyArray, covariance: AnyArray) -> Any:
        """``E D_c = m^T G_c m + int k_c dnu - tr G_c + tr(S_cc G_c)``."""
        return self.of_values(mean[..., None])[..., 0] + self.left + (covariance * self.gram).sum((-2, -1))

    def drawn(self, values: AnyArray) -> Any:
        """``D_c`` of draws ``(..., M, S)``: what is left open enters by its expectation."""
        return self.of_values(values) + self.left.clip(0)[..., None]


def shares_of(variances: Any) -> Any:
    """Shares of variances ``(C, ...)`` in their sum, zero where there is nothing to share."""
    total = variances.sum(0, keepdims=True)
    return variances / (total + (total <= 0))  # then every D is zero, but for rounding


def _matrix_product(left: Any, right: Any) -> Any:
    """``A B``, in JAX in the precision of its operands."""
    return left @ right if isinstance(left, np.ndarray) else matmul(left, right)
