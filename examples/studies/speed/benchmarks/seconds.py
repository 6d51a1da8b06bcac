"""How long a compiled call takes."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def seconds(call: Callable[..., Any], *inputs: Any, repeats: int = 7) -> tuple[float, float]:
    """Median of several runs after one for compilation, and the time of that first one; results are finite."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        found = jax.block_until_ready(call(*inputs))
        times.append(time.perf_counter() - start)
    leaves = [leaf for leaf in jax.tree.leaves(found) if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    return float(np.median(times[1:])), times[0]
