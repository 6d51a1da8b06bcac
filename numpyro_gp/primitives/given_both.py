"""Gaussian data given inducing points for what is global, and neighbours for the rest (mathematics.md section 16.5)."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.beliefs.blocks import (
    HALF_LOG_2PI,
    NUMBERS,
    TOGETHER,
    Blocks,
    by_parts,
    least_noise,
    row_after_row,
    row_factor,
)
from numpyro_gp.checks import check_nonnegative, check_points, check_positive, fail
from numpyro_gp.kernels.base import Kernel, KernelLike, as_kernel
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.linalg import cholesky, einsum
from numpyro_gp.means import Mean, MeanLike, as_mean
from numpyro_gp.primitives.function_draw import mean_at
from numpyro_gp.primitives.given_neighbours import check_all_data, check_alone, check_handlers
from numpyro_gp.primitives.local_process import LocalProcess
from numpyro_gp.primitives.opening import open_site, record, record_call
from numpyro_gp.programs.eager import one_program
from numpyro_gp.rows.neighbours import NeighbourRows, Neighbours, NewRows


@value_type()
class CombinedData:
    """Gaussian data and what they are of: ``f = A^T w + g``, ``g`` given neighbours.

    Attributes
    ----------
    kernel : Kernel
    near : Neighbours
    y : Array (N,)
    noise : Array ()
    level : Mean
    jitter : float
        Noise of each datum in units of the kernel's variance there, beside its own.
    basis : Basis
        That of the inducing points, whose features are ``A``.
    """

    kernel: Kernel
    near: Neighbours
    y: Array
    noise: Array
    level: Mean
    jitter: ArrayLike
    basis: Basis

    def _factor(self, own: Array, index: Array, own_noise: ArrayLike) -> tuple[Blocks, Array, Array]:
        """Blocks, their ``x`` ``(B, K + 1)`` given ``w``, and features ``(M, B, K + 1)``."""
        at = Blocks.of(jnp.asarray(self.near.inputs), index, own)
        count, length, columns = at.inputs.shape
        noise = jnp.broadcast_to(self.noise, at.rows.shape).astype(at.inputs.dtype)
        covariance = at.covariance(self.kernel, at.behind(noise, own_noise, 1.0), jitter=self.jitter)
        flat = self.basis.features(at.inputs.reshape(-1, columns)).reshape(-1, count, length)
        features = jnp.where(at.behind(at.taken, True, False)[None], flat, 0)
        return at, row_factor(covariance - einsum("mbi,mbj->bij", features, features)), features

    def _rows(self, own: Array, index: Array, data: Array, own_noise: ArrayLike) -> tuple[Array, Array, Array]:
        """``x_last``, ``z`` ``(B,)`` and ``b`` ``(B, M)`` of rows ``own`` ``(B, D)``; ``data`` are less their mean."""
        residual = self._residual(self.y)

        def some(own: Array, index: Array, data: Array) -> tuple[Array, Array, Array]:
            at, x, features = self._factor(own, index, own_noise)
            r = at.behind(residual[at.rows], data)
            return x[:, -1], jnp.sum(x * r, axis=1), einsum("mbi,bi->bm", features, x)

        together = max(1, NUMBERS // (index.shape[1] + 1) // (index.shape[1] + 1 + self.basis.size))
        found: tuple[Array, Array, Array] = by_parts(some, own, index, data, at_once=together, together=together)
        return found

    def _residual(self, y: Array) -> Array:
        inputs = jnp.asarray(self.near.inputs)
        return y - mean_at(self.level, inputs, inputs.shape[:-1], None, inputs.dtype)

    def _found(self) -> tuple[Array, Array, Array]:
        """Terms of the rows, the factor of ``P = I + sum b b^T`` and ``R^-1 h``, ``h = sum b z``."""
        last, z, b = self._rows(
            jnp.asarray(self.near.inputs), jnp.asarray(self.near.index), self._residual(self.y), self.noise
        )
        root = cholesky(jnp.eye(b.shape[1], dtype=b.dtype) + b.T @ b)
        gain = lax.linalg.triangular_solve(root, (b.T @ z)[:, None], left_side=True, lower=True)[:, 0]
        return jnp.log(last) - 0.5 * jnp.square(z) - HALF_LOG_2PI, root, gain

    def of(self, y: Array) -> "CombinedData":
        """The same of other data."""
        return CombinedData(self.kernel, self.near, y, self.noise, self.level, self.jitter, self.basis)

    def drawn(self, white: Array, values: Array) -> Array:
        """All data from standard normal noise ``(..., N)`` and ``w`` ``(..., M)``, row after row in their order."""
        inputs, index = jnp.asarray(self.near.inputs), jnp.asarray(self.near.index)

        def some(own: Array, index: Array) -> tuple[Array, Array]:
            x = self._factor(own, index, self.noise)[1]
            return -x[:, :-1] / x[:, -1:], 1 / x[:, -1]

        weights, scale = by_parts(some, inputs, index, at_once=TOGETHER, together=TOGETHER)
        rest = row_after_row(weights, scale, index, jnp.asarray(self.near.order), white)
        whole = rest + values @ self.basis.features(inputs)
        level = -self._residual(jnp.zeros_like(self.y))
        return whole + level.reshape((1,) * (whole.ndim - 1) + level.shape)

    def evidence(self) -> Array:
        """``log p(y)``, with ``w`` integrated out."""
        terms, root, gain = self._found()
        return jnp.sum(terms) + 0.5 * jnp.sum(jnp.square(gain)) - jnp.sum(jnp.log(jnp.diagonal(root)))

    @one_program
    def at(self, X: NewRows) -> tuple[Array, Array]:
        """Mean and variance ``(B,)`` of the function at new rows."""
        _, root, gain = self._found()
        own = jnp.asarray(X.inputs)
        last, z, b = self._rows(own, X.index, jnp.zeros(own.shape[0], own.dtype), 0.0)
        explained = lax.linalg.triangular_solve(root, b.T, left_side=True, lower=True)
        level = mean_at(self.level, own, own.shape[:-1], None, own.dtype)
        mean = level + (explained.T @ gain - z) / last
        return mean, (1 + jnp.sum(jnp.square(explained), axis=0)) / jnp.square(last)


class CombinedMarginal(dist.Distribution):
    """One event of N data, with what is global integrated out."""

    support = constraints.real_vector
    pytree_data_fields = ("data",)

    def __init__(self, data: CombinedData, *, validate_args: bool | None = None) -> None:
        self.data = data
        super().__init__((), data.y.shape, validate_args=validate_args)

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """``log p(y)`` of one set of data, or of several on the left."""
        several: Array = self.data.of(value).evidence() if value.ndim == 1 else lax.map(self.log_prob, value)
        return several

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        """All data together."""
        one, other = jax.random.split(key)
        dtype = self.data.y.dtype
        white = jax.random.normal(one, (*sample_shape, *self.event_shape), dtype)
        return self.data.drawn(white, jax.random.normal(other, (*sample_shape, self.data.basis.size), dtype))


def regression_by_both(
    name: str,
    kernel: KernelLike,
    near: Neighbours | NeighbourRows,
    noise_variance: ArrayLike,
    mean: MeanLike,
    inducing: Functional | ArrayLike,
    obs: ArrayLike | None,
    jitter: float | None,
) -> LocalProcess:
    """`gp_regression` of all rows with neighbours and of inducing points, as one event."""
    if isinstance(near, NeighbourRows):
        cure = "Pass near itself, outside of the plate, or leave inducing= out."
        fail("inducing", "None where rows of a plate have neighbours", f"a {type(inducing).__name__}", cure, TypeError)
    own = as_kernel(kernel)
    check_alone(name, own, near)
    noise = check_positive("noise_variance", noise_variance)
    if noise.ndim:
        cure = "Pass one variance for all rows, or leave inducing= out."
        fail("noise_variance", "a number, with inducing points and neighbours", f"shape {noise.shape}", cure)
    if isinstance(inducing, Functional):
        cure = "Pass points, or leave near out: X of rows in its place."
        fail("inducing", "points, where rows have neighbours", f"a {type(inducing).__name__}", cure, TypeError)
    points = check_points("inducing", inducing, near.inputs.shape[-1])
    relative = least_noise(near.inputs.dtype) if jitter is None else check_nonnegative("jitter", jitter)
    y = jnp.zeros(near.size, near.inputs.dtype) if obs is None else check_all_data(name, obs, near.size)
    data = CombinedData(own, near, y, noise, as_mean(mean), relative, Basis.build(own, points))
    check_handlers(name, near, "Leave rows without data out before neighbours are found.")
    site, _, value = open_site(name, CombinedMarginal(data), obs=None if obs is None else y)
    found = record(LocalProcess(site, data if obs is not None else data.of(value), int(near.inputs.shape[-1])))
    record_call(found, jnp.asarray(near.inputs))
    return found
