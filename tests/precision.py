"""Double precision, or single, for a while: ``jax.enable_x64``, which JAX 0.7 does not have."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def x64(is_double: bool) -> Iterator[None]:
    """Arrays of float64 where ``is_double``, else of float32."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", is_double)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
