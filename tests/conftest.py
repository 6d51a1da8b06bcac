"""Settings of every test: float64, no implicit rank promotion, quick compilation; warnings are errors (pyproject.toml)."""

import functools
import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zlib import crc32

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
from jax._src import core
from jax._src.interpreters import mlir

from tests import by_numpy, precision, rounding
from tests.shapes import install

# Before any test makes its data.
rounding.install(os.environ.get("NUMPYRO_GP_TEST_ROUNDING"))

# Shapes in the annotations of strictly typed files are checked at run time, here and not in the user's programs. That is
# a twelfth of the time: .ci/run does it in the first stage, which calls all of these functions.
if "benchmark" not in sys.argv and os.environ.get("NUMPYRO_GP_TEST_SHAPES") != "0":
    install()

jax.config.update("jax_enable_x64", True)
# Programs compiled by an earlier run are read from an ignored folder; benchmarks time what users get, without it.
if "benchmark" not in sys.argv:
    folder = os.environ.get("NUMPYRO_GP_TEST_CACHE", str(Path(__file__).parent.parent / ".jax_cache"))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_numpy_rank_promotion", "raise")
precision.install()
# JAX makes a context of MLIR for each program and loads all dialects into it: a quarter of what one operation costs.
CONTEXTS, PROGRAMS_OF_ONE = threading.local(), 50
new_context = getattr(mlir, "make_ir_context", None)


def shared_context() -> Any:
    """One context for the next programs of a thread; not for all, for it keeps whatever it has seen."""
    left, context = getattr(CONTEXTS, "own", (0, None))
    CONTEXTS.own = (left - 1, context) if left else (PROGRAMS_OF_ONE, new_context())
    return CONTEXTS.own[1]


if new_context is not None and "benchmark" not in sys.argv:
    mlir.make_ir_context = shared_context
# One addition of numbers, and all else that JAX does one by one, is NumPy's: a program of it was most of what it cost.
if "benchmark" not in sys.argv and os.environ.get("NUMPYRO_GP_TEST_EAGER") != "compiled":
    by_numpy.install()
# Under vmap, JAX makes the type of a value without its mapped axis whenever it is asked for it: that is two fifths of a
# trace. Types are values that compare and hash, so equal questions have equal answers.
if "benchmark" not in sys.argv:
    core.mapped_aval = functools.lru_cache(4096)(core.mapped_aval)
# JAX keeps millions of objects alive: looking through them for garbage is a tenth of the suite's time.
gc.freeze()
gc.set_threshold(500_000, 50, 1000)


# Which part of the tests of the second stage is run, "2/8" for instance; all where it is not set, as in CI.
PART = os.environ.get("NUMPYRO_GP_TEST_PART", "1/1")


# Tests of the machinery of experiments see nothing of the package: each runs where one of the last commits changed a
# file that it reads. CI keeps no record of the last green commit; twenty are more than one landing has.
EXPERIMENTS = ("examples/*.py", "examples/data/*.gz")
COMMITS = 20
# What programs save and keep count with; it has tests of its own, and illustrations use it at every commit.
TOOLS = {"examples/tools/tables.py", "examples/tools/run_queue.py"}
ROOT = Path(__file__).parent.parent
IMPORTED = re.compile(r"^\s*(?:from|import) (examples[\w.]*)(?: import \(?((?<=\()[\w,\s]*|[\w, ]*))?", re.M)


@functools.cache
def changed() -> set[str] | None:
    """Files of experiments that the last commits, or nobody yet, has committed; None where nobody knows."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words, "--", *EXPERIMENTS], cwd=ROOT, capture_output=True, text=True)
        except OSError:
            return None  # no git here
        return None if done.returncode else done.stdout  # too short a history, or none

    # A file that only moved, with the names in its imports, counts as it did: a test imports every program.
    kept = "--pretty=", "--name-only", "--diff-filter=AM", "-M90%", f"HEAD~{COMMITS}..HEAD"
    found = git("log", *kept), git("diff", "--name-only", "HEAD"), git("ls-files", "--others", "--exclude-standard")
    return None if None in found else set("\n".join(map(str, found)).split())


def imported_by(file: str) -> set[str]:
    """A file, and the files of experiments that it imports, and those that they do."""
    found, left = set[str](), {file}
    while left:
        name = left.pop()
        found.add(name)
        for module, names in IMPORTED.findall((ROOT / name).read_text()):
            parts = [module, *(f"{module}.{part.split()[0]}" for part in names.split(",") if part.strip())]
            paths = {f"{part.replace('.', '/')}.py" for part in parts}
            left |= {path for path in paths - found if (ROOT / path).exists()}
    return found


def is_due(item: pytest.Item) -> bool:
    """Whether a test of experiments runs: ``NUMPYRO_GP_TEST_EXPERIMENTS`` says so (0 or 1), or a file it reads changed."""
    if told := os.environ.get("NUMPYRO_GP_TEST_EXPERIMENTS"):
        return told != "0"
    seen, file = changed(), str(item.path.relative_to(ROOT))
    if seen is None or any(name.startswith("examples/data") for name in seen):
        return True
    if item.name.startswith("test_smoke["):
        program = f"examples/{item.name.removeprefix('test_smoke[').removesuffix(']').replace('.', '/')}.py"
        return bool((imported_by(program) - TOOLS) & seen)
    return bool(imported_by(file) & seen)


def pytest_report_header() -> str:
    """Which part of the second stage it is."""
    return f"second stage: part {PART}"


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
    """One part of the second stage, simulations first: at the end no process then waits for one that began late."""
    number, parts = map(int, PART.split("/"))
    others = [item for item in items if is_of_second_stage(item) and crc32(item.nodeid.encode()) % parts != number - 1]
    named = any("::" in word or word.endswith(".py") for word in config.args)  # who names a file means it
    if not named:
        others += [item for item in items if item.get_closest_marker("experiments") and not is_due(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("statistical") is None)


def is_of_second_stage(item: pytest.Item) -> bool:
    """Whether a test takes seconds, or is one of random algorithms."""
    return any(item.get_closest_marker(name) for name in ("long", "statistical"))


@pytest.fixture
def collect() -> Callable[[], int]:
    """Collects what the test itself has left: looking through all that JAX keeps alive takes seconds each time."""
    gc.freeze()
    return gc.collect


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that is the same in every run."""
    return np.random.default_rng(20240511)
