"""Settings of every test: float64, no implicit rank promotion, quick compilation; warnings are errors (pyproject.toml)."""

import functools
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Two processes on two cores leave no core for the threads of OpenBLAS, which spin while they wait for one: 300 products
# of 150 x 150 numbers took 49 processor seconds beside other programs, and take 0.3. Other processes inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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

from tests import by_numpy, precision, rounding, shapes

rounding.install(os.environ.get("NUMPYRO_GP_TEST_ROUNDING"))  # before any test makes its data
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
precision.install()
if "benchmark" not in sys.argv:
    # Shapes in the annotations of strictly typed files are checked at run time, here and not in the user's programs. That
    # is a twelfth of the time: .ci/run does it in the first stage, which calls all of these functions.
    if os.environ.get("NUMPYRO_GP_TEST_SHAPES") != "0":
        shapes.install()
    # Programs compiled by an earlier run are read from an ignored folder.
    folder = os.environ.get("NUMPYRO_GP_TEST_CACHE", str(Path(__file__).parent.parent / ".jax_cache"))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # One addition of numbers, and all else that JAX does one by one, is NumPy's: where nothing is compiled yet, that saves a
    # fifth of the processor's time of tests of the first stage, and a quarter of tests of the second.
    if os.environ.get("NUMPYRO_GP_TEST_EAGER") != "compiled":
        by_numpy.install()
# JAX keeps millions of objects alive: looking through them for garbage is a tenth of the suite's time.
gc.freeze()
gc.set_threshold(500_000, 50, 1000)


# Smoke runs of studies are minutes of compiling, and see little of the package that illustrations do not: each runs where
# a program of its folder differs from what it was twenty commits ago, or where its file is named. CI keeps no record of
# its last green commit.
COMMITS = 20


@functools.cache
def changed() -> list[str] | None:
    """Programs of studies that have changed, but for those that only moved; None where nobody knows."""
    command = ["git", "diff", "--name-only", "--diff-filter=AM", "-M90%"]
    command += [f"HEAD~{COMMITS}", "--", ":/examples/studies/*.py"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return None  # no git here
    return None if done.returncode else done.stdout.split()  # too short a history, or none


def is_due(item: pytest.Item) -> bool:
    """Whether a test of a study runs; ``NUMPYRO_GP_TEST_EXPERIMENTS`` says 1, all of them, or 0, none."""
    marker, told = item.get_closest_marker("experiments"), os.environ.get("NUMPYRO_GP_TEST_EXPERIMENTS")
    if marker is None or told:
        return marker is None or told == "1"
    return changed() is None or any(name.startswith(f"{marker.args[0]}/") for name in changed())


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Data that a file makes at its import."""
    rounding.look_at(collector.path)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Data of a test and of its fixtures."""
    rounding.look_at(item.path)


COUNTED = {"programs": 0}


def count_program(event: str, **details: object) -> None:
    """Programs that were compiled, and not read from the folder of earlier ones."""
    COUNTED["programs"] += event == "/jax/compilation_cache/cache_misses"


jax.monitoring.register_event_listener(count_program)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several tells the one that waits for them what it has compiled."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput.update(COUNTED)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    """Add what a process has compiled."""
    COUNTED["programs"] += getattr(node, "workeroutput", {}).get("programs", 0)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many programs were compiled; ``NUMPYRO_GP_TEST_COUNTS`` names a file that .ci/run adds up."""
    if hasattr(terminalreporter.config, "workerinput"):
        return
    outcomes = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
    tests = sum(len(terminalreporter.stats.get(name, [])) for name in outcomes)
    terminalreporter.write_line(f"{COUNTED['programs']} programs compiled")
    if file := os.environ.get("NUMPYRO_GP_TEST_COUNTS"):
        with open(file, "a") as counts:
            counts.write(f"{tests} {COUNTED['programs']}\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Simulations first: at the end no process then waits for one that began late. Studies that did not change go."""
    if not any("::" in word or word.endswith(".py") for word in config.args):
        config.hook.pytest_deselected(items=[item for item in items if not is_due(item)])
        items[:] = [item for item in items if is_due(item)]
    items.sort(key=lambda item: item.get_closest_marker("statistical") is None)


@pytest.fixture
def collect() -> Callable[[], int]:
    """Collects what the test itself has left: looking through all that JAX keeps alive takes seconds each time."""
    gc.freeze()
    return gc.collect


@pytest.fixture
def allow_rank_promotion() -> Iterator[None]:
    """NumPyro draws several samples of a distribution with array parameters by promoting ranks."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that is the same in every run."""
    return np.random.default_rng(20240511)
