"""Double precision, or single, for a while: ``jax.enable_x64``, which JAX 0.7 does not have."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax._src import dtypes


@contextmanager
def x64(is_double: bool) -> Iterator[None]:
    """Arrays of float64 where ``is_double``, else of float32."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", is_double)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def install() -> None:
    """Arrays of NumPy that programs close over have the precision of the moment.

    JAX remembers such an array as a living program holds it, whatever the precision is by now: a test of one precision
    failed where another one, of the other precision, had run before it.
    """
    handlers = getattr(dtypes, "canonicalize_value_handlers", {})
    remembered = handlers.get(np.ndarray)
    if remembered is None:
        return

    def now(array: np.ndarray) -> Any:
        found = remembered(array)
        return found if found.dtype == dtypes.canonicalize_dtype(array.dtype) else remembered(array.copy())

    handlers[np.ndarray] = now
