"""Kernels given by their spectral density (mathematics.md section 2.3)."""

import math

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, store, value_type
from numpyro_gp.checks import check_floating, check_positive, fail
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.distances import squared_distances
from numpyro_gp.kernels.hyperparameters import inner_products
from numpyro_gp.kernels.stationary import _centre, constant_like, waves


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
        for argument, array in (("means", means), ("scales", scales)):
            if array.ndim != 2 or array.shape[0] != weights.shape[0]:
                required = f"of shape ({weights.shape[0]}, D), one row for each weight"
                fail(argument, required, f"shape {array.shape}", f"For one input dimension pass {argument}[:, None].")
        if means.shape != scales.shape:
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
