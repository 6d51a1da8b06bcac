"""Settings of every test: float64, no implicit rank promotion, quick compilation; warnings are errors (pyproject.toml)."""

import gc
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

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


# Which part of the tests of the second stage is run, "2/8" for instance; all where it is not set.
PART = os.environ.get("NUMPYRO_GP_TEST_PART", "1/1")


# Tests of the machinery of experiments see nothing of the package: they run where one of the last commits changed it.
# CI keeps no record of the last green commit; twenty are more than one landing has, and most of them touch no program.
EXPERIMENTS = ("examples/*.py", "examples/data", "tests/benchmarks", "tests/test_examples.py")
COMMITS = 20


def experiments_run() -> bool:
    """Whether ``NUMPYRO_GP_TEST_EXPERIMENTS`` says so (0 or 1), or programs of experiments changed, or nobody knows."""
    if told := os.environ.get("NUMPYRO_GP_TEST_EXPERIMENTS"):
        return told != "0"
    root = Path(__file__).parent.parent

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words, "--", *EXPERIMENTS], cwd=root, capture_output=True, text=True)

    try:
        changed = git("diff", "--quiet", f"HEAD~{COMMITS}").returncode != 0  # above 1: too short a history, or none
        return changed or bool(git("ls-files", "--others", "--exclude-standard").stdout.strip())
    except OSError:
        return True  # no git here


def pytest_report_header() -> str:
    """Which part of the second stage it is, and whether tests of experiments run."""
    return f"second stage: part {PART}; tests of experiments: {'run' if experiments_run() else 'left out, no change'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One part of the second stage, simulations first: at the end no process then waits for one that began late."""
    number, parts = map(int, PART.split("/"))
    others = [item for item in items if is_of_second_stage(item) and crc32(item.nodeid.encode()) % parts != number - 1]
    named = any("::" in word or word.endswith(".py") for word in config.args)  # who names a file means it
    if not named and not experiments_run():
        others += [item for item in items if item.get_closest_marker("experiments") and item not in others]
    if others:
        config.hook.pytest_deselected(items=others)
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("statistical") is None)


def is_of_second_stage(item: pytest.Item) -> bool:
    """Whether a test takes seconds, or is one of random algorithms."""
    return any(item.get_closest_marker(name) for name in ("long", "statistical"))


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that is the same in every run."""
    return np.random.default_rng(20240511)
