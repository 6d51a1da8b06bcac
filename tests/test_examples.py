"""Every example runs from the command line with ``--smoke``, and leaves something to look at.

Illustrations run at every commit; studies, which make the rows of results, where their folder changed (``tests/conftest.py``).
"""

import ast
import importlib
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from examples.studies.importance import deep_models

ROOT = Path(__file__).parent.parent
# Illustrations lie in `examples` itself, studies in `examples/studies`; what they share has no main.
FOLDERS = ("*.py", "studies/*/*.py")
FOUND = sorted(path for folder in FOLDERS for path in (ROOT / "examples").glob(folder) if path.stem != "__init__")
PROGRAMS = [path for path in FOUND if "def main(" in path.read_text() and path.parent.name != "tables"]
NAMES = [".".join(path.relative_to(ROOT / "examples").with_suffix("").parts) for path in PROGRAMS]
# What a visitor opens: nothing else lies in the folder; all others are studies.
ILLUSTRATIONS = {"additive_illustration", "bayesian_optimisation", "compare_engines", "conditional_density"}
ILLUSTRATIONS |= {"dgp_letters", "functionals", "gam_binary", "gam_counts", "large_regression", "latent_force"}
ILLUSTRATIONS |= {"stations", "streaming", "two_modes"}


def test_every_program_imports_and_calls_names_that_are_there():
    """What a smoke run of an experiment would see first, at every commit."""
    assert {name for name in NAMES if "." not in name} == ILLUSTRATIONS
    for name in NAMES:
        module = importlib.import_module(f"examples.{name}")
        nodes = [*ast.walk(ast.parse(Path(module.__file__).read_text()))]
        read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ngp"}
        assert not {attribute for attribute in read if not hasattr(ngp, attribute)}, name


@pytest.mark.long
def test_deep_models_count_no_prior_density_of_points():
    """That is no part of a bound on the evidence, and tells depths apart by itself: on letters it was 184 nats a layer."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    model, _ = deep_models.build("LV-GP-GP", jnp.asarray(X), 6)
    sites = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(X)
    sampled = {name for name, site in sites.items() if site["type"] == "sample"}
    kernels = {f"f_{number}/{name}" for number in range(2) for name in ("lengthscale", "variance")}
    assert sampled == kernels | {"f_0", "f_1", "f_latent_0", "f_0/draw", "scale", "y"}
    assert sites["f_0/inducing"]["type"] == "param"
    assert sites["f_0/inducing"]["value"].shape == (6, 3)


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


def cases():
    for path, name in zip(PROGRAMS, NAMES, strict=True):
        folder = str(path.parent.relative_to(ROOT))
        yield pytest.param(name, marks=[pytest.mark.experiments(folder)] * (name not in ILLUSTRATIONS))


@pytest.mark.long
@pytest.mark.filterwarnings("default", "ignore:.* found in sys.modules after import:RuntimeWarning")
@pytest.mark.parametrize("name", [*cases()])
def test_smoke(name, tmp_path, user, monkeypatch, capsys):
    # As `python -m examples.NAME` runs it, in this process: thirty imports of JAX and NumPyro are two minutes.
    monkeypatch.setattr(sys, "argv", [f"examples/{name.replace('.', '/')}.py", "--smoke", "--out", str(tmp_path)])
    runpy.run_module(f"examples.{name}", run_name="__main__", alter_sys=True)
    assert capsys.readouterr().out.strip(), "it printed nothing"
    assert any(tmp_path.rglob("*.csv")) or any(tmp_path.rglob("*.png")), "it saved nothing"
