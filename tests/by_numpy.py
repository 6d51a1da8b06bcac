"""JAX's own small functions, called one by one with numbers, done by NumPy: compiling one takes longer than a thousand.

Four fifths of the programs of the suite were an addition, a slice or a sum of arrays of one more shape. They are JAX's
and not ours; whatever a function of this library or of a test compiles is still compiled by XLA. An operation that is
met for the first time counts in `tests.compiling` as the program that it would have been.
"""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax._src import array, core, pjit
from scipy import linalg, special

from tests.compiling import EVENT, unseen

FOLDER = str(Path(jax.__file__).parent)
MOST_STEPS, MOST_ENTRIES, MOST_TURNS = 25, 100_000, 200
# What is done more often is compiled after all: that takes as long as some thirty calls of NumPy.
MOST_USES = 30
# Pages of the guide show the numbers that readers get: they switch this off.
is_on = True


class LeftToJax(Exception):
    """What NumPy does in another way, or not at all."""


def is_real(*arrays: Any) -> bool:
    return all(np.issubdtype(x.dtype, np.floating) for x in arrays)


def same(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of numbers of one type; integers that overflow go round in both."""

    def apply(*arrays: Any, **settings: Any) -> Any:
        if len({x.dtype for x in arrays}) > 1 or arrays[0].dtype == bool:
            raise LeftToJax
        return function(*arrays)

    return apply


def real(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of floating-point numbers alone, each of the same type: integers divide and round in other ways."""

    def apply(*arrays: Any, **settings: Any) -> Any:
        if not is_real(*arrays) or len({x.dtype for x in arrays}) > 1:
            raise LeftToJax
        return function(*arrays)

    return apply


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays, **settings: function(*arrays)


def broadcast(x: Any, *dynamic: Any, shape: Any, broadcast_dimensions: Any, **settings: Any) -> Any:
    own = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape, strict=True):
        own[axis] = size
    return np.broadcast_to(x.reshape(own), shape)


def convert(x: Any, new_dtype: Any, **settings: Any) -> Any:
    if (
        (is_real(x) and not np.issubdtype(new_dtype, np.floating))
        or x.dtype.kind == "c"
        or np.dtype(new_dtype).kind == "c"
    ):
        raise LeftToJax
    return x.astype(new_dtype)


def sliced(x: Any, start_indices: Any, limit_indices: Any, strides: Any, **settings: Any) -> Any:
    steps = strides or (1,) * x.ndim
    return x[tuple(slice(*ends) for ends in zip(start_indices, limit_indices, steps, strict=True))]


def sliced_at(x: Any, *starts: Any, slice_sizes: Any, **settings: Any) -> Any:
    firsts = [min(max(int(s), 0), n - m) for s, n, m in zip(starts, x.shape, slice_sizes, strict=True)]
    return x[tuple(slice(first, first + m) for first, m in zip(firsts, slice_sizes, strict=True))]


def padded(x: Any, value: Any, padding_config: Any, **settings: Any) -> Any:
    if any(low < 0 or high < 0 or inside for low, high, inside in padding_config):
        raise LeftToJax
    return np.pad(x, [(low, high) for low, high, _ in padding_config], constant_values=value[()])


def product(x: Any, y: Any, dimension_numbers: Any, preferred_element_type: Any, **settings: Any) -> Any:
    if not is_real(x, y):
        raise LeftToJax
    (left, right), (batch, other_batch) = dimension_numbers
    names = iter(range(x.ndim + y.ndim))
    of_x = {axis: next(names) for axis in range(x.ndim)}
    of_y = {b: of_x[a] for a, b in zip((*left, *batch), (*right, *other_batch), strict=True)}
    of_y |= {axis: next(names) for axis in range(y.ndim) if axis not in of_y}
    kept = [of_x[axis] for axis in batch]
    kept += [of_x[axis] for axis in range(x.ndim) if axis not in (*left, *batch)]
    kept += [of_y[axis] for axis in range(y.ndim) if axis not in (*right, *other_batch)]
    found = np.einsum(x, [of_x[axis] for axis in range(x.ndim)], y, [of_y[axis] for axis in range(y.ndim)], kept)
    return found.astype(preferred_element_type or found.dtype)


def counted_up(dtype: Any, shape: Any, dimension: int, **settings: Any) -> Any:
    own = [n if axis == dimension else 1 for axis, n in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[dimension]).astype(dtype).reshape(own), shape)


def chosen(which: Any, *cases: Any) -> Any:
    if which.dtype != bool or len(cases) != 2:
        raise LeftToJax
    return np.where(which, cases[1], cases[0])


def summed(x: Any, axes: Any, **settings: Any) -> Any:
    return np.sum(x, axis=tuple(axes), dtype=x.dtype)


def to_power(x: Any, y: int, **settings: Any) -> Any:
    if not is_real(x):
        raise LeftToJax
    return x**y


def factor(x: Any, **settings: Any) -> Any:
    """JAX's factor of what is not positive definite is NaN."""
    try:
        return np.linalg.cholesky(x).astype(x.dtype)
    except np.linalg.LinAlgError:
        raise LeftToJax from None


def solved(
    factors: Any, given: Any, left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool, **rest: Any
) -> Any:
    if not left_side:
        turned = {"left_side": True, "lower": lower, "transpose_a": not transpose_a, "unit_diagonal": unit_diagonal}
        return np.swapaxes(solved(factors, np.swapaxes(given, -1, -2), **turned), -1, -2)
    if not np.all(np.diagonal(factors, axis1=-2, axis2=-1)) or np.prod(given.shape[:-2]) > MOST_TURNS:
        raise LeftToJax
    settings = {"lower": lower, "trans": int(transpose_a), "unit_diagonal": unit_diagonal, "check_finite": False}
    found = np.empty_like(given)
    for at in np.ndindex(given.shape[:-2]):
        found[at] = linalg.solve_triangular(factors[at], given[at], **settings)
    return found


def gathered(x: Any, starts: Any, dimension_numbers: Any, slice_sizes: Any, **settings: Any) -> Any:
    """A slice of ``x`` for each row of ``starts``; those that reach over an edge are JAX's."""
    d = dimension_numbers
    if d.operand_batching_dims or d.start_indices_batching_dims or np.prod(starts.shape[:-1]) > MOST_TURNS:
        raise LeftToJax
    batch, kept = starts.shape[:-1], [axis for axis in range(x.ndim) if axis not in d.collapsed_slice_dims]
    found = np.empty((*batch, *(slice_sizes[axis] for axis in kept)), x.dtype)
    for at in np.ndindex(batch):
        first = dict(zip(d.start_index_map, starts[at], strict=True))
        ends = [(int(first.get(axis, 0)), int(first.get(axis, 0)) + size) for axis, size in enumerate(slice_sizes)]
        if any(low < 0 or high > size for (low, high), size in zip(ends, x.shape, strict=True)):
            raise LeftToJax
        found[at] = x[tuple(slice(*end) for end in ends)].reshape(found.shape[len(batch) :])
    return np.moveaxis(found, range(len(batch), found.ndim), d.offset_dims)


def added_up(x: Any, axis: int, reverse: bool, **settings: Any) -> Any:
    turned = np.flip(x, axis) if reverse else x
    total = np.cumsum(turned, axis=axis, dtype=x.dtype)
    return np.flip(total, axis) if reverse else total


def ordered(x: Any, *others: Any, dimension: int, **settings: Any) -> Any:
    if others:
        raise LeftToJax
    return np.sort(x, axis=dimension, kind="stable")


def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes, **settings: function(x, axis=tuple(axes))


SAME = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative}
REAL = "abs exp log expm1 log1p sqrt square sin cos tanh sign floor ceil"
OF_REAL = {name: getattr(np, name) for name in REAL.split()} | {"div": np.divide, "pow": np.power, "erf": special.erf}
OF_REAL |= {"is_finite": np.isfinite, "logistic": special.expit, "lgamma": special.gammaln}
PLAIN = {"and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert, "eq": np.equal, "ne": np.not_equal}
PLAIN |= {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
DONE: dict[str, Callable[..., Any]] = {
    **{name: same(function) for name, function in SAME.items()},
    **{name: real(function) for name, function in OF_REAL.items()},
    **{name: plain(function) for name, function in PLAIN.items()},
    "integer_pow": to_power,
    "clamp": plain(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "select_n": plain(chosen),
    "copy": plain(lambda x: x),
    "copy_p": plain(lambda x: x),
    "reduce_sum": summed,
    "reduce_max": reduced(np.max),
    "reduce_min": reduced(np.min),
    "reduce_prod": lambda x, axes, **settings: np.prod(x, axis=tuple(axes), dtype=x.dtype),
    "reduce_and": reduced(np.all),
    "reduce_or": reduced(np.any),
    "broadcast_in_dim": broadcast,
    "reshape": lambda x, *dynamic, new_sizes, **settings: x.reshape(new_sizes),
    "squeeze": lambda x, dimensions, **settings: np.squeeze(x, axis=tuple(dimensions)),
    "transpose": lambda x, permutation, **settings: np.transpose(x, permutation),
    "rev": lambda x, dimensions, **settings: np.flip(x, tuple(dimensions)),
    "concatenate": lambda *arrays, dimension, **settings: np.concatenate(arrays, axis=dimension),
    "iota": counted_up,
    "convert_element_type": convert,
    "slice": sliced,
    "dynamic_slice": sliced_at,
    "pad": padded,
    "dot_general": product,
    "triangular_solve": solved,
    "gather": gathered,
    "cumsum": added_up,
    "sort": ordered,
    "tile": lambda x, reps, **settings: np.tile(x, reps),
    "cholesky": factor,
}
INSIDE = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}


def is_plain(value: Any) -> bool:
    """Whether it is an array of NumPy's types, of few entries."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return shape is not None and isinstance(dtype, np.dtype) and dtype.kind in "fiub" and np.prod(shape) <= MOST_ENTRIES


def steps_of(jaxpr: Any) -> int:
    """How many operations NumPy would do, or more than all where it cannot do one of them."""
    steps = 0
    for equation in jaxpr.eqns:
        name, settings = equation.primitive.name, equation.params
        if not all(is_plain(variable.aval) for variable in (*equation.invars, *equation.outvars)):
            return MOST_STEPS + 1
        if name in INSIDE:
            inside = settings[INSIDE[name]]
            steps += steps_of(inside.jaxpr)
        elif name not in DONE or any(settings.get(key) is not None for key in ("sharding", "out_sharding")):
            return MOST_STEPS + 1
        steps += 1
    return steps


def evaluated(jaxpr: Any, consts: Any, arguments: list[Any]) -> list[Any]:
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*map(np.asarray, consts), *arguments), strict=True))

    def read(variable: Any) -> Any:
        return np.asarray(variable.val, variable.aval.dtype) if isinstance(variable, core.Literal) else values[variable]

    for equation in jaxpr.eqns:
        name, given = equation.primitive.name, [read(variable) for variable in equation.invars]
        if name in INSIDE:
            inside = equation.params[INSIDE[name]]
            found = evaluated(inside.jaxpr, inside.consts, given)
        else:
            found = [np.asarray(DONE[name](*given, **equation.params))]
        for variable, value in zip(equation.outvars, found, strict=True):
            if value.dtype != variable.aval.dtype or value.shape != variable.aval.shape:
                raise LeftToJax
            values[variable] = value
    return [read(variable) for variable in jaxpr.outvars]


def is_here(argument: Any) -> bool:
    """On the first device, because nobody asked for another one."""
    return not isinstance(argument, jax.Array) or (isinstance(argument, array.ArrayImpl) and not argument._committed)


def given_back(value: Any, aval: Any) -> Any:
    found = jax.device_put(np.array(value, order="C"), may_alias=False)
    if not aval.weak_type:
        return found
    return array.ArrayImpl(aval, found.sharding, [found], committed=False, _skip_checks=True)


def install() -> None:
    """Put NumPy where JAX compiles what is called with numbers; nothing where JAX's inside is another one."""
    compile_and_run = getattr(pjit, "_pjit_call_impl_python", None)
    if compile_and_run is None or "jaxpr" not in inspect.signature(compile_and_run).parameters:
        return
    uses: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of each operation; -1: JAX's

    def is_small(closed: Any) -> bool:
        file = getattr(closed.jaxpr.debug_info, "func_filename", None) or ""
        plain_ends = all(is_plain(aval) for aval in (*closed.in_avals, *closed.out_avals))
        return file.startswith(FOLDER) and plain_ends and not closed.effects and steps_of(closed.jaxpr) <= MOST_STEPS

    def run(*arguments: Any, jaxpr: Any, **settings: Any) -> Any:
        if not is_on:
            return compile_and_run(*arguments, jaxpr=jaxpr, **settings)
        is_new = jaxpr not in uses
        count = uses[jaxpr] = (0 if is_small(jaxpr) else -1) if is_new else uses[jaxpr]
        if 0 <= count < MOST_USES and not jax.config.jax_debug_nans and all(map(is_here, arguments)):
            try:
                given = [np.asarray(x, aval.dtype) for x, aval in zip(arguments, jaxpr.in_avals, strict=True)]
                with np.errstate(all="ignore"):
                    found = evaluated(jaxpr.jaxpr, jaxpr.consts, given)
            except LeftToJax:
                uses[jaxpr] = -1
            else:
                uses[jaxpr] += 1
                if is_new:
                    jax.monitoring.record_event_duration_secs(EVENT, 0.0)
                return [given_back(x, aval) for x, aval in zip(found, jaxpr.out_avals, strict=True)], None, None, []
        with unseen() if count > 0 else nullcontext():  # it was counted where NumPy did it first
            return compile_and_run(*arguments, jaxpr=jaxpr, **settings)

    pjit._pjit_call_impl_python = run
