"""Functions of processes by neighbours: callable for ever, or drawn jointly at rows (mathematics.md section 16.3)."""

from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.base import Point
from numpyro_gp.beliefs.neighbours.blocks import by_parts
from numpyro_gp.beliefs.paths import Correction, Normal, PriorDraw, corrections, prior_draw
from numpyro_gp.kernels.jitter import ample_jitter
from numpyro_gp.neighbours.value import JointRows, Neighbours, NewRows
from numpyro_gp.primitives.function_draw import level_at, settled
from numpyro_gp.primitives.neighbours.local_process import LocalProcess, new_rows_of
from numpyro_gp.primitives.neighbours.row_data import GlobalPart, RowData
from numpyro_gp.programs.compiled import compiled

# Numbers in the features of rows that are looked at together.
HELD = 2**22


@value_type(static=("columns",))
class LocalDraw:
    """One function ``c(x) + h(x) + a(x)^T (r - s h(X) - e^(1/2) xi)_N(x)``, but for the rows of the data.

    ``h`` is a draw of the prior, and with inducing points one that has the values there that the belief says.

    Attributes
    ----------
    data : RowData
        In place of the data what ``h`` leaves of them; without the neighbours, which all draws share.
    prior : PriorDraw
    shared : Correction or None
        What makes a draw of the prior one given the values at inducing points.
    level : Mean
        ``c``.
    columns : int
        Number D of input columns.
    """

    data: RowData
    prior: PriorDraw
    shared: Correction | None
    level: Any
    columns: int

    def path(self, X: Array) -> Array:
        """``h`` at rows."""
        values = self.prior(X)
        return values if self.shared is None else values + self.shared(X)

    def at(self, near: Neighbours, X: NewRows) -> Array:
        """Values ``(B,)`` at rows whose neighbours among ``near`` are known."""
        own, data = jnp.asarray(X.inputs), replace(self.data, near=near)

        def some(own: Array, index: Array) -> Array:
            at = data.factors(own, index)
            return self.path(own) - at.z / at.x[:, -1]

        together = max(1, HELD // (X.index.shape[1] ** 2 + self.prior.weights.shape[-1]))
        found: Array = by_parts(some, own, X.index, at_once=together, together=together)
        return level_at(self.level, own) + found


@value_type()
class LocalFunctions:
    """S functions drawn from a posterior by neighbours, each fixed for good: ``f(X)`` is ``(S, N)``.

    What a function is at a row depends on that row alone. Its covariance is that of the errors of the local
    predictors, and its variance that of `Posterior.predict_at`; with all rows for neighbours it is a draw of the exact
    posterior. Functions have small steps where the set of nearest rows changes. Rows find their nearest 256 of the data
    as they are asked; where they are traced the program itself compares them with all.
    """

    near: Neighbours
    draws: LocalDraw

    def __len__(self) -> int:
        return int(self.draws.data.y.shape[0])

    def __call__(self, X: NewRows | ArrayLike) -> Array:
        """Values at rows ``X`` ``(N, D)``, or ``near.find(X, K)``: ``(S, N)``."""
        return _evaluated(self.draws, self.near, new_rows_of(self.near, X))


@compiled
def _evaluated(draws: LocalDraw, near: Neighbours, rows: NewRows) -> Array:
    return jax.lax.map(lambda draw: draw.at(near, rows), draws)


def local_draw(process: LocalProcess, key: Array, num_features: int, normal: Normal) -> LocalDraw | None:
    """One function of a process by neighbours; None where its kernel has no features."""
    data: RowData = process.data.given_data().centred()
    inputs = data.inputs
    prior = prior_draw(data.kernel, inputs, key, max(1, num_features // 2), normal, (), "weights")
    if prior is None:
        return None
    correction, shared = None, data.shared
    if shared is not None:
        values = shared.draws(normal("value", shared.mean.shape))
        (correction,) = corrections(Point(values), shared.basis, (prior,), normal)
        shared = GlobalPart(shared.basis, values, None)
    data = replace(data, jitter=jnp.asarray(data.jitter, inputs.dtype), shared=shared)
    level = settled(process.data.level, process.columns, inputs.dtype)
    found = LocalDraw(data, prior, correction, level, process.columns)
    rows = max(1, HELD // prior.weights.shape[-1])
    drawn = by_parts(found.path, inputs, at_once=rows, together=rows)
    noise = jnp.sqrt(data.noise_at(jnp.arange(data.near.size), inputs)) * normal("noise", data.y.shape)
    left = data.y - (drawn if data.scale is None else data.scale * drawn) - noise
    return replace(found, data=replace(data, y=left, near=cast("Neighbours", None)))


def drawn_together(process: LocalProcess, rows: JointRows, key: Array, num: int) -> Array:
    """``num`` functions drawn jointly at new rows, ``(num, B)``: each row given the data and new rows before it."""
    data: RowData = process.data.given_data().centred()
    inputs, own = data.inputs, jnp.asarray(rows.inputs)
    one, other = jax.random.split(key)
    white, values = jax.random.normal(one, (num, own.shape[0]), inputs.dtype), None
    if (shared := data.shared) is not None:
        values = shared.draws(jax.random.normal(other, (num, shared.basis.size), inputs.dtype))
    drawn = data.drawn_together(rows, white, values, ample_jitter(inputs.dtype))
    return drawn + level_at(process.data.level, own)[None]
