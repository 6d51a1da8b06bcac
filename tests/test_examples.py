"""Every example runs from the command line with ``--smoke``, and leaves something to look at."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parent.parent
# Modules that examples share; they have no main.
SHARED = {"__init__", "datasets", "deep_models", "additive_fits", "landscapes", "tables", "run_queue", "run_tables"}
SHARED |= {"beyond_tables", "gam_interactions_tables"}
KEPT = {
    "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
# `rebuild` makes tables of rows, and `test_rebuild.py` runs it.
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem not in {*SHARED, "rebuild"})


def test_shared_modules_have_no_main():
    for name in SHARED:
        assert "def main(" not in (ROOT / "examples" / f"{name}.py").read_text()


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path):
    # XLA_FLAGS come from conftest.py: quick compilation; what one example compiled the others read.
    environment = {**os.environ, **KEPT, "MPLBACKEND": "Agg", "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", "--smoke", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip(), "it printed nothing"
    assert any(tmp_path.rglob("*.csv")) or any(tmp_path.rglob("*.png")), "it saved nothing"
