"""How a row of the table is measured: one thread, calls of all parties in turn, medians, and what the machine can do."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

THREADS = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1"),
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_USE_LEGACY_KERAS": "1",  # GPflux needs Keras 2
}


def one_thread() -> None:
    """Before JAX, PyTorch or TensorFlow are imported."""
    os.environ.update(THREADS)


class Party(NamedTuple):
    """Someone who does the work of a row: the call to time, and what is known about its program."""

    name: str
    call: Callable[[], object]
    flops: float = 0.0
    bytes: float = 0.0
    memory: float = 0.0


class Missing(NamedTuple):
    """A peer that cannot take part, and why."""

    name: str
    reason: str


def compiled(name: str, function: Callable[..., Any], *arguments: Any, carry: bool = False) -> Party:
    """A party that runs one JAX program; with ``carry`` its first result is its first argument in the next call."""
    import jax

    program = jax.jit(function).lower(*arguments).compile()
    cost, held = program.cost_analysis(), list(arguments)
    cost = cost[0] if isinstance(cost, list) else cost

    def call() -> None:
        result = jax.block_until_ready(program(*held))
        if carry:
            held[0] = result[0]

    memory = program.memory_analysis().temp_size_in_bytes / 2**20
    return Party(name, call, cost.get("flops", 0.0), cost.get("bytes accessed", 0.0), memory)


def in_turn(parties: Iterable[Party], repeats: int) -> dict[str, tuple[float, float]]:
    """Seconds of the first call of each, and the median of the others, each after each in every round."""
    parties, first = list(parties), {}
    taken: dict[str, list[float]] = {party.name: [] for party in parties}
    for number in range(repeats + 1):
        for party in parties:
            start = time.perf_counter()
            party.call()
            seconds = time.perf_counter() - start
            if number:
                taken[party.name].append(seconds)
            else:
                first[party.name] = seconds
    return {name: (first[name], sorted(times)[len(times) // 2]) for name, times in taken.items()}


def rates(dtype: str) -> tuple[float, float]:
    """Floating point operations of a square product, and bytes of a copy, a second."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    size = 8192 if jax.default_backend() == "gpu" else 1024
    square = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), dtype)
    long = jnp.ones(2**28 if jax.default_backend() == "gpu" else 2**24, dtype)
    product = compiled("product", lambda a: a @ a, square)
    copy = compiled("copy", lambda a: a + 1, long)
    found = in_turn([product, copy], 7)
    return 2 * size**3 / found["product"][1], 2 * long.nbytes / found["copy"][1]
