"""Every example runs from the command line with ``--smoke``, and leaves something to look at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Modules that examples share; they have no main.
SHARED = {"__init__", "datasets", "deep_models", "additive_fits", "landscapes", "tables", "run_queue", "run_tables"}
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem not in SHARED)


def test_shared_modules_have_no_main():
    for name in SHARED:
        assert "def main(" not in (ROOT / "examples" / f"{name}.py").read_text()


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path):
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    environment = {**os.environ, "MPLBACKEND": "Agg", "XLA_FLAGS": flags, "PYTHONWARNINGS": "default"}
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
