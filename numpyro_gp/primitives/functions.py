"""One function drawn from a process, as a value that can be called anywhere (mathematics.md section 13.2)."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import OutputsBasis, output_axes
from numpyro_gp.beliefs.paths import Correction, Normal, PriorDraw, corrections, prior_draw
from numpyro_gp.checks import check_points, fail
from numpyro_gp.means import Mean

__all__ = ["FunctionDraw", "function_draw", "mean_at"]


@value_type(static=("names", "outputs", "columns"))
class FunctionDraw:
    """One function of the input: what it is at a row depends on that row alone.

    It is a pytree: it passes through ``jit``, ``vmap``, ``grad`` and ``lax.scan``, and pickles where its kernel and its
    mean function do.

    Attributes
    ----------
    priors : tuple of PriorDraw
        A draw of the prior of each component.
    corrections : tuple of Correction
        What is added to them: one for each component, then what beliefs add to the mean.
    mean : callable
        Mean function.
    names : tuple of str
        Names of the components of an additive process.
    outputs : int or None
        Number P of outputs.
    columns : int
        Number D of input columns.
    """

    priors: tuple[PriorDraw, ...]
    corrections: tuple[Correction, ...]
    mean: Any
    names: tuple[str, ...]
    outputs: int | None
    columns: int

    def __call__(self, X: ArrayLike) -> Array:
        """Values at ``X`` ``(..., N, D)``: ``(..., N)``, or ``(..., N, P)`` for several outputs."""
        inputs = check_points("X", X, self.columns, leading=True)
        rows = inputs.reshape(-1, self.columns)
        parts: list[Callable[[Array], Array]] = [*self.priors, *self.corrections]
        first, *others = [part(rows) for part in parts]
        total = sum(others, start=first)
        values: Array = (total if self.outputs is None else total.T).reshape(*inputs.shape[:-1], *total.shape[:-1])
        return values + mean_at(self.mean, inputs, self.outputs, values.dtype)

    def components(self, X: ArrayLike) -> dict[str, Array]:
        """Values of each component of an additive process at ``X`` ``(..., N, D)``, without the mean function."""
        inputs = check_points("X", X, self.columns, leading=True)
        rows, shape = inputs.reshape(-1, self.columns), inputs.shape[:-1]
        parts = zip(self.names, self.priors, self.corrections, strict=True)
        return {name: (prior(rows) + own(rows)).reshape(shape) for name, prior, own in parts}

    def gradient(self, X: ArrayLike) -> Array:
        """Derivatives of the function in its inputs at ``X`` ``(N, D)``: ``(N, D)``, or ``(N, P, D)``.

        The function is as smooth as its features, which are always smooth: derivatives of a Matern 1/2 process, which
        has none, are finite and mean nothing.
        """
        inputs = check_points("X", X, self.columns)
        slopes: Array = jax.vmap(jax.jacfwd(lambda row: self(row[None, :])[0]))(inputs)
        return slopes


def function_draw(process: Any, key: Array, num_features: int, normal: Normal) -> FunctionDraw | None:
    """One function of a `GaussianProcess`; None where a kernel has no features (`numpyro_gp.kernels.features`)."""
    basis, batch = process.basis, () if process.outputs is None else (process.outputs,)
    values = getattr(process.process, "v", None)
    if values is not None and values.ndim > 1 + len(batch):
        got = f"shape {values.shape}"
        fail(f"the value of site {process.name!r}", "one vector of whitened values", got, "Use jax.vmap over them.")
    pieces = _each_output if isinstance(basis, OutputsBasis) else _pieces
    found = pieces(process.process, basis, key, max(1, num_features // 2), normal, batch)
    if found is None:
        return None
    names = basis.names if isinstance(basis, AdditiveBasis) else ()
    return FunctionDraw(*found, _settled(process.mean, process), names, process.outputs, process.columns)


Pieces = tuple[tuple[Any, ...], tuple[Any, ...]]


def _pieces(own: Any, basis: Any, key: Array, num: int, normal: Normal, batch: tuple[int, ...]) -> Pieces | None:
    """Draws of the prior, and what is added to them."""
    is_additive = isinstance(basis, AdditiveBasis)
    parts = basis.parts if is_additive else (basis,)
    found = [
        prior_draw(part.kernel, part.inducing, one, num, normal, batch, f"weights_{c}" if is_additive else "weights")
        for c, (part, one) in enumerate(zip(parts, jax.random.split(key, len(parts)), strict=True))
    ]
    priors = tuple(prior for prior in found if prior is not None)
    return (priors, corrections(own, basis, priors, normal)) if len(priors) == len(parts) else None


@value_type()
class _Outputs:
    """Parts of functions of several outputs, each its own: ``(P, N)``."""

    parts: Any

    def __call__(self, X: Array) -> Array:
        values: Array = jax.vmap(lambda part: part(X))(self.parts)
        return values

    @property
    def weights(self) -> Array:
        """Those of the draws of the prior, ``(P, F)``."""
        weights: Array = self.parts.weights
        return weights


def _each_output(
    own: Any, basis: OutputsBasis, key: Array, num: int, normal: Normal, batch: tuple[int, ...]
) -> Pieces | None:
    """`_pieces` of each output, whose noise is drawn together before."""
    keys, shapes = jax.random.split(key, batch[0]), dict[str, tuple[int, ...]]()

    def pieces(own: Any, one: Any, key: Array, noise: dict[str, Array]) -> Pieces | None:
        def look(name: str, shape: tuple[int, ...]) -> Array:
            shapes[name] = shape
            return noise[name] if noise else jnp.zeros(shape, basis.dtype)

        return _pieces(own, one, key, num, look, ())

    every = jax.vmap(pieces, in_axes=(output_axes(own), 0, 0, 0))
    if jax.eval_shape(every, own, basis.members, keys, {}) is None:
        return None
    noise = {name: normal(name, (*batch, *shape)) for name, shape in shapes.items()}
    priors, added = cast("Pieces", every(own, basis.members, keys, noise))
    return tuple(map(_Outputs, priors)), tuple(map(_Outputs, added))


@value_type(static=("program",))
class _TracedMean:
    """A mean function that closed over values which were being traced: its program for one row, and those values."""

    values: list[Array]
    program: Jaxpr

    def __call__(self, X: ArrayLike) -> Array:
        inputs = jnp.asarray(X)
        run = jaxpr_as_fun(ClosedJaxpr(self.program, self.values))
        like: Any = self.program.invars[0].aval
        rows = inputs.reshape(-1, inputs.shape[-1]).astype(like.dtype)
        found: Array = jax.vmap(lambda row: run(row[None, :])[0][0])(rows)
        return found.reshape(*inputs.shape[:-1], *found.shape[1:])


def _settled(mean: Mean, process: Any) -> Mean:
    """The mean function, as a pytree that holds what it is made of."""
    closed = jax.make_jaxpr(mean)(jax.ShapeDtypeStruct((1, process.columns), process.basis.dtype))
    if jax.tree.leaves(mean) or not any(isinstance(value, jax.core.Tracer) for value in closed.consts):
        return mean
    return _TracedMean(list(closed.consts), closed.jaxpr)


def mean_at(mean: Mean, inputs: Array, outputs: int | None, dtype: np.dtype) -> Array:
    """Values of a mean function at inputs ``(..., N, D)``: ``(..., N)``, or ``(..., N, P)``."""
    shape = inputs.shape[:-1] + (() if outputs is None else (outputs,))
    value = jnp.asarray(mean(inputs), dtype)
    if value.shape == inputs.shape[:-1] and outputs is not None:
        value = value[..., None]
    if value.ndim and (value.ndim != len(shape) or any(a not in (1, b) for a, b in zip(value.shape, shape))):
        required = f"a function whose value at X of shape {inputs.shape} has shape {shape}"
        cure = "Return one value for each row of X, or one for each row and output."
        fail("mean", required, f"shape {value.shape}", cure)
    return jnp.broadcast_to(value, shape)
