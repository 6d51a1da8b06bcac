"""Every example runs from the command line with ``--smoke``, and leaves something to look at."""

import runpy
import sys
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parent.parent
# Modules that examples share; they have no main.
SHARED = {"__init__", "datasets", "deep_models", "additive_fits", "landscapes", "tables", "run_queue", "run_tables"}
SHARED |= {"beyond_tables", "gam_interactions_tables"}
# `rebuild` makes tables of rows, `guide_figures` runs the guide: `test_rebuild.py` and `test_guide.py` run them.
OTHERS = {"rebuild", "guide_figures"}
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem not in SHARED | OTHERS)


def test_shared_modules_have_no_main():
    for name in SHARED:
        assert "def main(" not in (ROOT / "examples" / f"{name}.py").read_text()


@pytest.fixture
def user(monkeypatch):
    """What a test sets, and a user does not, is put back; what an example sets ends with it."""
    settings = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_numpy_rank_promotion")}
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_numpy_rank_promotion", "allow")
    monkeypatch.chdir(ROOT)
    yield
    plt.close("all")
    for name, value in settings.items():
        jax.config.update(name, value)


@pytest.mark.long
@pytest.mark.filterwarnings("default", "ignore:.* found in sys.modules after import:RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path, user, monkeypatch, capsys):
    # As `python -m examples.NAME` runs it, in this process: thirty imports of JAX and NumPyro are two minutes.
    monkeypatch.setattr(sys, "argv", [f"examples/{name}.py", "--smoke", "--out", str(tmp_path)])
    runpy.run_module(f"examples.{name}", run_name="__main__", alter_sys=True)
    assert capsys.readouterr().out.strip(), "it printed nothing"
    assert any(tmp_path.rglob("*.csv")) or any(tmp_path.rglob("*.png")), "it saved nothing"
