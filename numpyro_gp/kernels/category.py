"""A kernel for one column of category codes whose functions average to zero: the main effect of a category."""

from types import ModuleType

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, Values, store, value_type
from numpyro_gp.checks import check_positive, fail, when_known
from numpyro_gp.kernels.hyperparameters import positive_scalar
from numpyro_gp.kernels.nonstationary import OfCodes


@value_type()
class ZeroMeanCategory(OfCodes):
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
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernel = ngp.kernels.ZeroMeanCategory(2.0, jnp.array([0.5, 0.5]))
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

    def covariance(self) -> Float[Array, "C C"]:
        return self.variance * around_average(self.probabilities)


def around_average(p: Values, xp: ModuleType = jnp) -> Values:
    """``I - p p^T / |p|^2``: covariances of levels of unit variance whose average under ``p`` is zero, a projection."""
    return xp.eye(p.shape[0], dtype=p.dtype) - xp.outer(p, p) / xp.sum(p**2)
