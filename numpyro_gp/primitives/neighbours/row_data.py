"""Data at rows with neighbours, of whatever likelihood, with or without inducing points for what is global.

``r = s f + e^(1/2) xi`` at each row, of the function less its mean: Gaussian data have ``s = 1``, pseudo-data
``s = w^(1/2)`` and ``e = 1``, values of the function itself ``e = 0``. With inducing points ``f = A^T w + g``:
``w (M,)``, standard normal before the data, is global, and neighbours are for the rest ``g`` of covariance
``k - A^T A``. A block of a row behind its neighbours has one factor ``x``; with ``z = x . r`` and ``b = A_B x``
``log p(r_i | r_N(i), w) = log x_last - (z - b . w)^2 / 2 - log(2 pi) / 2`` (mathematics.md section 16.5, and
16.2 and 16.3 without inducing points).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float, Int

from numpyro_gp.arrays import Array, ArrayLike, Shape, T, value_type
from numpyro_gp.beliefs.base import Point
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.gaussian_data import ridge_factor
from numpyro_gp.beliefs.neighbours.blocks import (
    BLOCKS_AT_ONCE,
    BLOCKS_TOGETHER,
    HALF_LOG_2PI,
    NUMBERS_TOGETHER,
    NeighbourBlocks,
    by_parts,
    of_rows,
    row_after_row,
    row_factor,
)
from numpyro_gp.checks import fail
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.linalg import einsum, half_log_det, matmul
from numpyro_gp.means import Mean
from numpyro_gp.neighbours.value import JointRows, Neighbours, NewRows
from numpyro_gp.primitives.function_draw import level_at
from numpyro_gp.programs.compiled import one_program

# Of a jitter that is taken back from a variance this part may be rounding.
ROUNDED_PART = 1e-2


@value_type()
class GlobalPart:
    """What inducing points hold of a process, as it is known: ``w ~ N(m, C C^T)``.

    Attributes
    ----------
    basis : Basis
        That of the inducing points, whose features are ``A``.
    mean : Array (M,)
    factor : Array (M, M) or None
        ``C``; None where ``w`` is known.
    covariance : Array (M, M) or None
        ``C C^T`` where it is at hand: derivatives then pass its factor by.
    """

    basis: Basis
    mean: Array
    factor: Array | None
    covariance: Array | None = None

    @classmethod
    def of(cls, process: Any, basis: Basis) -> "GlobalPart":
        """That of a point, or of a belief about whitened values."""
        if isinstance(process, Point):
            return cls(basis, process.v, None)
        whitened = process.whitened(basis)
        moments = process.moments if isinstance(process, Coupled) else None
        return cls(basis, whitened.mean, whitened.scale_tril, None if moments is None else moments.covariance)

    def features(self, inputs: Float[Array, "B L D"]) -> Float[Array, "M B L"]:
        """``A`` at the places of blocks."""
        return self.basis.features(inputs.reshape(-1, inputs.shape[-1])).reshape(-1, *inputs.shape[:-1])

    def draws(self, white: Float[Array, "*batch M"]) -> Float[Array, "*batch M"]:
        """Draws of ``w`` from standard normal noise."""
        mean = jnp.broadcast_to(self.mean, white.shape)
        return mean if self.factor is None else mean + matmul(white, self.factor.T)


class RowFactors(NamedTuple):
    """NeighbourBlocks of rows behind their neighbours: the last rows of their inverse factors, and what these say.

    Attributes
    ----------
    at : NeighbourBlocks
    x : Array (B, K + 1)
        0 in places that are not taken.
    z : Array (B,)
        ``x . r``.
    b : Array (B, M) or None
        ``A_B x``; None where nothing is global.
    """

    at: NeighbourBlocks
    x: Array
    z: Array
    b: Array | None

    def conditional(self) -> tuple[Array, Array]:
        """Weights of the neighbours ``(B, K)``, and standard deviations ``(B,)``, of ``g`` at the rows themselves."""
        return -self.x[:, :-1] / self.x[:, -1:], 1 / self.x[:, -1]


@value_type(static=("is_given",))
class RowData:
    """Data at rows with neighbours and what they are of.

    Attributes
    ----------
    kernel : Kernel
        That of the whole process.
    near : Neighbours
    y : Array (N,)
        Data; of the function less its mean where there is a ``scale``, or no ``level``.
    noise : Array () or (N,)
        ``e``, without the jitter.
    level : Mean or None
        The mean function.
    jitter : Array ()
        Noise of each place in units of the variance of ``s f`` there, beside its own.
    scale : Array (N,) or None
        ``s`` of pseudo-data; None where all are one.
    shared : GlobalPart or None
        ``w``, its prior or what is known of it, where neighbours are for the rest alone.
    is_given : bool
        Whether ``shared`` knows the data already.
    """

    kernel: Kernel
    near: Neighbours
    y: Array
    noise: Array
    level: Mean | None
    jitter: ArrayLike
    scale: Array | None = None
    shared: GlobalPart | None = None
    is_given: bool = False

    @property
    def inputs(self) -> Float[Array, "N D"]:
        """All rows of the data."""
        return jnp.asarray(self.near.inputs)

    def level_at(self, rows: Float[Array, "B D"]) -> Array:
        """The mean function at rows."""
        return jnp.zeros((), rows.dtype) if self.level is None else level_at(self.level, rows)

    def noise_of(self, rows: Int[Array, "..."]) -> Array:
        """``e`` of rows of the data, without the jitter."""
        return of_rows(self.noise, rows)

    def noise_at(self, rows: Int[Array, " B"], points: Float[Array, "B D"]) -> Float[Array, " B"]:
        """``e`` of rows, jitter included."""
        prior = self.kernel.diagonal(points)
        return self.noise_of(rows) + self.jitter * (prior if self.scale is None else self.scale[rows] ** 2 * prior)

    def centred(self) -> Self:
        """The data as those of the function less its mean."""
        y = self.y if self.level is None or self.scale is not None else self.y - self.level_at(self.inputs)
        return replace(self, y=y, level=None)

    # --------------------------------------------------------------------------------- what blocks of rows say

    def factors(
        self,
        points: Float[Array, "B D"],
        index: Int[Array, "B K"],
        value: Array | None = None,
        scale: ArrayLike = 1.0,
        noise: ArrayLike = 0.0,
    ) -> RowFactors:
        """Factors of ``points`` behind the rows ``index`` of the data, which have ``value``, ``scale`` and ``noise``.

        Without ``value`` their residual is 0.
        """
        at = NeighbourBlocks.of(self.inputs, index, points)
        scales = None if self.scale is None else at.behind(self.scale[at.rows], scale)
        noises = self.noise_of(at.rows)
        noises = noises.astype(jnp.result_type(noises, at.inputs))
        covariance = at.covariance(self.kernel, at.behind(noises, noise, 1.0), scales, self.jitter)
        features = None
        if self.shared is not None:
            taken = at.behind(jnp.ones(at.taken.shape, covariance.dtype), 1.0) if scales is None else scales
            features = self.shared.features(at.inputs) * taken[None]
            covariance = covariance - einsum("mbi,mbj->bij", features, features)
        x = row_factor(covariance)
        residual = at.behind(self.y[at.rows], 0.0 if value is None else value)
        if self.level is not None and self.scale is None:
            flat = at.inputs.reshape(-1, at.inputs.shape[-1])  # (N, D), as means of data without neighbours have it
            levels = self.level_at(flat).reshape(residual.shape)
            residual = jnp.where(at.behind(at.taken, value is not None, False), residual - levels, 0)
        b = None if features is None else einsum("mbi,bi->bm", features, x)
        return RowFactors(at, x, jnp.sum(x * residual, axis=1), b)

    def _ahead(self, b: Array | None) -> tuple[ArrayLike, ArrayLike]:
        """Mean and variance of ``b . w``."""
        if self.shared is None or b is None:
            return 0.0, 0.0
        mean, known = matmul(b, self.shared.mean), self.shared
        if known.factor is None:
            return mean, jnp.zeros_like(mean)
        if known.covariance is not None:
            return mean, jnp.sum(matmul(b, known.covariance) * b, axis=1)
        return mean, jnp.sum(jnp.square(matmul(b, known.factor)), axis=1)

    def _sizes(self, index: Array, is_new: bool = False) -> dict[str, int]:
        """How many blocks are looked at together; of new rows, which have many neighbours, as many as fit."""
        length, columns = index.shape[1] + 1, 0 if self.shared is None else self.shared.basis.size
        most = max(1, NUMBERS_TOGETHER // length // (length + columns))
        if is_new or self.shared is not None:
            return {"at_once": most, "together": most}
        return {"at_once": min(BLOCKS_AT_ONCE, most), "together": min(BLOCKS_TOGETHER, most)}

    # ------------------------------------------------------------------------------------------------ densities

    def terms(self, rows: Int[Array, " B"], index: Int[Array, "B K"], value: Array) -> Float[Array, " B"]:
        """``E log p(r_i | r_N(i), w)`` of rows with neighbours ``index``, whose data are ``value`` ``(B,)``."""

        def some(rows: Array, index: Array, value: Array) -> Array:
            scale = 1.0 if self.scale is None else self.scale[rows]
            _, x, z, b = self.factors(self.inputs[rows], index, value, scale, self.noise_of(rows))
            mean, variance = self._ahead(b)
            return jnp.log(x[:, -1]) - 0.5 * (jnp.square(z - mean) + variance) - HALF_LOG_2PI

        return by_parts(some, rows, index, value, **self._sizes(index))

    def _of_all(self, read: Callable[[RowFactors], T]) -> T:
        """Read something off the factors of all rows of the data, some rows at a time."""

        def some(points: Array, index: Array, value: Array, noise: Array) -> T:
            return read(self.factors(points, index, value, noise=noise))

        index, noise = jnp.asarray(self.near.index), self.noise_of(jnp.arange(self.near.size))
        return by_parts(some, self.inputs, index, self.y, noise, **self._sizes(index))

    def evidence(self) -> Array:
        """``log p(y)``, with ``w`` integrated out, or in expectation where it is known."""
        if self.shared is None or self.is_given:
            return jnp.sum(self.terms(jnp.arange(self.near.size), jnp.asarray(self.near.index), self.y))
        last, z, b = self._of_all(lambda at: (at.x[:, -1], at.z, at.b))
        root, gain = _gain(z, b)
        terms = jnp.log(last) - 0.5 * jnp.square(z) - HALF_LOG_2PI
        return jnp.sum(terms) + 0.5 * jnp.sum(jnp.square(gain)) + half_log_det(root)

    def given_data(self) -> Self:
        """With ``w`` given the data in place of its prior: one pass over them, unless it knows them."""
        if self.shared is None or self.is_given:
            return self
        root, gain = _gain(*self._of_all(lambda at: (at.z, at.b)))
        return replace(self, shared=GlobalPart(self.shared.basis, matmul(root, gain), root), is_given=True)

    # ------------------------------------------------------------------------------------------------- new rows

    def given(self, points: Array, index: Array, is_new: bool = False) -> tuple[Array, Array, Array]:
        """Mean ``(B,)`` of ``f`` less its mean function at rows given the rows ``index``; its variance given ``w``.

        And what ``w`` adds to that.
        """

        def some(points: Array, index: Array) -> tuple[Array, Array, Array]:
            _, x, z, b = self.factors(points, index)
            (mean, variance), scale = self._ahead(b), 1 / x[:, -1]
            return scale * (mean - z), jnp.square(scale), jnp.square(scale) * variance

        return by_parts(some, points, index, **self._sizes(index, is_new))

    @one_program
    def at(self, X: NewRows) -> tuple[Array, Array]:
        """Mean and variance ``(B,)`` of the function at new rows, given the data that are nearest to each."""
        points = jnp.asarray(X.inputs)
        mean, variance, spread = self.given_data().given(points, jnp.asarray(X.index), True)
        return self.level_at(points) + mean, variance + spread

    def log_density_at(self, X: NewRows, rows: ArrayLike) -> Array:
        """Log density ``(B,)`` of the data of rows that are predicted as new ones, from others."""
        rows, (mean, variance) = jnp.asarray(rows), self.at(X)
        variance = variance + self.noise_of(rows)
        return -0.5 * (jnp.square(self.y[rows] - mean) / variance + jnp.log(2 * jnp.pi * variance))

    def left_out(self) -> tuple[Array, Array]:
        """Mean and variance ``(N,)`` of each datum given all others, under the joint density of the terms.

        Given ``w`` their precision is ``Q = sum_i x_i x_i^T``, of which the diagonal and a product with the residuals
        are sums over blocks, and with ``w`` integrated out ``Q - G P^-1 G^T``, ``G = sum_i x_i b_i^T``.
        """
        cure = "Pass neighbours of all rows in their place: near = ngp.neighbours(X, K), without rows=."
        check_all_rows(self.near, " where each datum is left out", cure)

        x, z, b = self._of_all(lambda at: (jnp.where(at.at.behind(at.at.taken, True, False), at.x, 0), at.z, at.b))
        index, rows = jnp.asarray(self.near.index), jnp.arange(self.near.size)
        places = jnp.concatenate([jnp.maximum(index, 0), rows[:, None]], axis=1)
        zeros = jnp.zeros_like(z)
        precision, product = zeros.at[places].add(jnp.square(x)), zeros.at[places].add(x * z[:, None])
        if self.shared is None or b is None:
            return self.y - product / precision, 1 / precision
        if self.shared.factor is None:
            product = product - zeros.at[places].add(x * matmul(b, self.shared.mean)[:, None])
            return self.y - product / precision, 1 / precision

        def add(G: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
            return G.at[at[0]].add(at[1][:, None] * b), None

        G = lax.scan(add, jnp.zeros_like(b), (places.T, x.T))[0]
        root, gain = _gain(z, b)
        moved = matmul(G, root)
        precision, product = precision - jnp.sum(jnp.square(moved), axis=1), product - matmul(moved, gain)
        return self.y - product / precision, 1 / precision

    # ---------------------------------------------------------------------------------------------------- draws

    def draw(self, key: Array, sample_shape: Shape = ()) -> Array:
        """All data together, ``(*sample_shape, N)``."""
        shape, dtype = (*sample_shape, self.near.size), self.near.inputs.dtype
        if self.shared is None:
            return self.drawn(jax.random.normal(key, shape, dtype))
        key, other = jax.random.split(key)
        values = self.shared.draws(jax.random.normal(other, (*sample_shape, self.shared.basis.size), dtype))
        return self.drawn(jax.random.normal(key, shape, dtype), values)

    @one_program
    def drawn(self, white: Array, values: Array | None = None) -> Array:
        """All data from standard normal noise ``(..., N)`` and ``w`` ``(..., M)``, row after row in their order."""
        weights, scale = self._of_all(RowFactors.conditional)
        drawn = row_after_row(weights, scale, jnp.asarray(self.near.index), jnp.asarray(self.near.order), white)
        if self.shared is not None and values is not None:
            drawn = drawn + matmul(values, self.shared.basis.features(self.inputs))
        return drawn + jnp.broadcast_to(self.level_at(self.inputs), drawn.shape)

    def drawn_together(
        self, X: JointRows, white: Float[Array, "S B"], values: Float[Array, "S M"] | None, jitter: ArrayLike
    ) -> Float[Array, "S B"]:
        """Draws of ``f`` less its mean function at new rows, one after the other, from standard normal noise.

        The data are centred. Each row is given some of them, or, from N on, new rows before it in their order.
        ``values`` are draws of ``w``. New rows are given as they are, and factors need a jitter ``e`` there: what it
        leaves in the variance under the weights ``a`` is ``sum_j e_j a_j^2``, and is taken back.
        """
        size, points, index = self.near.size, jnp.asarray(X.inputs), jnp.asarray(X.index)
        every, prior = jnp.concatenate([self.inputs, points]), self.kernel.diagonal(points)
        more = jnp.maximum(jnp.asarray(jitter) - self.jitter, 0) * prior
        both = replace(
            self,
            near=replace(self.near, inputs=every),
            y=jnp.concatenate([self.y, jnp.zeros(points.shape[0], self.y.dtype)]),
            noise=jnp.concatenate([self.noise_of(jnp.arange(size)), more]),
            scale=self.scale
            if self.scale is None
            else jnp.concatenate([self.scale, jnp.ones_like(self.scale, shape=points.shape[:1])]),
        )
        least = jnp.asarray(self.jitter) * prior
        of_new = jnp.concatenate([jnp.zeros_like(self.y), more + least])

        def some(points: Array, index: Array, least: Array) -> tuple[Array, Array, Array, Array | None]:
            factors = both.factors(points, index)
            (weights, spread), rows = factors.conditional(), factors.at.rows
            weights = factors.at.taken * weights
            of_data = jnp.where(rows < size, weights, 0)
            left = jnp.square(spread) - least - jnp.sum(of_new[rows] * jnp.square(weights - of_data), axis=1)
            mean, spread = jnp.sum(of_data * both.y[rows], axis=1), jnp.sqrt(jnp.maximum(left, ROUNDED_PART * least))
            if self.shared is None:
                return weights - of_data, spread, mean, None
            scaled = of_data if both.scale is None else of_data * both.scale[rows]
            return weights - of_data, spread, mean, einsum("mbk,bk->bm", self.shared.features(every[rows]), scaled)

        weights, spread, mean, held = by_parts(some, points, index, least, **self._sizes(index, True))
        mean, known = mean[None], jnp.zeros_like(white)
        if self.shared is not None and values is not None and held is not None:
            mean, known = mean - matmul(values, held.T), matmul(values, self.shared.basis.features(points))
        # What the data say is a shift of the noise, in units of its spread.
        shifted = white + mean / spread[None]
        return (
            row_after_row(weights, spread, jnp.where(index < size, -1, index - size), jnp.asarray(X.order), shifted)
            + known
        )


def check_all_rows(near: Neighbours, where: str, cure: str) -> None:
    """Refuse neighbours of some rows, which were searched for alone."""
    if near.rows is not None:
        got = f"those of {near.rows.shape[0]} of {near.size} rows"
        fail("near", f"neighbours of all rows{where}", got, cure)


def _gain(z: Array, b: Array | None) -> tuple[Array, Array]:
    """``R`` with ``R R^T = P^-1``, ``P = I + sum b b^T``, and ``R^T h``, ``h = sum b z``."""
    assert b is not None
    root = ridge_factor(b.T)
    return root, matmul(root.T, matmul(b.T, z))
