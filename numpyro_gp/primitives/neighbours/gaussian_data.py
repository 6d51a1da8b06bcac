"""Gaussian data given their nearest earlier neighbours: the site, one term a row, and what they say of new rows.

mathematics.md section 16.2 has the terms, and mathematics.md section 16.3 what is predicted.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro import handlers
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type
from numpyro_gp.beliefs.neighbours.blocks import (
    NUMBERS,
    Blocks,
    by_parts,
    conditional,
    last_row,
    least_noise,
    log_density,
    of_rows,
    row_after_row,
)
from numpyro_gp.beliefs.neighbours.global_part import Shared
from numpyro_gp.beliefs.neighbours.row_data import Places
from numpyro_gp.checks import check_array, check_finite, check_nonnegative, check_positive, fail
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.members import batch_shape
from numpyro_gp.means import Mean
from numpyro_gp.neighbours.value import AnyNeighbours, NeighbourRows, Neighbours, NewRows
from numpyro_gp.primitives.function_draw import level_at
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.opening import check_name, record, record_call
from numpyro_gp.programs.eager import one_program
from numpyro_gp.programs.private import active_handlers

# A weight of a term would leave what neighbours say of others as it was, and predictions.
WEIGHED = "Pass the noise variance of each row of all the data, noise**2 / weights: neighbours count by it as well."


@value_type()
class LocalData:
    """Gaussian data and what they are of: kernel, rows with neighbours, noise variance, mean function.

    Attributes
    ----------
    kernel : Kernel
    near : Neighbours
    y : Array (N,)
    noise : Array () or (N,)
    level : Mean
    jitter : Array ()
        Noise of each datum in units of the kernel's variance there, beside its own.
    """

    kernel: Kernel
    near: Neighbours
    y: Array
    noise: Array
    level: Mean
    jitter: ArrayLike

    def blocks(self, index: Array, own: Array) -> Blocks:
        """Rows ``own`` ``(B, D)`` behind rows of the data."""
        return Blocks.of(jnp.asarray(self.near.inputs), index, own)

    def covariance(self, at: Blocks, own_noise: ArrayLike) -> Array:
        """The covariance of blocks, noise included."""
        noise = self.noise_of(at.rows)
        noise = noise.astype(jnp.result_type(noise, at.inputs))
        return at.covariance(self.kernel, at.behind(noise, own_noise, 1.0), jitter=self.jitter)

    def levels(self, at: Blocks) -> Array:
        """The mean function at all places of blocks, ``(B, K + 1)``."""
        flat = at.inputs.reshape(-1, at.inputs.shape[-1])  # (N, D), as means of data without neighbours have it
        return self.level_at(flat).reshape(at.inputs.shape[:-1])

    def level_at(self, own: Array) -> Array:
        """The mean function at rows ``(B, D)``."""
        return level_at(self.level, own)

    def noise_of(self, rows: Array) -> Array:
        """Noise variances of rows of the data."""
        return of_rows(self.noise, rows)

    def terms(self, rows: Array, index: Array, own: Array) -> Array:
        """``log p(y_i | y_N(i))`` of rows ``(B,)`` with neighbours ``(B, K)``, whose data are ``own`` ``(B,)``."""

        def some(rows: Array, index: Array, own: Array) -> Array:
            at = self.blocks(index, jnp.asarray(self.near.inputs)[rows])
            data = at.behind(self.y[at.rows], own)
            residual = jnp.where(at.behind(at.taken, True, False), data - self.levels(at), 0)
            return log_density(self.covariance(at, self.noise_of(rows)), residual)

        return by_parts(some, rows, index, own)

    @one_program
    def at(self, X: NewRows) -> tuple[Array, Array]:
        """Mean and variance ``(B,)`` of the function at new rows, given the data that are nearest to each."""

        def some(own: Array, index: Array) -> tuple[Array, Array]:
            at = self.blocks(index, own)
            weights, variance = conditional(self.covariance(at, 0.0))
            levels = self.levels(at)
            residual = jnp.where(at.taken, self.y[at.rows] - levels[:, :-1], 0)
            return levels[:, -1] + jnp.sum(weights * residual, axis=-1), variance

        some_rows = max(1, NUMBERS // X.index.shape[1] ** 2)
        return by_parts(some, X.inputs, X.index, at_once=some_rows, together=some_rows)

    def places(self) -> tuple[Places, Shared | None]:
        """The data less their mean; nothing is global."""
        residual = self.y - self.level_at(jnp.asarray(self.near.inputs))
        return Places(self.kernel, None, self.noise, residual, self.jitter), None

    def log_density_at(self, X: NewRows, rows: ArrayLike) -> Array:
        """Log density ``(B,)`` of the data of rows that are predicted as new ones, from others."""
        rows, (mean, variance) = jnp.asarray(rows), self.at(X)
        variance = variance + self.noise_of(rows)
        return -0.5 * (jnp.square(self.y[rows] - mean) / variance + jnp.log(2 * jnp.pi * variance))

    def of(self, y: Array) -> Self:
        """The same of other data."""
        return replace(self, y=y)

    def check_every_row(self) -> None:
        """Refuse neighbours of some rows, where each datum is left out."""
        if self.near.rows is not None:
            cure = "Pass neighbours of all rows in their place: near = ngp.neighbours(X, K), without rows=."
            got = f"those of {self.near.rows.shape[0]} of {self.near.size} rows"
            fail("near", "neighbours of all rows where each datum is left out", got, cure)

    def left_out(self) -> tuple[Array, Array]:
        """Mean and variance ``(N,)`` of each datum given all others, under the joint density of the terms.

        With ``x`` of each block their precision is ``sum_i x_i x_i^T`` (mathematics.md section 16.2), of which the
        diagonal and a product with the residuals are sums over blocks.
        """
        self.check_every_row()
        inputs, index = jnp.asarray(self.near.inputs), jnp.asarray(self.near.index)

        def some(own: Array, index: Array, rows: Array) -> tuple[Array, Array]:
            at = self.blocks(index, own)
            x = last_row(self.covariance(at, self.noise_of(rows)))[1]
            x = jnp.where(at.behind(at.taken, True, False), x, 0)
            return x, jnp.sum(x * (at.behind(self.y[at.rows], self.y[rows]) - self.levels(at)), axis=-1)

        rows = jnp.arange(self.near.size)
        x, z = by_parts(some, inputs, index, rows)
        places = jnp.concatenate([jnp.maximum(index, 0), rows[:, None]], axis=1)
        precision = jnp.zeros_like(z).at[places].add(jnp.square(x))
        product = jnp.zeros_like(z).at[places].add(x * z[:, None])
        return self.y - product / precision, 1 / precision

    def draw(self, key: Array, sample_shape: Shape = ()) -> Array:
        """All data together, ``(*sample_shape, N)``."""
        return self.drawn(jax.random.normal(key, (*sample_shape, self.near.size), self.near.inputs.dtype))

    @one_program
    def drawn(self, white: Array) -> Array:
        """All data from standard normal noise ``(..., N)``, each given those drawn before it, in their order."""
        inputs = jnp.asarray(self.near.inputs)

        def some(own: Array, index: Array, rows: Array) -> tuple[Array, Array, Array]:
            at = self.blocks(index, own)
            weights, variance = conditional(self.covariance(at, self.noise_of(rows)))
            return weights, jnp.sqrt(variance), self.levels(at)[:, -1]

        index = jnp.asarray(self.near.index)
        weights, scale, level = by_parts(some, inputs, index, jnp.arange(self.near.size))
        found = row_after_row(weights, scale, index, jnp.asarray(self.near.order), white)
        return found + jnp.broadcast_to(level, found.shape)


class GivenNeighbours(dist.Distribution):
    """``p(y_i | y_N(i))`` of rows of data, batch shape ``(B,)``: their product over all rows is a proper density.

    ``data`` are `LocalData`, or where inducing points hold what is global `CombinedData`.
    """

    support = constraints.real
    pytree_data_fields = ("data", "rows", "index")

    def __init__(self, data: Any, rows: Array, index: Array) -> None:
        self.data, self.rows, self.index = data, rows, index
        super().__init__(rows.shape, ())

    def log_prob(self, value: Array) -> Array:
        """The terms of the rows; of several sets of data on the left, one after the other."""
        if self.rows.ndim > 1:  # what `scan` stacks: one for each of its steps
            return lax.map(lambda step: step[0].log_prob(step[1]), (self, value))
        one = value.ndim == 1
        return self.given(value).terms(self.rows, self.index, value) if one else lax.map(self.log_prob, value)

    def given(self, value: Array) -> Any:
        """The data where this is the value: all of them, of whatever handler, or those behind a minibatch."""
        if self.data.near.rows is not None or value.shape[-1] != self.data.near.size:
            return self.data
        # Of rows that were drawn twice others are missing, and still are neighbours.
        return self.data.of(jnp.asarray(self.data.y, value.dtype).at[self.rows].set(value))

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        """All data together."""
        return self.data.draw(key, sample_shape)[..., self.rows]


def regression_by_neighbours(
    name: str,
    kernel: Kernel,
    near: AnyNeighbours,
    noise_variance: ArrayLike,
    level: Mean,
    obs: ArrayLike | None,
    jitter: float | None,
    made: Callable[..., LocalData] = LocalData,
) -> LocalProcess:
    """`gp_regression` of rows with neighbours: whole, one event, or some rows in their plate, one term each.

    ``made`` of the data: what their terms and predictions are of, where inducing points hold what is global.
    """
    whole = near.near if isinstance(near, NeighbourRows) else near
    check_alone(name, kernel, whole, isinstance(near, Neighbours) or obs is None)
    noise = check_noise(noise_variance, whole.size)
    relative = least_noise(whole.inputs.dtype) if jitter is None else check_nonnegative("jitter", jitter)
    y = jnp.zeros(whole.size, whole.inputs.dtype) if obs is None else check_all_data(name, obs, whole.size)
    rows = jnp.arange(whole.size) if isinstance(near, Neighbours) else near.rows
    fn = GivenNeighbours(made(kernel, whole, y, noise, level, relative), rows, jnp.asarray(near.index))
    if obs is None and len(rows) != whole.size:
        cure = "Pass None for the argument that sets the minibatch, as batch=None."
        fail(f"the rows of site {name!r}", "all of them where there are no data", f"{len(rows)} of {whole.size}", cure)
    hidden = "Leave rows without data out before neighbours are found: they would still be neighbours of others."
    check_handlers(name, near, hidden)
    with handlers.trace() as trace:
        event = fn.to_event(1) if isinstance(near, Neighbours) else fn
        value = numpyro.sample(check_name("name", name), event, obs=None if obs is None else y[rows])
    (site,) = trace.values()
    found = record(LocalProcess(site["name"], fn.given(value), int(whole.inputs.shape[-1])))
    record_call(found, jnp.asarray(near.inputs))
    return found


def check_noise(noise_variance: ArrayLike, size: int) -> Array:
    """A noise variance of all data, or one for each."""
    noise = check_positive("noise_variance", noise_variance)
    if noise.shape not in ((), (size,)):
        cure = "Pass one variance, or one for each row of all the data: of neighbours too the noise counts."
        fail("noise_variance", f"a number or of shape {(size,)}", f"shape {noise.shape}", cure)
    return noise


def check_alone(name: str, kernel: Kernel, near: Neighbours, is_whole: bool = True) -> None:
    """Refuse a batch of kernels, and neighbours of some rows where all of them stand."""
    if lead := batch_shape(kernel):
        cure = "Open a site for each member, with neighbours of its own rows."
        fail(f"the kernel of site {name!r}", "one kernel, where rows have neighbours", f"a batch of {lead}", cure)
    if is_whole and near.rows is not None:
        cure = "Search for all of them, ngp.neighbours(X, K), or take minibatches: near[idx] in a plate of near.size."
        got = f"those of {near.rows.shape[0]} of {near.size} rows"
        fail("near", "neighbours of all rows where these stand whole, or are drawn", got, cure)


def check_all_data(name: str, obs: ArrayLike, size: int) -> Array:
    """All data, one for each row that has neighbours."""
    data = check_array(f"obs of site {name!r}", obs)
    if data.shape != (size,):
        cure = "Pass all data, y and not y[idx]: near[idx] says which rows they are, and neighbours count too."
        fail(f"obs of site {name!r}", f"of shape {(size,)}, one for each row of near", f"shape {data.shape}", cure)
    check_finite(f"obs of site {name!r}", data)
    return data


def check_members(name: str, inputs: Array, obs: ArrayLike | None) -> None:
    """Refuse the rows of a plate, and one datum for each, where a process stands in it: it is one for each member.

    A model that is written for neighbours gives them where it is called with ``X``.
    """
    plates = [one for one in active_handlers() if isinstance(one, numpyro.plate) and one.dim == -1]
    if obs is None or not plates or inputs.ndim != 2 or jnp.ndim(obs) != 1:
        return
    if plates[0].subsample_size == inputs.shape[0]:
        cure = (
            "Where the model takes near, pass near = ngp.neighbours(X, 16) in place of X. Without neighbours call it "
            "outside of plates, and in a plate of groups pass data of each member."
        )
        got = f"an array of {inputs.shape[0]} rows in plate {plates[0].name!r} of as many"
        fail(f"X of site {name!r}", "rows with neighbours, near[idx], where they are those of a plate", got, cure)


def check_handlers(name: str, near: AnyNeighbours, hidden: str, weighed: str = WEIGHED) -> None:
    """Rows stand in their own plate and no other, all of them together in none, and none is masked or weighed.

    ``hidden`` is the cure for a mask, ``weighed`` that for a scale.
    """
    for handler in active_handlers():
        for kind, what, cure in ((handlers.mask, "mask", hidden), (handlers.scale, "scale", weighed)):
            if isinstance(handler, kind) and jnp.ndim(value := getattr(handler, what)):
                got = f"an array of shape {jnp.shape(value)}"
                fail(f"the {what} over site {name!r}", "one number, where rows have neighbours", got, cure)
    plates = [one for one in active_handlers() if isinstance(one, numpyro.plate)]
    got = ", ".join(f"{one.name!r} of {one.size}" for one in plates) or "no plate"
    if isinstance(near, Neighbours):
        if plates:
            cure = "Pass the rows of the plate, near[idx], or call gp_regression outside of plates."
            fail(f"the plates around site {name!r}", "none, where near stands whole", got, cure)
        return
    size, held = near.near.size, [(one.size, one.subsample_size, one.dim) for one in plates]
    if held != [(size, len(near), -1)]:
        cure = "Write `with numpyro.plate('data', near.size, subsample_size=batch) as idx:` around it, and near[idx]."
        required = f"one of the {size} rows of near, {len(near)} of which it holds"
        fail(f"the plates around site {name!r}", required, got, cure)
