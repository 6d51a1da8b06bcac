"""Checks of what neighbours are asked for."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_positive, fail, is_known


def check_scale(lengthscale: ArrayLike, inputs: Array) -> Array:
    """Lengthscales ``(D,)``."""
    columns, given = inputs.shape[-1], check_known_rows("lengthscale", check_positive("lengthscale", lengthscale))
    if given.shape not in ((), (1,), (columns,)):
        cure = "Pass one lengthscale for each column of X, or a number."
        fail("lengthscale", f"a number or of shape ({columns},)", f"shape {given.shape}", cure)
    return jnp.broadcast_to(given, (columns,)).astype(inputs.dtype)


def check_known_rows(argument: str, value: Array) -> Array:
    """Refuse rows that are being traced: neighbours are found of numbers."""
    if not is_known(value):
        cure = "Find neighbours before the model, outside jit, and pass them as an argument."
        fail(argument, "known", "a traced array", cure, TypeError)
    return value


def check_below(argument: str, value: object, size: int) -> int:
    """A number of neighbours that other rows suffice for."""
    count = check_count(argument, value)
    if count >= size:
        cure = f"Pass {size - 1} or less. With that many the process is exact, as it is without neighbours."
        fail(argument, f"less than the number of rows, {size}", count, cure)
    return count


def check_candidates(candidates: object, count: int) -> int | None:
    """How many rows to choose so many neighbours from, if they are chosen."""
    return None if candidates is None else check_count("candidates", candidates, count)


def check_numbers(argument: str, value: ArrayLike, size: int) -> Array:
    """Numbers of rows, each once."""
    numbers = np.asarray(value)
    is_right = numbers.ndim == 1 and numbers.size > 0 and np.issubdtype(numbers.dtype, np.integer)
    if not is_right or numbers.min() < 0 or numbers.max() >= size or len(np.unique(numbers)) < len(numbers):
        got = f"dtype {numbers.dtype}, shape {numbers.shape}, or others"
        cure = f"Pass such as jax.random.permutation(key, {size})[:1000]."
        cure = f"Pass their numbers, np.flatnonzero({argument})." if numbers.dtype == bool else cure
        fail(argument, f"different whole numbers from 0 to {size - 1}", got, cure)
    return jnp.asarray(numbers.astype(np.int32))


def ordering_of(size: int, order: str | ArrayLike) -> np.ndarray:
    """Numbers of the rows, first to last."""
    if isinstance(order, str):
        if order not in ("random", "given"):
            fail("order", "'random', 'given' or the numbers of the rows", repr(order), "Check the spelling.")
        found = np.random.default_rng(0).permutation(size) if order == "random" else np.arange(size)
        return found.astype(np.int32)
    numbers = np.asarray(order)
    if numbers.shape != (size,) or not np.array_equal(np.sort(numbers), np.arange(size)):
        got, cure = f"shape {numbers.shape}", f"Pass jax.random.permutation(key, {size})."
        fail("order", f"the numbers from 0 to {size - 1}, each once", got, cure)
    return numbers.astype(np.int32)
