"""Pseudo-data of rows with neighbours: a normal datum for each, found by natural steps (mathematics.md section 16.4).

``t_i(f) = exp(h_i f - w_i f^2 / 2)`` stands for what the likelihood says of ``f`` at row ``i``. Their evidence is a sum
over rows, as that of Gaussian data is, and ``q(f_i)`` is the process given those around the row, times its own.
"""

from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.checks import fail

# Mean of ``f`` given others, its variance given what is global, and what that adds.
Cavity = tuple[Array, Array, Array]
# Pseudo-data, rows, mean of q, the cavity, variance of f, and how often a term of the plate counts.
_Saved = tuple[Array, Array, Array, Array, Cavity, Array, ArrayLike]


@value_type(static=("held",))
class PseudoRows(AbstractBelief):
    """Pseudo-data at all rows of `ngp.neighbours`, what a guide holds of ``ngp.gp("f", kernel, near[idx])``.

    In a plate it looks like an array of the rows of the minibatch; each of them reads the pseudo-data of its
    neighbours too. What it says follows from kernel and rows, which the site has: ask the process, ``f.at_inducing()``
    and ``f(X)``.

    Attributes
    ----------
    shift : Array (N,)
        ``h``; 0 where nothing was said.
    precision : Array (N,)
        ``w``, at least 0.
    held : int, optional
        Number of the rows that its plate holds; all of them by default.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.beliefs.PseudoRows(jnp.zeros(5), jnp.zeros(5)).in_plate((2,)).shape
    (2,)
    """

    shift: Float[Array, " N"]
    precision: Float[Array, " N"]
    held: int | None = None

    @property
    def shape(self) -> Shape:
        """That of the rows in its plate."""
        return (int(self.shift.shape[0]) if self.held is None else self.held,)

    @property
    def dtype(self) -> np.dtype:
        """Floating point type."""
        return self.shift.dtype

    def in_plate(self, batch: Shape) -> "PseudoRows":
        """The same pseudo-data in a plate of so many rows."""
        return PseudoRows(self.shift, self.precision, batch[-1]) if batch else self  # a line is in none

    # A process by neighbours has no basis that all rows depend on.
    reads_basis = False
    holds_whitened = False

    @property
    def whitened_mean(self) -> Array:
        """Refused, as all that needs a basis is."""
        self._refuse()

    def marginals(self, *arguments: object, **named: object) -> NoReturn:  # noqa: ARG002
        """Refused: there are no inducing values, and the process and the prior of the site have what there is."""
        self._refuse()

    joint = kl = whitened = marginals

    def _refuse(self) -> NoReturn:
        cure = "Ask the process in the model, f.at_inducing() or f(X), or posterior.predict_at(key, X_new, near, y)."
        fail("a belief that is asked for inducing values", "one with a basis", "pseudo-data by neighbours", cure)

    # ------------------------------------------------------------------------------------ what they say at rows

    @property
    def residual(self) -> Array:
        """``h / w^(1/2)``, residuals in units of their noise."""
        root = lax.rsqrt(jnp.maximum(self.precision, jnp.finfo(self.dtype).tiny))
        return jnp.where(self.precision > 0, self.shift * root, 0)

    def expected_log(self, rows: Int[Array, " B"], mean: Array, variance: Array) -> Array:
        """``E_q(f_i) log t_i(f_i)`` of rows whose ``q`` has these moments, ``(B,)``."""
        return self.shift[rows] * mean - 0.5 * self.precision[rows] * (jnp.square(mean) + variance)


def without_own_datum(
    shift: Float[Array, " N"], precision: Float[Array, " N"], rows: Int[Array, " B"], cavity: Cavity
) -> tuple[Array, Array]:
    """Mean and variance ``(B,)`` of ``f`` without the pseudo-datum of the row itself.

    What is global knows of it: it is divided out of the moments of ``q``. Before ``w`` has heard of the pseudo-data
    nothing may be left to divide, and the variance is then very large.
    """
    mean, variance, spread = cavity
    h, w = shift[rows], precision[rows]
    wide = spread / (1 + variance * w)
    left = jnp.maximum(1 - w * wide, jnp.finfo(mean.dtype).eps)
    return (mean - wide * h) / left, (variance + wide) / left


@jax.custom_vjp
def natural_moments(
    shift: Float[Array, " N"],
    precision: Float[Array, " N"],
    rows: Int[Array, " B"],
    cavity: Cavity,
    scale: tuple[Array, ArrayLike],  # noqa: ARG001
) -> tuple[Array, Array]:
    """Moments ``(B,)`` of a cavity times the pseudo-datum of the row, with natural gradients as their derivative.

    ``scale``: the prior variance of ``f`` at the rows, in units of which the least precision is, and how often each
    term of the plate counts, N / B, which the step of a row must not: it has a pseudo-datum of its own. Kernel and
    cavity get no gradient: at the optimum there is none (mathematics.md section 16.4).
    """
    mean, variance, spread = cavity
    share = 1 / (1 + variance * precision[rows])
    return share * (mean + variance * shift[rows]), share * (variance + share * spread)


def _moments_forward(
    shift: Array, precision: Array, rows: Array, cavity: Cavity, scale: tuple[Array, ArrayLike]
) -> tuple[tuple[Array, Array], _Saved]:
    moments = natural_moments(shift, precision, rows, cavity, scale)
    return moments, (shift, precision, rows, moments[0], cavity, *scale)


def _moments_backward(saved: _Saved, slopes: tuple[Array, Array]) -> tuple[object, ...]:
    """``h - target`` and ``w - target``, where a full step leads: what the likelihood says at ``q``, of ``w >= 0``.

    A row that a minibatch holds twice has its gradient once.
    """
    shift, precision, rows, mean, cavity, prior, counted = saved
    d_mean, d_variance = (slope / counted for slope in slopes)
    now = precision[rows]
    least = jnp.sqrt(jnp.finfo(mean.dtype).eps) / prior
    d_precision = now - jnp.maximum(now + 2 * d_variance, least)
    d_shift = d_mean + d_precision * mean
    slopes_of_data = jnp.zeros_like(shift).at[rows].set(d_shift), jnp.zeros_like(precision).at[rows].set(d_precision)
    return (*slopes_of_data, None, jax.tree.map(jnp.zeros_like, cavity), (jnp.zeros_like(prior), None))


natural_moments.defvjp(_moments_forward, _moments_backward)
