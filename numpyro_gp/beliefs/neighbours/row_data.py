"""Data at rows as a process by neighbours sees them, of whatever likelihood: draws (mathematics.md section 16.3).

``r = s f + e^(1/2) xi`` at each row, of the function less its mean: Gaussian data have ``s = 1``, pseudo-data
``s = w^(1/2)`` and ``e = 1``, and values of the function itself ``e = 0``. With inducing points ``f = A^T w + g``, and
it is ``g`` that neighbours are for.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float, Int

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.beliefs.neighbours import blocks
from numpyro_gp.beliefs.neighbours.global_part import Shared
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.linalg import einsum, matmul

# Mean of ``f`` given others, its variance given what is global, and what that adds (0 without).
Cavity = tuple[Array, Array, Array]
# Of a jitter that is taken back from a variance this part may be rounding.
LEAST = 1e-2


@value_type()
class Places:
    """What is known at rows ``(N, D)`` of a process: scales, noise variances and residuals.

    Attributes
    ----------
    kernel : Kernel
    scale : Array (N,) or None
        ``s``; None where all are one.
    noise : Array () or (N,)
        ``e``, without the jitter.
    residual : Array (N,)
        ``r``.
    jitter : Array ()
        Noise of each place in units of the variance of ``s f`` there.
    basis : Basis or None
        That of inducing points, where neighbours are for the rest alone.
    """

    kernel: Kernel
    scale: Float[Array, " N"] | None
    noise: Array
    residual: Float[Array, " N"]
    jitter: ArrayLike
    basis: Basis | None = None

    def scales(self, rows: Int[Array, "..."]) -> Array:
        """``s`` of rows."""
        return jnp.ones(rows.shape, self.residual.dtype) if self.scale is None else self.scale[rows]

    def noises(self, rows: Int[Array, "..."]) -> Array:
        """``e`` of rows, without the jitter."""
        return blocks.of_rows(self.noise, rows)

    def spread(self, inputs: Float[Array, "N D"]) -> Float[Array, " N"]:
        """``e^(1/2)`` of all rows, jitter included."""
        return jnp.sqrt(self.noise_at(jnp.arange(inputs.shape[0]), inputs))

    def noise_at(self, rows: Int[Array, " B"], own: Float[Array, "B D"]) -> Float[Array, " B"]:
        """``e`` of rows, jitter included."""
        return self.noises(rows) + self.jitter * jnp.square(self.scales(rows)) * self.kernel.diagonal(own)

    def _blocks(
        self, inputs: Array, own: Array, index: Array, own_scale: ArrayLike, own_noise: ArrayLike
    ) -> tuple[blocks.Blocks, Array, Array]:
        """Rows ``own`` behind the rows ``index``, their scales and their covariance."""
        at = blocks.Blocks.of(inputs, index, own)
        scale = at.behind(self.scales(at.rows), own_scale)
        noise = at.behind(self.noises(at.rows), own_noise, 1.0)
        return at, scale, at.covariance(self.kernel, noise, scale, self.jitter)

    def given(
        self, inputs: Float[Array, "N D"], own: Float[Array, "B D"], index: Int[Array, "B K"], shared: Shared | None
    ) -> Cavity:
        """What is known ``(B,)`` of ``f`` at rows ``own`` given the rows ``index``.

        ``shared``: what inducing points hold, where neighbours have the rest alone.
        """

        def some(own: Array, index: Array) -> tuple[Array, ...]:
            at, scale, covariance = self._blocks(inputs, own, index, 1.0, 0.0)
            behind = at.behind(self.residual[at.rows], 0.0)
            if shared is not None:
                return shared.predicted(shared.rows(covariance, at, behind, scale))
            weights, variance = blocks.conditional(covariance)
            return jnp.sum(weights * behind[:, :-1], axis=-1), variance

        count = index.shape[1]  # many neighbours, in predictions, make large blocks
        most = max(1, blocks.NUMBERS // (count + 1) ** 2) if shared is None else shared.together(count)
        found: Any = blocks.by_parts(
            some, own, index, at_once=min(blocks.AT_ONCE, most), together=min(blocks.TOGETHER, most)
        )
        return found if shared is not None else (*found, jnp.zeros((), found[0].dtype))

    def evidence(
        self, inputs: Float[Array, "N D"], rows: Int[Array, " B"], index: Int[Array, "B K"], shared: Shared | None
    ) -> Float[Array, " B"]:
        """Terms of ``log int p(f) prod_i exp(s_i r_i f_i - s_i^2 f_i^2 / 2) df``, of rows given the earlier ones.

        With ``shared`` their expectation over what is global, whose divergence from its prior is not in them.
        """

        def some(rows: Array, index: Array) -> Array:
            at, scale, covariance = self._blocks(inputs, inputs[rows], index, self.scales(rows), self.noises(rows))
            behind = at.behind(self.residual[at.rows], self.residual[rows])
            if shared is not None:
                return shared.expected(shared.rows(covariance, at, behind, scale))
            return blocks.log_density(covariance, behind)

        most = blocks.AT_ONCE if shared is None else shared.together(index.shape[1])
        found = blocks.by_parts(
            some, rows, index, at_once=min(blocks.AT_ONCE, most), together=min(blocks.TOGETHER, most)
        )
        return found + 0.5 * jnp.square(self.residual[rows]) + blocks.HALF_LOG_2PI

    def weights(
        self, inputs: Float[Array, "N D"], own: Float[Array, "B D"], index: Int[Array, "B K"]
    ) -> tuple[Float[Array, "B K"], Float[Array, " B"]]:
        """Weights ``a`` of the rows ``index``, by which ``f`` at rows ``own`` has the mean ``a . r_N``; its variance.

        Of ``g``, where inducing points hold what is global. Places that are not taken have weight 0.
        """
        at, scale, covariance = self._blocks(inputs, own, index, 1.0, 0.0)
        if self.basis is None:
            found, variance = blocks.conditional(covariance)
        else:
            rest = Shared.prior(self.basis).rest(covariance, at, scale)[0]
            found, variance = blocks.by_last_row(blocks.row_factor(rest))
        return jnp.where(at.taken, found, 0), variance

    def followed_by(self, own: Float[Array, "B D"], jitter: ArrayLike) -> "Places":
        """The same with rows behind them at which ``f`` itself is given: their jitter is for factors alone."""
        size, rows = own.shape[0], jnp.arange(self.residual.shape[0])
        more = jnp.maximum(jnp.asarray(jitter) - self.jitter, 0) * self.kernel.diagonal(own)
        scale = None if self.scale is None else jnp.concatenate([self.scale, jnp.ones(size, self.scale.dtype)])
        noise = jnp.concatenate([self.noises(rows), more])
        residual = jnp.concatenate([self.residual, jnp.zeros(size, self.residual.dtype)])
        return Places(self.kernel, scale, noise, residual, self.jitter, self.basis)

    def drawn_together(
        self,
        inputs: Float[Array, "N D"],
        own: Float[Array, "B D"],
        index: Int[Array, "B K"],
        order: Int[Array, " B"],
        white: Float[Array, "S B"],
        values: Float[Array, "S M"] | None,
        jitter: ArrayLike,
    ) -> Float[Array, "S B"]:
        """Draws of ``f`` at new rows, one after the other, from standard normal noise.

        Each is given the rows of ``index``: those of the data, or, from N on, new rows that come before it in their
        ``order``. ``values`` are draws of ``w``. New rows are given as they are, and factors need a jitter ``e`` there:
        what it leaves in the variance under the weights ``a`` is ``sum_j e_j a_j^2``, and is taken back.
        """
        size = inputs.shape[0]
        every, places = jnp.concatenate([inputs, own]), self.followed_by(own, jitter)

        def some(own: Array, index: Array, least: Array) -> tuple[Array, Array, Array, Any]:
            weights, variance = places.weights(every, own, index)
            rows = jnp.maximum(index, 0)
            of_data = jnp.where(rows < size, weights, 0)
            left = variance - least - jnp.sum(more[rows] * jnp.square(weights - of_data), axis=1)
            mean, spread = jnp.sum(of_data * places.residual[rows], axis=1), jnp.sqrt(jnp.maximum(left, LEAST * least))
            if self.basis is None:
                return weights - of_data, spread, mean, None
            features = self.basis.features(every[rows].reshape(-1, own.shape[1])).reshape(-1, *rows.shape)
            return weights - of_data, spread, mean, einsum("mbk,bk->bm", features, of_data * places.scales(rows))

        length, columns = index.shape[1] + 1, 0 if self.basis is None else self.basis.size
        together = max(1, blocks.NUMBERS // length // (length + columns))
        least = jnp.asarray(self.jitter) * self.kernel.diagonal(own)
        of_new = places.noise_at(size + jnp.arange(own.shape[0]), own)
        more = jnp.concatenate([jnp.zeros_like(self.residual), of_new])
        weights, spread, mean, held = blocks.by_parts(some, own, index, least, at_once=together, together=together)
        mean, known = mean[None], jnp.zeros_like(white)
        if self.basis is not None and values is not None:
            mean, known = mean - matmul(values, held.T), matmul(values, self.basis.features(own))
        # What the data say is a shift of the noise, in units of its spread.
        shifted = white + mean / spread[None]
        return blocks.row_after_row(weights, spread, jnp.where(index < size, -1, index - size), order, shifted) + known
