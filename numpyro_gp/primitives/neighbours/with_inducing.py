"""Gaussian data given inducing points for what is global, and neighbours for the rest (mathematics.md section 16.5)."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type
from numpyro_gp.beliefs.basis import AbstractBasis, Basis
from numpyro_gp.beliefs.gaussian_data import ridge_factor
from numpyro_gp.beliefs.neighbours.blocks import (
    HALF_LOG_2PI,
    TOGETHER,
    Blocks,
    by_parts,
    least_noise,
    row_after_row,
    row_factor,
)
from numpyro_gp.beliefs.neighbours.global_part import Shared, SharedRows
from numpyro_gp.beliefs.neighbours.row_data import Places
from numpyro_gp.checks import check_nonnegative, check_points, fail
from numpyro_gp.kernels.base import KernelLike, as_kernel
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.kernels.of_functionals import OfFunctionals
from numpyro_gp.linalg import half_log_det, matmul
from numpyro_gp.means import MeanLike, as_mean
from numpyro_gp.neighbours.value import AnyNeighbours, NeighbourRows, NewRows
from numpyro_gp.primitives.neighbours.gaussian_data import (
    LocalData,
    check_all_data,
    check_alone,
    check_handlers,
    check_noise,
    regression_by_neighbours,
)
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.opening import open_site, record, record_call
from numpyro_gp.programs.eager import one_program


@value_type(static=("is_given",))
class CombinedData(LocalData):
    """Gaussian data and what they are of: ``f = A^T w + g``, ``g`` given neighbours.

    Attributes
    ----------
    kernel, near, y, noise, level, jitter
        Those of `LocalData`; the kernel is that of the whole process.
    shared : Shared
        ``w``: its prior, or what is known of it.
    is_given : bool
        Whether ``shared`` knows the data already.
    """

    shared: Shared
    is_given: bool = False

    def _rows(self, own: Array, index: Array, data: Array, own_noise: Array) -> SharedRows:
        """What rows ``own`` ``(B, D)`` say, whose data are ``data`` ``(B,)``."""

        def some(own: Array, index: Array, data: Array, own_noise: Array) -> SharedRows:
            at, r = self._block(own, index, data)
            return self.shared.rows(self.covariance(at, own_noise), at, r)

        together = self.shared.together(index.shape[1])
        return by_parts(some, own, index, data, own_noise, at_once=together, together=together)

    def _block(self, own: Array, index: Array, data: Array) -> tuple[Blocks, Array]:
        at = self.blocks(index, own)
        residual = at.behind(self.y[at.rows], data) - self.levels(at)
        return at, jnp.where(at.behind(at.taken, True, False), residual, 0)

    def _of_all(self) -> SharedRows:
        near, noise = self.near, self.noise_of(jnp.arange(self.near.size))
        return self._rows(jnp.asarray(near.inputs), jnp.asarray(near.index), self.y, noise)

    def terms(self, rows: Array, index: Array, own: Array) -> Array:
        """``E log p(y_i | y_N(i), w)`` of rows ``(B,)`` with neighbours ``(B, K)``, whose data are ``own`` ``(B,)``."""
        inputs = jnp.asarray(self.near.inputs)[rows]
        return self.shared.expected(self._rows(inputs, index, own, self.noise_of(rows)))

    def evidence(self) -> Array:
        """``log p(y)``, with ``w`` integrated out, which is standard normal before the data."""
        rows = self._of_all()
        root, gain = _gain(rows)
        terms = jnp.log(rows.last) - 0.5 * jnp.square(rows.z) - HALF_LOG_2PI
        return jnp.sum(terms) + 0.5 * jnp.sum(jnp.square(gain)) + half_log_det(root)

    def given_data(self) -> "CombinedData":
        """With ``w`` given the data in place of its prior: one pass over them, unless it knows them."""
        if self.is_given:
            return self
        root, gain = _gain(self._of_all())
        return replace(self, shared=Shared(self.shared.basis, matmul(root, gain), root), is_given=True)

    @one_program
    def at(self, X: NewRows) -> tuple[Array, Array]:
        """Mean and variance ``(B,)`` of the function at new rows."""
        own = jnp.asarray(X.inputs)
        # A datum that is its mean has the residual 0, and says nothing.
        rows = self._rows(own, X.index, self.level_at(own), jnp.zeros(own.shape[0], own.dtype))
        mean, variance, spread = self.given_data().shared.predicted(rows)
        return self.level_at(own) + mean, variance + spread

    def places(self) -> tuple[Places, Shared]:
        """The data less their mean, and what is known of the global part."""
        shared = self.given_data().shared
        return replace(super().places()[0], basis=shared.basis), shared

    def left_out(self) -> tuple[Array, Array]:
        """Mean and variance ``(N,)`` of each datum given all others, under the joint density of the terms.

        Given ``w`` their precision is ``Q = sum_i x_i x_i^T``, and with it integrated out ``Q - G P^-1 G^T``,
        ``G = sum_i x_i b_i^T`` (mathematics.md section 16.5).
        """
        self.check_every_row()
        inputs, index, rows = jnp.asarray(self.near.inputs), jnp.asarray(self.near.index), jnp.arange(self.near.size)

        def some(own: Array, index: Array, data: Array, noise: Array) -> tuple[Array, SharedRows]:
            at, r = self._block(own, index, data)
            x, said = self.shared.factored(self.covariance(at, noise), at, r)
            return jnp.where(at.behind(at.taken, True, False), x, 0), said

        together = self.shared.together(index.shape[1])
        noise = self.noise_of(rows)
        x, said = by_parts(some, inputs, index, self.y, noise, at_once=together, together=together)
        places = jnp.concatenate([jnp.maximum(index, 0), rows[:, None]], axis=1)
        zeros = jnp.zeros_like(said.z)
        precision, product = zeros.at[places].add(jnp.square(x)), zeros.at[places].add(x * said.z[:, None])
        if self.shared.factor is None:
            product = product - zeros.at[places].add(x * matmul(said.b, self.shared.mean)[:, None])
            return self.y - product / precision, 1 / precision

        def add(G: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
            return G.at[at[0]].add(at[1][:, None] * said.b), None

        G = lax.scan(add, jnp.zeros_like(said.b), (places.T, x.T))[0]
        root, gain = _gain(said)
        moved = matmul(G, root)
        precision, product = precision - jnp.sum(jnp.square(moved), axis=1), product - matmul(moved, gain)
        return self.y - product / precision, 1 / precision

    def draw(self, key: Array, sample_shape: Shape = ()) -> Array:
        """All data together, ``(*sample_shape, N)``."""
        one, other = jax.random.split(key)
        dtype, shared = self.y.dtype, self.shared
        values = jnp.broadcast_to(shared.mean, (*sample_shape, shared.basis.size))
        if shared.factor is not None:
            values = values + matmul(jax.random.normal(other, values.shape, dtype), shared.factor.T)
        return self.drawn_with(jax.random.normal(one, (*sample_shape, self.near.size), dtype), values)

    @one_program
    def drawn_with(self, white: Array, values: Array) -> Array:
        """All data from standard normal noise ``(..., N)`` and ``w`` ``(..., M)``, row after row in their order."""
        inputs, index = jnp.asarray(self.near.inputs), jnp.asarray(self.near.index)

        def some(own: Array, index: Array, noise: Array) -> tuple[Array, Array]:
            at = self.blocks(index, own)
            x = row_factor(self.shared.rest(self.covariance(at, noise), at)[0])
            return -x[:, :-1] / x[:, -1:], 1 / x[:, -1]

        noise = self.noise_of(jnp.arange(self.near.size))
        weights, scale = by_parts(some, inputs, index, noise, at_once=TOGETHER, together=TOGETHER)
        rest = row_after_row(weights, scale, index, jnp.asarray(self.near.order), white)
        whole = rest + matmul(values, self.shared.basis.features(inputs))
        level = self.level_at(inputs)
        return whole + level.reshape((1,) * (whole.ndim - 1) + level.shape)


def _gain(rows: SharedRows) -> tuple[Array, Array]:
    """``R`` with ``R R^T = P^-1``, ``P = I + sum b b^T``, and ``R^T h``, ``h = sum b z``."""
    root = ridge_factor(rows.b.T)
    return root, matmul(root.T, matmul(rows.b.T, rows.z))


class CombinedMarginal(dist.Distribution):
    """One event of N data, with what is global integrated out."""

    support = constraints.real_vector
    pytree_data_fields = ("data",)

    def __init__(self, data: CombinedData) -> None:
        self.data = data
        super().__init__((), data.y.shape)

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """``log p(y)`` of one set of data, or of several on the left."""
        if self.data.near.index.ndim > 2:  # what `scan` stacks: one for each of its steps
            return lax.map(lambda step: step[0].log_prob(step[1]), (self, value))
        return self.data.of(value).evidence() if value.ndim == 1 else lax.map(self.log_prob, value)

    def given(self, value: Array) -> CombinedData:
        """The data where this is the value."""
        return self.data.of(value)

    @property
    def rows(self) -> Array:
        """Numbers of the data: all of them."""
        return jnp.arange(self.data.near.size)

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        """All data together."""
        return self.data.draw(key, sample_shape)


def regression_by_both(
    name: str,
    kernel: KernelLike,
    near: AnyNeighbours,
    noise_variance: ArrayLike,
    mean: MeanLike,
    inducing: Functional | ArrayLike,
    obs: ArrayLike | None,
    jitter: float | None,
) -> LocalProcess:
    """`gp_regression` of all rows with neighbours and of inducing points, as one event."""
    if isinstance(near, NeighbourRows):
        cure = "Open f = ngp.gp('f', kernel, inducing=Z) outside of the plate, and pass f in place of the kernel."
        fail("inducing", "None where rows of a plate have neighbours", f"a {type(inducing).__name__}", cure, TypeError)
    own = as_kernel(kernel)
    check_alone(name, own, near)
    if isinstance(inducing, Functional):
        cure = "Pass points, or leave near out: X of rows in its place."
        fail("inducing", "points, where rows have neighbours", f"a {type(inducing).__name__}", cure, TypeError)
    points = check_points("inducing", inducing, near.inputs.shape[-1])
    relative = least_noise(near.inputs.dtype) if jitter is None else check_nonnegative("jitter", jitter)
    y = jnp.zeros(near.size, near.inputs.dtype) if obs is None else check_all_data(name, obs, near.size)
    noise, shared = check_noise(noise_variance, near.size), Shared.prior(Basis.build(own, points))
    data = CombinedData(own, near, y, noise, as_mean(mean), relative, shared)
    check_handlers(name, near, "Leave rows without data out before neighbours are found.")
    site, _, value = open_site(name, CombinedMarginal(data), obs=None if obs is None else y)
    found = record(LocalProcess(site, data if obs is not None else data.of(value), int(near.inputs.shape[-1])))
    record_call(found, jnp.asarray(near.inputs))
    return found


def shared_of(process: Any, columns: int, argument: str) -> Shared:
    """What a process of inducing points holds of rows with ``columns`` columns; refused where it is several."""
    basis: AbstractBasis = process.basis
    is_one = not process.plates.names and process.outputs is None and process.noise is None
    if not isinstance(basis, Basis) or not is_one or isinstance(basis.kernel, OfFunctionals):
        cure = "Open it by f = ngp.gp('f', kernel, inducing=Z), outside of plates and without outputs."
        required = "one process of inducing points, where rows have neighbours"
        fail(argument, required, f"the process {process.name!r}, of another kind", cure)
    if process.columns != columns:
        cure = "Find neighbours in the columns of its inducing points."
        fail(argument, f"of the {columns} columns of near", f"{process.columns}", cure)
    return Shared.of(process.process, basis)


def regression_of_process(
    name: str, process: Any, near: AnyNeighbours, noise_variance: ArrayLike, obs: ArrayLike | None, jitter: float | None
) -> LocalProcess:
    """`gp_regression` of a process whose inducing points hold what is global, and whose rows have neighbours."""
    whole = near.near if isinstance(near, NeighbourRows) else near
    shared = shared_of(process, int(whole.inputs.shape[-1]), "kernel")
    made = partial(CombinedData, shared=shared, is_given=True)
    return regression_by_neighbours(name, shared.basis.kernel, near, noise_variance, process.mean, obs, jitter, made)
