"""A kernel for one column of category codes whose functions average to zero: the main effect of a category."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, store, value_type
from numpyro_gp.checks import check_positive, fail, when_known
from numpyro_gp.kernels.base import Kernel, positive_scalar
from numpyro_gp.kernels.nonstationary import Coregion


@value_type()
class ZeroMeanCategory(Kernel):
    """The effect of a category around its average: independent levels whose average under ``probabilities`` is zero.

    ``k0(i, j) = variance * (delta_ij - p_i p_j / sum_l p_l^2)``: what `ZeroMean` is for numbers
    (mathematics.md section 2.5), with the frequencies ``p`` of the categories as the measure.

    Parameters
    ----------
    variance
        Prior variance of a level before it is centred.
    probabilities
        ``(C,)``, positive, summing to 1: codes are 0, 1, …, C-1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> kernel = ZeroMeanCategory(2.0, jnp.array([0.5, 0.5]))
    >>> kernel.matrix(jnp.array([[0.0], [1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    variance: ArrayField
    probabilities: ArrayField

    def __post_init__(self) -> None:
        weights = check_positive("probabilities", self.probabilities)
        if weights.ndim != 1 or weights.shape[0] < 2:
            cure = "Pass one probability for each level, such as jnp.full(C, 1 / C)."
            fail("probabilities", "of shape (C,) for two or more categories", f"shape {weights.shape}", cure)

        def check(values: np.ndarray) -> None:
            if abs(float(total := values.sum()) - 1) > 1e-4:
                cure = "Divide by the sum: probabilities / probabilities.sum()."
                fail("probabilities", "a distribution that sums to 1", f"a sum of {total:.6g}", cure)

        when_known(check, weights)
        store(self, variance=positive_scalar("variance", self.variance), probabilities=weights)

    def quadrature(self) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        """The codes and their probabilities: nodes and weights of the measure."""
        count = self.probabilities.shape[0]
        return jnp.asarray(np.arange(count), self.probabilities.dtype), self.probabilities

    def _cross(self, X1: Float[Array, "N1 D"], X2: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
        # The codes are checked where codes are checked: by Coregion.
        count, p = self.probabilities.shape[0], self.probabilities
        codes = Coregion(jnp.zeros((count, 1), p.dtype), 1.0)
        (rows, valid_rows), (columns, valid_columns) = codes._codes(X1), codes._codes(X2)
        equal = (rows[:, None] == columns[None, :]).astype(p.dtype)
        values = self.variance * (equal - p[rows][:, None] * p[columns][None, :] / jnp.sum(p**2))
        dtype = jnp.result_type(values, X1, X2)
        return jnp.where(valid_rows[:, None] & valid_columns[None, :], values.astype(dtype), jnp.nan)

    def _diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        p = self.probabilities
        rows, valid = Coregion(jnp.zeros((p.shape[0], 1), p.dtype), 1.0)._codes(X)
        values = self.variance * (1 - p[rows] ** 2 / jnp.sum(p**2))
        return jnp.where(valid, values.astype(jnp.result_type(values, X)), jnp.nan)
