"""Functions of a process that is given Gaussian data by neighbours: callable for ever (mathematics.md section 16.3)."""

from typing import Any

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.blocks import by_parts, conditional
from numpyro_gp.beliefs.paths import Normal, PriorDraw, prior_draw
from numpyro_gp.checks import fail
from numpyro_gp.means import Mean
from numpyro_gp.primitives.function_draw import settled
from numpyro_gp.primitives.given_neighbours import LocalData
from numpyro_gp.primitives.local_process import LocalProcess, rows_of
from numpyro_gp.programs.keep import compiled
from numpyro_gp.rows.neighbours import Neighbours, NewRows

# Numbers in the features of rows that are looked at together.
HELD = 2**22


@value_type()
class LocalDraw:
    """One function ``f0(x) + a(x)^T (y - c - f0(X) - s xi)_N(x)``, but for the rows of the data.

    Attributes
    ----------
    data : tuple
        Kernel, noise variance, mean function and jitter of `LocalData`.
    prior : PriorDraw
        ``f0``.
    left : Array (N,)
        Data less their mean, the prior draw there, and a draw of their noise.
    """

    data: tuple[Any, Array, Mean, ArrayLike]
    prior: PriorDraw
    left: Array

    def at(self, near: Neighbours, X: NewRows) -> Array:
        """Values ``(B,)`` at rows whose neighbours among ``near`` are known."""
        kernel, noise, level, jitter = self.data
        data = LocalData(kernel, near, self.left, noise, level, jitter)

        def some(own: Array, index: Array) -> Array:
            at = data.blocks(index, own)
            weights = conditional(data.covariance(at, 0.0))[0]
            return jnp.sum(weights * jnp.where(at.taken, self.left[at.rows], 0), axis=-1) + self.prior(own)

        together = max(1, HELD // (X.index.shape[1] ** 2 + self.prior.weights.shape[-1]))
        own = jnp.asarray(X.inputs)
        found: Array = by_parts(some, own, X.index, at_once=together, together=together)
        return data.level_at(own) + found


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
        return int(self.draws.left.shape[0])

    def __call__(self, X: NewRows | ArrayLike) -> Array:
        """Values at rows ``X`` ``(N, D)``, or ``near.find(X, K)``: ``(S, N)``."""
        return _evaluated(self.draws, self.near, rows_of(self.near, X))


@compiled
def _evaluated(draws: LocalDraw, near: Neighbours, rows: NewRows) -> Array:
    return jax.lax.map(lambda draw: draw.at(near, rows), draws)


def local_draw(process: LocalProcess, key: Array, num_features: int, normal: Normal) -> LocalDraw | None:
    """One function of a process by neighbours; None where its kernel has no features."""
    data = process.data
    if not isinstance(data, LocalData) or process.marginals is not None:
        got = f"{process.name!r}, of another likelihood, or with inducing points"
        cure = "Ask for single rows: posterior.predict_at(key, X_new, near, y)."
        fail("the process", "one with a basis, or with Gaussian data by neighbours alone, for functions", got, cure)
    inputs = jnp.asarray(data.near.inputs)
    prior = prior_draw(data.kernel, inputs, key, max(1, num_features // 2), normal, (), "weights")
    if prior is None:
        return None
    rows = max(1, HELD // prior.weights.shape[-1])
    drawn = by_parts(prior, inputs, at_once=rows, together=rows)
    noise = data.noise_of(jnp.arange(data.near.size)) + data.jitter * data.kernel.diagonal(inputs)
    left = data.y - data.level_at(inputs) - drawn - jnp.sqrt(noise) * normal("noise", data.y.shape)
    level = settled(data.level, process.columns, inputs.dtype)
    return LocalDraw((data.kernel, data.noise, level, jnp.asarray(data.jitter, inputs.dtype)), prior, left)
