"""Checks of what a user passes in. Every message names the argument, what it must be, what came, and the cure.

Shapes and kinds are checked always, values when they are known: inside ``jit``, ``grad`` or ``vmap`` a tracer
has a shape and no value, and a check that asked for one would break the program it protects. Where the library
itself puts what runs once, such as the set-up of a fit, into one program, checks of values wait for its results.
"""

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jaxtyping import Float

from numpyro_gp.arrays import EAGER, Array, ArrayLike, current_trace, set_to

# A check of values that waits for a program: the check, and the values that it looks at.
Waiting = tuple[Callable[..., None], tuple[object, ...]]
_waiting: ContextVar[tuple[list[Waiting], object] | None] = ContextVar("_waiting", default=None)


def fail(argument: str, required: str, got: object, cure: str, error: type[Exception] = ValueError) -> NoReturn:
    """Raise ``error`` with the library's one form of message."""
    text = re.sub("^a (?=[AEIOaeio]|ndarray)", "an ", f"{got}").replace("a NoneType", "None")
    raise error(f"{argument} must be {required}, but got {text}. {cure}")


def check_type(argument: str, value: object, kinds: type | tuple[type, ...], required: str, cure: str) -> None:
    """Refuse a value of another type."""
    if not isinstance(value, kinds):
        fail(argument, required, f"a {type(value).__name__}", cure, TypeError)


def is_known(value: object) -> bool:
    """Whether a value can be looked at: it is not traced, and this process holds all of it."""
    if isinstance(value, jax.core.Tracer):
        return False
    return not isinstance(value, jax.Array) or value.is_fully_addressable or value.is_fully_replicated


def known(value: object) -> np.ndarray | None:
    """The value as a NumPy array, or None where it is traced and so not known yet."""
    return np.asarray(value) if is_known(value) else None


def at_hand(*arrays: Array) -> tuple[Any, ...]:
    """NumPy, and the arrays as its own, where all are known: a formula then compiles nothing. Else JAX, and they."""
    is_here = all(isinstance(array, jax.Array) and is_known(array) for array in arrays)
    return (np, *map(np.asarray, arrays)) if is_here else (jnp, *arrays)


def when_known(check: Callable[..., None], *values: object) -> None:
    """Give values to ``check`` as NumPy arrays: now, or at the end of a block of `waiting_checks` that traces them.

    Values that are traced anywhere else are not checked. ``check`` raises, or does nothing.
    """
    if all(map(is_known, values)):
        check(*map(np.asarray, values))
        return
    waiting = _waiting.get()
    if waiting is not None and waiting[1] == current_trace():
        waiting[0].append((check, values))


@contextmanager
def waiting_checks() -> Iterator[list[Waiting]]:
    """Collect the checks of values traced in this block itself, not in a ``grad`` or a loop inside it."""
    checks: list[Waiting] = []
    with set_to(_waiting, (checks, current_trace())):
        yield checks


def check_array(argument: str, value: ArrayLike) -> Array:
    """Return ``value`` as an array of real numbers of any type."""
    array = _as_array(argument, value)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        cure = "Pass its real part, or real and imaginary parts as two arrays."
        fail(argument, "an array of real numbers", f"dtype {array.dtype}", cure, TypeError)
    return array


def _as_array(argument: str, value: ArrayLike) -> Array:
    try:
        if type(value) in (bool, int, float) and current_trace() == EAGER:
            return jax.device_put(value)  # for `asarray` of one JAX compiles a program
        if not isinstance(value, (str, bytes)):  # NumPy would take text for the name of a type
            return jnp.asarray(value)
    except (TypeError, ValueError):
        pass
    got, cure = f"a {type(value).__name__}", "Pass a NumPy or JAX array."
    if isinstance(value, np.ndarray) or hasattr(value, "iloc"):  # a table of pandas
        kind = np.asarray(value).dtype
        got = f"{got} of dtype {kind}"
        cure = f"Make numbers of its text first: {argument}.astype(float), or codes of categories."
        if isinstance(value, np.ma.MaskedArray):
            cure = "Leave rows that are masked out of all arguments: y.compressed(), and X[~np.ma.getmaskarray(y)]."
        elif kind.kind == "M":
            cure = f"Make days of it: ({argument} - {argument}.min()) / np.timedelta64(1, 'D')."
    fail(argument, "an array of real numbers", got, cure, TypeError)


def check_floating(argument: str, value: ArrayLike) -> Array:
    """Return ``value`` as a floating point array; refuse integers, booleans, complex numbers and objects.

    A literal such as ``variance=1`` is the Python float, which does not raise float32 inputs to float64.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    array = _as_array(argument, value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        fail(argument, "floating point", f"dtype {array.dtype}", f"Convert it: {argument}.astype(float).", TypeError)
    check_finite(argument, array)
    return array


def check_finite(argument: str, value: ArrayLike) -> None:
    """Refuse NaN and infinity."""

    def check(array: np.ndarray) -> None:
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            bad = np.argwhere(~np.isfinite(array))
            where = "" if array.ndim == 0 else f" (first at index {tuple(int(i) for i in bad[0])})"
            cure = "Remove or impute missing values."
            cure = cure if array.ndim else "Look where it is computed: a logarithm, a division or a step of the fit."
            fail(argument, "finite", f"{len(bad)} NaN or infinite entries of {array.size}{where}", cure)

    when_known(check, value)


def check_digits(argument: str, value: object) -> None:
    """Warn where data far from zero lose digits that tell them apart, as NumPy's numbers become those of JAX.

    In single precision a Julian date is one of four a day. Whole numbers are looked at where they are inputs, in rows.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf" or value.dtype.itemsize < 8:
        return
    is_whole = value.dtype.kind != "f"
    if jnp.result_type(float).itemsize > 4 or value.size == 0 or (is_whole and value.ndim < 2):
        return
    columns = value.reshape(-1, value.shape[-1] if value.ndim > 1 else 1).astype(float)
    largest = np.abs(columns).max(axis=0)
    if not np.isfinite(columns).all() or largest.max() > np.finfo(np.float32).max:
        return  # refused where they are read
    spread, lost = columns.std(axis=0), np.abs(columns - columns.astype(np.float32)).max(axis=0)
    # A spread that is rounding itself, of a column without any, has no digits to lose.
    is_bad = (lost > 1e-4 * spread) & (spread > 1e-12 * largest)
    if is_bad.any():
        at = int(np.argmax(is_bad))
        where = f" in column {at}" if value.ndim > 1 else ""
        what = f"{argument} loses digits in single precision: numbers{where} of standard deviation {spread[at]:.3g}"
        cure = "Subtract a number near their mean before the fit, and from new data, or use float64"
        switch = "jax.config.update('jax_enable_x64', True)"
        warnings.warn(f"{what} are rounded by up to {lost[at]:.3g}. {cure} ({switch}).", stacklevel=2)


def check_values(
    argument: str, value: ArrayLike, is_right: Callable[[np.ndarray], np.ndarray], required: str, cure: str
) -> Array:
    """Return ``value`` as floats, all of which are right."""

    def check(array: np.ndarray) -> None:
        right = np.broadcast_to(is_right(array), array.shape)
        if not right.all():
            fail(argument, required, f"{float(array[~right].min()):.6g}", cure)

    array = check_floating(argument, value)
    when_known(check, array)
    return array


def check_positive(argument: str, value: ArrayLike, shapes: str = "") -> Array:
    """Return ``value`` as floats that are greater than zero."""
    cure = "Pass a positive number, or sample it from a prior such as numpyro.distributions.LogNormal."
    return check_values(argument, value, lambda array: array > 0, f"positive{shapes}", cure)


def check_nonnegative(argument: str, value: ArrayLike) -> Array:
    """Return ``value`` as floats that are not less than zero."""
    return check_values(argument, value, lambda array: array >= 0, "zero or positive", "Pass 0 to switch it off.")


def are_integers(value: object) -> TypeGuard[Array]:
    """Whether inputs are an array of integers: numbers of nodes, say, which a kernel that is a function reads."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.integer)


def check_points(
    argument: str, value: ArrayLike, columns: int | None = None, leading: bool = False
) -> Float[Array, "*batch N D"]:
    """Return a set of inputs ``(N, D)`` as floats; ``leading=True`` also allows axes to the left, ``(..., N, D)``."""
    array = check_floating(argument, value.astype(float) if are_integers(value) else value)
    axes = "(..., N, D)" if leading else "(N, D)"
    if array.ndim < 2 or (array.ndim > 2 and not leading):
        cure = "Put one point in each row of an array (N, D)."
        if array.ndim == 1:
            cure = f"For one input dimension pass {argument}[:, None], for one row {argument}[None]."
        fail(argument, f"an array of shape {axes}", f"shape {array.shape}", cure)
    if array.size == 0:
        fail(argument, f"a non-empty array of shape {axes}", f"shape {array.shape}", "Pass at least one point.")
    if columns is not None and array.shape[-1] != columns:
        required = f"an array with {columns} columns, as many as the inducing inputs or the training inputs"
        cure = f"Pass the same {columns} inputs in the same order, or choose columns with kernel.on(dims)."
        fail(argument, required, f"shape {array.shape}", cure)
    return array


def check_shape(argument: str, value: ArrayLike, shape: tuple[int | None, ...], meaning: str, cure: str) -> Array:
    """Return ``value`` as floats of the given shape, where None allows any size of that axis."""
    array = check_floating(argument, value)
    if array.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
        text = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ("," * (len(shape) == 1)) + ")"
        fail(argument, f"of shape {text}: {meaning}", f"shape {array.shape}", cure)
    return array


def check_triangle(argument: str, value: ArrayLike, shape: tuple[int | None, ...], positive: bool) -> Array:
    """Return lower triangles ``(..., M, M)`` for vectors of ``shape`` ``(..., M)``, where None allows any M.

    ``positive``: with a positive diagonal, as Cholesky factors have it.
    """
    wanted = shape + shape[-1:]
    array = check_floating(argument, value)
    matches = array.ndim == len(wanted) and array.shape[-1] == array.shape[-2]
    if not matches or any(want not in (None, have) for want, have in zip(wanted, array.shape, strict=True)):
        text = f"of shape {wanted}".replace("None", "M")
        fail(argument, text, f"shape {array.shape}", "Pass a full square matrix for each output, such as jnp.eye(M).")

    def check(triangle: np.ndarray) -> None:
        cure = "Pass jnp.linalg.cholesky(S)." if positive else f"Pass jnp.tril({argument})."
        if np.any(np.triu(triangle, 1) != 0):
            fail(argument, "lower triangular", "non-zero entries above the diagonal", cure)
        if positive and not np.all(np.diagonal(triangle, axis1=-2, axis2=-1) > 0):
            fail(argument, "a factor with a positive diagonal", "an entry <= 0", cure)

    when_known(check, array)
    return array


def check_symmetric(argument: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return symmetric matrices ``(..., M, M)`` for vectors of ``shape`` ``(..., M)``."""
    cure = f"Pass ({argument} + {argument}.T) / 2, one for each output."
    array = check_shape(argument, check_floating(argument, value), (*shape, shape[-1]), "a square matrix each", cure)

    def check(matrix: np.ndarray) -> None:
        gap = np.abs(matrix - np.swapaxes(matrix, -1, -2)).max(initial=0)
        if gap > np.sqrt(np.finfo(matrix.dtype).eps) * np.abs(matrix).max(initial=0):
            fail(argument, "symmetric", f"entries that differ by {gap:.3g} from those across the diagonal", cure)

    when_known(check, array)
    return array


def check_level(level: float) -> float:
    """Return the probability of a credible interval, between 0 and 1."""
    check_positive("level", level)
    if level >= 1:
        fail("level", "less than 1", level, "Pass a probability such as level=0.9.")
    return float(level)


def check_key(argument: str, key: object) -> Array:
    """Return a single PRNG key; refuse seeds, so that no randomness is hidden."""
    is_new = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0
    is_old = isinstance(key, (jax.Array, np.ndarray)) and key.dtype == jnp.uint32 and key.shape == (2,)
    if not (is_old or is_new):
        got = f"{key!r:.60}" if not isinstance(key, jax.Array) else f"an array of {key.dtype}{key.shape}"
        fail(argument, "one JAX random key", got, "Pass jax.random.key(0).", TypeError)
    return jnp.asarray(key)


def check_count(argument: str, value: object, minimum: int = 1) -> int:
    """Return a Python integer that is at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        whole = int(value) if isinstance(value, float) and value.is_integer() and value >= minimum else max(minimum, 1)
        cure = f"Pass an int: {whole}."
        shape = getattr(value, "shape", ())
        got = f"an array of shape {shape}" if shape else f"{value!r:.60} ({type(value).__name__})"
        fail(argument, "a whole number", got, cure, TypeError)
    if value < minimum:
        fail(argument, f"at least {minimum}", value, f"Pass {minimum} or more.")
    return int(value)


def check_choice(argument: str, value: object, choices: tuple[str, ...]) -> str:
    """Return one of the allowed words."""
    if value not in choices:
        fail(argument, "one of " + ", ".join(repr(choice) for choice in choices), repr(value), "Check the spelling.")
    return str(value)


def check_factorised(where: str, *values: np.ndarray) -> None:
    """Say why numbers are not finite that a factorisation gave, before a check speaks of what nobody passed."""
    if not all(np.isfinite(value).all() for value in values):
        cure = (
            "Use float64 (jax.config.update('jax_enable_x64', True)), a larger jitter, such as jitter=1e-3, a larger "
            "noise, or inducing inputs that lie further apart in lengthscales."
        )
        required = f"positive definite in {values[0].dtype}"
        fail(f"the covariance of the inducing inputs{where}", required, "a factorisation with NaN", cure)


def check_sharding(argument: str, sharding: object) -> int:
    """Refuse what does not cut the first axis alone; returns the number of pieces that it cuts it into."""
    required = "a NamedSharding of the first axis alone, NamedSharding(mesh, PartitionSpec('data'))"
    if not isinstance(sharding, NamedSharding):
        cure = "Build it from a mesh: NamedSharding(jax.make_mesh((8,), ('data',)), PartitionSpec('data'))."
        fail(argument, required, f"a {type(sharding).__name__}", cure, TypeError)
    if not sharding.spec or sharding.spec[0] is None or any(sharding.spec[1:]):
        fail(argument, required, f"{sharding.spec}", "Cut no other axis: NamedSharding(mesh, PartitionSpec('data')).")
    if any(kind is not AxisType.Auto for kind in sharding.mesh.axis_types):
        cure = (
            "Explicit axes demand that every operation says how its result is placed, which those of NumPyro do not. "
            "Use jax.make_mesh((8,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))."
        )
        fail(argument, "of a mesh whose axes are all Auto", f"axes {sharding.mesh.axis_types}", cure)
    return math.prod(sharding.mesh.shape[axis] for axis in axes_of_sharding(sharding))


def axes_of_sharding(sharding: NamedSharding) -> tuple[str, ...]:
    """Axes of the mesh that the first axis of an array lies over."""
    first = sharding.spec[0]
    return first if isinstance(first, tuple) else (first,)


def check_shared(argument: str, count: int, sharding: object) -> int:
    """Refuse a number of things that the devices of their sharding cannot share equally; None is one device."""
    number = check_count(argument, count)
    if sharding is not None and number % (pieces := check_sharding("sharding", sharding)):
        fail(argument, f"a multiple of the {pieces} devices", number, f"Pass {-(-number // pieces) * pieces}.")
    return number
