"""Functions drawn from a posterior, as one value that can be called, kept and differentiated."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast, overload

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.base import Point
from numpyro_gp.beliefs.neighbours.blocks import by_parts
from numpyro_gp.beliefs.paths import Correction, Normal, PriorDraw, corrections, prior_draw
from numpyro_gp.checks import check_count, check_points, fail, known
from numpyro_gp.kernels.functionals import Functional, as_functional, stack
from numpyro_gp.kernels.jitter import ample_jitter
from numpyro_gp.linalg import einsum
from numpyro_gp.neighbours.value import JointRows, Neighbours, NewRows, neighbours_in
from numpyro_gp.posterior.near import lengthscales_of, near_of
from numpyro_gp.posterior.tracing import AskedProcess, Draw, Fitted, ModelProcess, draws_of, key_of, plates_at
from numpyro_gp.primitives.function_draw import FunctionDraw, function_draw, level_at, settled
from numpyro_gp.primitives.neighbours.local_process import LocalProcess, new_rows_of
from numpyro_gp.primitives.neighbours.row_data import GlobalPart, RowData
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.programs.compiled import compiled
from numpyro_gp.rows.call import Call

# --------------------------------------------------------------------------------------
# Functions of processes by neighbours: callable for ever, or drawn jointly at rows (mathematics.md section 16.3).


# Numbers in the features of rows that are looked at together.
FEATURES_OF_ROWS = 2**22


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

        together = max(1, FEATURES_OF_ROWS // (X.index.shape[1] ** 2 + self.prior.weights.shape[-1]))
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


# Numbers that the features of some functions at all rows may take together.
FEATURES_OF_FUNCTIONS = 2**24


@value_type()
class Functions:
    """S functions drawn from a posterior, each fixed for good: ``f(X)`` ``(S, N)``, ``f[s]`` one, ``f[:3]`` some.

    What a function is at a row depends on that row alone, not on the rows beside it, their order or how often it was
    asked. It is a pytree, whose arrays have the S functions on their first axis, and pickles where the kernel and the
    mean function do (lambdas do not). A function costs ``O(N (F + M))`` for F features and M inducing inputs.
    """

    draws: FunctionDraw

    def __len__(self) -> int:
        return jax.tree.leaves(self.draws.priors)[0].shape[0]

    @overload
    def __getitem__(self, number: slice) -> "Functions": ...

    @overload
    def __getitem__(self, number: int) -> FunctionDraw: ...

    def __getitem__(self, number: object) -> "Functions | FunctionDraw":
        if isinstance(number, slice):
            return Functions(jax.tree.map(lambda leaf: leaf[number], self.draws))
        if isinstance(number, (int, np.integer)):  # JAX would take the last for one that is not there
            number = range(len(self))[number]
        return jax.tree.map(lambda leaf: leaf[number], self.draws)

    def __call__(self, X: Functional | ArrayLike) -> Array:
        """Values at ``X`` ``(N, D)``, or at inputs of each function's own ``(S, N, D)``.

        In plates also at rows of each member, ``(G, N, D)`` or ``(S, G, N, D)``, which gives ``(S, G, N)``.

        The functions of one layer of a deep model are called at those of the layer before: ``g(f(X))``, both made
        with one key, are draws of the composition.

        Returns
        -------
        Array (S, N), or (S, N, P) for several outputs.
        """
        return _each_process(FunctionDraw.__call__, self, X)

    def components(self, X: Functional | ArrayLike) -> dict[str, Array]:
        """Values of each component of an additive process, ``(S, N)``, without the mean function."""
        return _each_process(FunctionDraw.components, self, X)

    def gradient(self, X: ArrayLike) -> Array:
        """Derivatives in the inputs: ``(S, N, D)``, or ``(S, N, P, D)``; see `FunctionDraw.gradient`."""
        return _each_process(FunctionDraw.gradient, self, X)


def _each_process(method: object, functions: Functions, X: Functional | ArrayLike) -> Any:
    """A method of each function, some at a time."""
    rows = X if isinstance(X, Functional) else check_points("X", X, functions.draws.columns, leading=True)
    members = len(functions.draws.plates.lead)
    is_own = rows.ndim > 2 + members or (rows.ndim == 3 and not members)
    if rows.ndim not in {2, 2 + members, 3 + members} or (is_own and rows.shape[0] != len(functions)):
        of_each = "..., N, D" if members else "N, D"
        required = f"of shape (N, D), or ({len(functions)}, {of_each}) with inputs for each function"
        fail("X", required, f"shape {rows.shape}", "Reshape the rows: f(X.reshape(-1, D)), and the values back.")
    features = sum(prior.weights.shape[-1] for prior in functions.draws.priors)
    together = max(1, min(len(functions), FEATURES_OF_FUNCTIONS // (features * rows.shape[-2])))
    return _evaluated_functions(functions.draws, rows, method=method, together=together, is_own=is_own)


@compiled
def _evaluated_functions(draws: FunctionDraw, inputs: object, *, method: object, together: int, is_own: bool) -> object:
    """A method of many functions, or of each at inputs of its own."""
    if not is_own:
        return jax.lax.map(lambda draw: method(draw, inputs), draws, batch_size=together)
    return jax.lax.map(lambda pair: method(*pair), (draws, inputs), batch_size=together)


def posterior_functions(
    posterior: Fitted, key: Array, num_samples: int | None, call: Call, gp: str | None, num_features: int
) -> "Functions | AskedFunctions | LocalFunctions":
    """Functions of a posterior's process; the arguments are those of `Posterior.functions`."""
    check_count("num_features", num_features)
    asked = AskedProcess(posterior, call, plates_at(posterior, call).plates, gp)
    index = posterior.spread(num_samples, is_random=True)
    axis: set[int] = set()
    columns: set[int] = set()
    draws = draws_of(key, index)
    if neighbours_in(call.arguments) and (local := _local(asked, draws, num_features)) is not None:
        return local

    def one(process: GaussianProcess, draw: Draw) -> FunctionDraw | None:
        columns.add(process.columns)
        dtype = process.basis.dtype
        key_features, normal = _random(draw[0], process.name, dtype)
        found = function_draw(process, key_features, num_features, normal)
        # Literals, such as a variance of 1.0, take part in no promotion until they are results of a program.
        is_number = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)  # noqa: E731
        return jax.tree.map(lambda leaf: leaf.astype(dtype) if is_number(leaf) else leaf, found)

    if (found := asked.at_each(one, draws)) is not None:
        return Functions(found)

    def at(process: GaussianProcess, draw: Draw, rows: Functional | Array) -> Array:
        joint, own = process.joint(rows), key_of(draw[0], process.name)
        # Noise by the number of the row, and a lower factor: what comes later leaves earlier values as they are.
        each = lambda number: jax.random.normal(jax.random.fold_in(own, number), joint.batch_shape, joint.loc.dtype)  # noqa: E731
        noise = jax.vmap(each, out_axes=-1)(jnp.arange(rows.shape[0]))
        values = joint.loc + einsum("...ij,...j->...i", joint.scale_tril, noise)
        axis.add(1 + len(process.plates.lead))
        return jnp.moveaxis(values, -1, len(process.plates.lead))

    def every(rows: object) -> tuple[int, Array]:
        values = asked.at_each(at, draws, rows)
        return max(axis), values

    return AskedFunctions(every, index.size, max(columns))


def _local(asked: AskedProcess, draws: Draw, num_features: int) -> LocalFunctions | None:
    """Functions of a process by neighbours, whose rows are found in the median of its lengthscales; else None."""

    def one(process: ModelProcess, draw: Draw) -> tuple[LocalDraw, Array] | None:
        if not isinstance(process, LocalProcess):
            return None
        data: RowData = process.data.given_data().centred()
        inputs, dtype = data.inputs, process.data.near.inputs.dtype
        key, normal = _random(draw[0], process.name, dtype)
        prior = prior_draw(data.kernel, inputs, key, max(1, num_features // 2), normal, (), "weights")
        if prior is None:
            cure = "Draw them at rows that you know, posterior.function_draws(key, X_new, near, y), "
            cure += "or register features for the kernel: help(ngp.kernels.features)."
            fail("the kernel", "one with features, where rows have neighbours", "one without", cure, TypeError)
        correction, shared = None, data.shared
        if shared is not None:
            values = shared.draws(normal("value", shared.mean.shape))
            (correction,) = corrections(Point(values), shared.basis, (prior,), normal)
            shared = GlobalPart(shared.basis, values, None)
        data = replace(data, jitter=jnp.asarray(data.jitter, inputs.dtype), shared=shared)
        level = settled(process.data.level, process.columns, inputs.dtype)
        found = LocalDraw(data, prior, correction, level, process.columns)
        rows = max(1, FEATURES_OF_ROWS // prior.weights.shape[-1])
        drawn = by_parts(found.path, inputs, at_once=rows, together=rows)
        noise = jnp.sqrt(data.noise_at(jnp.arange(data.near.size), inputs)) * normal("noise", data.y.shape)
        left = data.y - (drawn if data.scale is None else data.scale * drawn) - noise
        found = replace(found, data=replace(data, y=left, near=cast("Neighbours", None)))
        return jax.tree.map(jnp.asarray, found), lengthscales_of(process)

    if (found := asked.at_each(one, draws)) is None:
        return None
    local, scales = found
    return LocalFunctions(dataclasses.replace(near_of(asked, draws), lengthscale=jnp.median(scales, axis=0)), local)


def _random(key: Array, name: str, dtype: np.dtype) -> tuple[Array, Normal]:
    """A key for the features of a function of the process ``name``, and its standard normal noise."""
    key_features, key_noise = jax.random.split(key_of(key, name))
    return key_features, lambda part, shape: jax.random.normal(key_of(key_noise, part), shape, dtype)


class AskedFunctions:
    """S functions of a posterior whose kernel has no features: drawn where they are asked, given what they were before.

    ``f(X)`` ``(S, N)``, in plates ``(S, G, N)``, has the values of `Functions`, exact and not of features, at a price:
    a call with new rows costs ``O(n^3)`` for each function, ``n`` being all rows ever asked, and compiles for that
    number. Inputs must be known: no ``jit``, no derivative. What a row gets depends on the order in which rows were
    first asked.
    """

    def __init__(self, draw: Callable[[Functional | Array], tuple[int, Array]], count: int, columns: int) -> None:
        self._draw, self._count, self._columns = draw, count, columns
        self._axis = 1  # of rows in what is drawn
        self._numbers: dict[bytes, int] = {}
        self._values: Array | None = None
        self._inputs: list[Functional | np.ndarray] = []

    def __len__(self) -> int:
        return self._count

    def __call__(self, X: Functional | ArrayLike) -> Array:
        """Values at ``X`` ``(N, D)``: ``(S, N)``, or ``(S, N, P)`` for several outputs."""
        inputs = known(X.rows if isinstance(X, Functional) else check_points("X", X, self._columns))
        if inputs is None:
            cure = "Register features for the kernel: help(ngp.kernels.features)."
            fail("X", "known numbers, as the kernel has no features", "a traced array", cure, TypeError)
        # The same for rows that are the same functional, however they are written.
        points, weights, directions = map(np.asarray, as_functional(X).in_full)
        table = np.concatenate([weights[..., None], directions, points], axis=-1)
        has_part = np.any(table[..., : 1 + points.shape[-1]] != 0, axis=-1)
        before, names = len(self._numbers), [row[part].tobytes() for row, part in zip(table, has_part, strict=True)]
        new: dict[bytes, int] = {}
        rows: list[Functional | np.ndarray] = []
        for number, name in enumerate(names):
            if name not in self._numbers and name not in new:
                new[name] = before + len(new)
                rows.append(X[number : number + 1] if isinstance(X, Functional) else inputs[number : number + 1])
        if new:
            all_rows = [*self._inputs, *rows]
            is_plain = not any(isinstance(row, Functional) for row in all_rows)
            below = jnp.asarray(np.concatenate(all_rows)) if is_plain else stack(all_rows)
            axis, every = jax.block_until_ready(self._draw(below))
            more = jnp.moveaxis(every, axis, 0)
            more = more if self._values is None else jnp.concatenate([self._values, more[before:]])
            # Rows are known once they have values: a call that fails leaves none.
            self._axis, self._values, self._inputs = axis, more, all_rows
            self._numbers |= new
        assert self._values is not None
        return jnp.moveaxis(self._values[np.array([self._numbers[name] for name in names])], 0, self._axis)
