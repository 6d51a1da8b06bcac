"""How much variance each component has, in NumPy as in JAX: its square integrated (mathematics.md section 6.4)."""

from typing import Any, NamedTuple

import jax
import numpy as np

from numpyro_gp.linalg import matmul

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
        middle = _times(A, mass)
        away = (A - middle[..., None]) * (mass**0.5).reshape((1,) * (A.ndim - 1) + (-1,))
        return cls(_times(away, away.swapaxes(-1, -2)), _times(prior, mass) - (middle**2).sum(-1))

    @property
    def left(self) -> Any:
        """``int k_c dnu - tr G_c``: what the inducing inputs leave open."""
        return self.prior - self.gram.trace(axis1=-2, axis2=-1)

    def of_values(self, values: AnyArray) -> Any:
        """``v^T G_c v`` of values ``(..., M, S)``: ``(..., S)``."""
        return (values * _times(self.gram, values)).sum(-2)

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


def _times(left: Any, right: Any) -> Any:
    """``A B``, in JAX in the precision of its operands."""
    return left @ right if isinstance(left, np.ndarray) else matmul(left, right)
