"""Settings of every test: float64, no implicit rank promotion, quick compilation; warnings are errors (pyproject.toml)."""

import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path

# Tests compile thousands of small programs that run for microseconds: optimise them as little as possible, by the older
# code generator (half of the time of the emitters) and in one piece, not in 32. Benchmarks (pytest -m benchmark) time
# what users get.
if "benchmark" not in sys.argv:
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    if int(version("jaxlib").split(".")[1]) < 10:  # XLA stops at flags that it does not know
        quick += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", quick)
os.environ.setdefault("MPLBACKEND", "Agg")
# XLA names tuning preferences of this very machine as missing features whenever it reads a kept program.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import numpy as np
import pytest

from tests.shapes import install

# Shapes in the annotations of strictly typed files are checked at run time, here and not in the user's programs.
if "benchmark" not in sys.argv:
    install()

jax.config.update("jax_enable_x64", True)
# Programs compiled by an earlier run are read from an ignored folder; benchmarks time what users get, without it.
if "benchmark" not in sys.argv:
    folder = os.environ.get("NUMPYRO_GP_TEST_CACHE", str(Path(__file__).parent.parent / ".jax_cache"))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_numpy_rank_promotion", "raise")
# JAX keeps millions of objects alive: looking through them for garbage is a tenth of the suite's time.
gc.freeze()
gc.set_threshold(100_000, 50, 1000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Simulations first, which take the longest: at the end no process then waits for one that began late."""
    items.sort(key=lambda item: item.get_closest_marker("statistical") is None)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that is the same in every run."""
    return np.random.default_rng(20240511)
