"""One function drawn from a process, as a value that can be called anywhere (mathematics.md section 13.2)."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, Shape, over_axes, value_type
from numpyro_gp.beliefs import Coupled
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.basis import AbstractBasis, BatchBasis, broadcasts_to, first_member
from numpyro_gp.beliefs.members import each_member
from numpyro_gp.beliefs.paths import Correction, Normal, PriorDraw, corrections, prior_draw
from numpyro_gp.checks import check_points, fail
from numpyro_gp.kernels.functionals import Functional, applied
from numpyro_gp.linalg import add_to_diagonal, einsum, matmul, small_cholesky
from numpyro_gp.means import Mean
from numpyro_gp.primitives.lifted import LiftedMean, check_functional
from numpyro_gp.primitives.opening import Plates

Applied = TypeVar("Applied")


@value_type(static=("names", "outputs", "columns", "plates"))
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
    plates : Plates
        Plates whose members each have a function of their own; arrays of the priors and corrections have their axes.
    """

    priors: tuple[PriorDraw, ...]
    corrections: tuple[Correction, ...]
    mean: Mean
    names: tuple[str, ...]
    outputs: int | None
    columns: int
    plates: Plates = Plates()

    def __call__(self, X: Functional | ArrayLike) -> Array:
        """Values at ``X`` ``(..., N, D)``: ``(..., N)``, or ``(..., N, P)`` for several outputs; in plates as `gp`."""
        if isinstance(X, Functional):
            return self._applied(self, X)
        values, inputs, shape = self._summed((*self.priors, *self.corrections), X)
        return values + mean_at(self.mean, inputs, shape, self.outputs, values.dtype)

    def _applied(self, function: Callable[[Array], Applied], X: Functional) -> Applied:
        rows = check_functional("X", X, self.columns)
        return applied(function, rows, self.columns, axis=-1 if self.outputs is None else -2)

    def components(self, X: Functional | ArrayLike) -> dict[str, Array]:
        """Values of each component of an additive process at ``X`` ``(..., N, D)``, without the mean function."""
        if isinstance(X, Functional):
            return self._applied(self.components, X)
        pairs = zip(self.names, self.priors, self.corrections, strict=True)
        return {name: self._summed((prior, own), X)[0] for name, prior, own in pairs}

    def _summed(self, parts: tuple[Callable[[Array], Array], ...], X: ArrayLike) -> tuple[Array, Array, Shape]:
        """The sum of parts at inputs; these as an array, and the shape ``(..., N)`` of what is there."""
        inputs = check_points("X", X, self.columns, leading=True)
        layout = self.plates.layout("X", inputs.shape[:-1])

        def at(parts: tuple[Any, ...], rows: Array) -> Array:
            first, *others = [part(rows.reshape(-1, rows.shape[-1])) for part in parts]
            total: Array = sum(others, start=first).T
            return total.reshape(*rows.shape[:-1], *total.shape[1:])

        axes = (0, 0 if layout.is_own else None)
        values = layout.whole(over_axes(at, len(self.plates.batch), axes)(parts, layout.rows(inputs)))
        return values, inputs, layout.shape + inputs.shape[-2:-1]

    def gradient(self, X: ArrayLike) -> Array:
        """Derivatives of the function in its inputs at ``X`` ``(N, D)``: ``(N, D)``, or ``(N, P, D)``.

        The function is as smooth as its features, which are always smooth: derivatives of a Matern 1/2 process, which
        has none, are finite and mean nothing.
        """
        inputs, axis = check_points("X", X, self.columns), len(self.plates.lead)
        return jax.vmap(jax.jacfwd(lambda row: jnp.squeeze(self(row[None, :]), axis)), out_axes=axis)(inputs)


def function_draw(process: Any, key: Array, num_features: int, normal: Normal) -> FunctionDraw | None:
    """One function of a `GaussianProcess`; None where a kernel has no features (`numpyro_gp.kernels.features`)."""
    basis, batch = process.basis, () if process.outputs is None else (process.outputs,)
    pieces = _feature_pieces(process.process, basis, key, max(1, num_features // 2), normal, batch)
    if pieces is None:
        return None
    member = first_member(basis)
    names = member.names if isinstance(member, AdditiveBasis) else ()
    mean = settled(process.mean, process.columns, basis.dtype)
    return FunctionDraw(*pieces, mean, names, process.outputs, process.columns, process.plates)


Pieces = tuple[tuple[Any, ...], tuple[Any, ...]]


def _feature_pieces(process: Any, basis: Any, key: Array, num: int, normal: Normal, batch: Shape) -> Pieces | None:
    """Draws of the prior, and what is added to them; members of plates have their axes on the left."""
    if isinstance(basis, BatchBasis):
        return _for_each(process, basis, key, num, normal, batch)
    is_additive, priors = isinstance(basis, AdditiveBasis), []
    parts = basis.parts if is_additive else (basis,)
    for c, (part, key_of_part) in enumerate(zip(parts, jax.random.split(key, len(parts)), strict=True)):
        name = f"weights_{c}" if is_additive else "weights"
        priors.append(prior_draw(part.kernel, part.inducing, key_of_part, num, normal, batch, name))
    drawn = tuple(prior for prior in priors if prior is not None)
    return (drawn, corrections(process, basis, drawn, normal)) if len(drawn) == len(parts) else None


@value_type()
class _Outputs:
    """Parts of functions of several outputs, each its own: ``(P, N)``."""

    parts: Any

    def __call__(self, X: Array) -> Array:
        return jax.vmap(lambda part: part(X))(self.parts)

    @property
    def weights(self) -> Array:
        """Those of the draws of the prior, ``(P, F)``."""
        return self.parts.weights


def _for_each(process: object, basis: BatchBasis, key: Array, num: int, normal: Normal, batch: Shape) -> Pieces | None:
    """Those of each member, whose noise is drawn together before."""
    lead, inner = (batch, ()) if basis.batch is None else (basis.batch, batch)
    keys, shapes = jax.random.split(key, lead), dict[str, Shape]()

    def pieces(process: object, at: object, key: Array, noise: dict[str, Array]) -> Pieces | None:
        def look(name: str, shape: Shape) -> Array:
            shapes[name] = shape
            return noise[name] if noise else jnp.zeros(shape, basis.dtype)

        return _feature_pieces(process, at, key, num, look, inner)

    def every(noise: dict[str, Array]) -> Any:
        return each_member(pieces, process, basis, keys, noise)

    if jax.eval_shape(every, {}) is None:
        return None
    noise = {name: normal(name, (*lead, *shape)) for name, shape in shapes.items()}
    priors, added = cast("Pieces", every(noise))
    return (priors, added) if basis.batch is not None else (tuple(map(_Outputs, priors)), tuple(map(_Outputs, added)))


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
        values: Array = jax.vmap(lambda row: run(row[None, :])[0][0])(rows)
        return values.reshape(*inputs.shape[:-1], *values.shape[1:])


def settled(mean: Mean, columns: int, dtype: np.dtype) -> Mean:
    """The mean function, as a pytree that holds what it is made of."""
    closed = jax.make_jaxpr(mean)(jax.ShapeDtypeStruct((1, columns), dtype))
    if jax.tree.leaves(mean) or not any(isinstance(value, jax.core.Tracer) for value in closed.consts):
        return mean
    return _TracedMean(list(closed.consts), closed.jaxpr)


def level_at(mean: Mean, rows: Array) -> Array:
    """Values ``(N,)`` of the mean function of one output at rows ``(N, D)``."""
    return mean_at(mean, rows, rows.shape[:-1], None, rows.dtype)


def mean_at(mean: Mean, inputs: Array, shape: Shape, outputs: int | None, dtype: np.dtype) -> Array:
    """Values of a mean function at inputs ``(..., N, D)``, broadcast to ``shape`` ``(..., N)``, or ``(..., N, P)``."""
    if isinstance(mean, LiftedMean):

        def at(points: Array) -> Array:
            return mean_at(mean.mean, points, (*shape[:-1], points.shape[-2]), outputs, dtype)

        return applied(at, inputs, mean.columns, axis=-1 if outputs is None else -2)
    whole = shape + (() if outputs is None else (outputs,))
    value = jnp.asarray(mean(inputs), dtype)
    if outputs is not None and value.shape != (*inputs.shape[:-1], outputs) and broadcasts_to(value.shape, shape):
        if value.shape == (outputs,):  # of as many rows as outputs, unless there is one more of one row more
            more = jax.ShapeDtypeStruct((inputs.shape[0] + 1, *inputs.shape[1:]), inputs.dtype)
            try:
                of_more = jax.eval_shape(lambda X: jnp.asarray(mean(X)), more).shape
            except (TypeError, ValueError):
                of_more = None
            if of_more != more.shape[:1]:
                cure = "Pass ngp.means.Constant(levels) for a level of each output, or return one row of values for "
                cure += "each of X."
                rows = (inputs.shape[0], outputs)
                required = f"a function with one value for each row of X, or of shape {rows}"
                got = f"shape {(outputs,)} of as many rows as outputs, and not one more of one row more"
                fail("mean", required, got, cure)
        value = value[..., None]
    if value.ndim and not broadcasts_to(value.shape, whole):
        required = f"a function whose value at X of shape {inputs.shape} has shape {whole}"
        cure = "Return one value for each row of X, or one for each row and output."
        fail("mean", required, f"shape {value.shape}", cure)
    return jnp.broadcast_to(value, whole)


# --------------------------------------------------------------------------------------
# One function at the several inputs of a datum, drawn through its whitened values: a factor ``K`` cheaper.


# Whether a draw may open noise sites that guides do not know: for engines that take noise from the model alone.
NOISE_IS_FREE: ContextVar[bool] = ContextVar("NOISE_IS_FREE", default=False)


def drawn_through(
    belief: Coupled,
    basis: AbstractBasis,
    rows: Float[Array, "R N D"],
    values: Float[Array, "N *batch M"],
    white: Float[Array, "R N *batch"],
    relative: float,
) -> Float[Array, "R N *batch"]:
    """``f_r = a_r . (m + C z) + (chol(k(X, X) - A^T A + eps I) e)_r`` for the R inputs of each of N data.

    ``z`` (``values``) is standard normal, one draw for each datum and output, and so is ``e`` (``white``): the same
    distribution as by the joint covariance, whose ``C^T a_r`` cost ``M^2`` for every input (mathematics.md
    section 10.2). ``eps`` is ``relative`` to the mean prior variance.
    """
    sets, count, columns = rows.shape
    rows = jnp.swapaxes(rows, 0, 1)
    every = rows.reshape(-1, columns)  # of one datum after another: devices that have pieces of the data keep them
    features = basis.features(every).reshape(-1, count, sets)
    drawn = belief.mean[..., None] + matmul(belief.scale_tril, jnp.moveaxis(values, 0, -1))
    prior = jax.vmap(basis.matrix)(rows)
    amount = relative * jnp.mean(basis.diagonal(every))
    rest = add_to_diagonal(prior - einsum("mnr,mns->nrs", features, features), jnp.broadcast_to(amount, (count, sets)))
    return einsum("mnr,...mn->rn...", features, drawn) + einsum("nrs,sn...->rn...", small_cholesky(rest), white)
