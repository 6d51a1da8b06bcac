"""The architecture, as rules that a program can check: layers, what importing does, how files pair up."""

import ast
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "numpyro_gp"

# Design section 4: a file imports only from files of layers above its own.
LAYERS = [
    ["arrays"],
    ["checks"],
    ["linalg"],
    ["kernels"],
    ["means", "quadrature"],
    ["likelihoods"],
    ["beliefs"],
    ["sites"],
    ["primitives"],
    ["guides"],
    ["checkpoints"],
    ["faults", "calls"],
    ["objectives", "deep", "optim", "stein", "fit", "inducing"],
    ["staging"],
    ["chunks", "prediction", "arviz"],
    ["draws", "storage", "replay"],
    ["groups"],
    ["posterior", "metrics"],
    ["compare", "conditional_density", "plots", "sobol", "anova", "diagnose"],
    ["effect_plots"],
]
LEVEL = {module: number for number, layer in enumerate(LAYERS) for module in layer}
SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    """Full names of everything that a file imports from the package, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "numpyro_gp" else set()
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"
    return {name for name in found if name.startswith("numpyro_gp.")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_only_point_up(path):
    own = layer(path)
    assert own in LEVEL, f"{own} has no place in the layers of design section 4"
    for name in imported_modules(path):
        other = name.split(".")[1]
        if other in LEVEL and other != own:
            assert LEVEL[other] < LEVEL[own], f"{path.name} imports {name}, a step down"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_catch_all_and_no_unfinished_code(path):
    text = path.read_text()
    for word in ("TODO", "FIXME", "NotImplementedError", "pragma: no cover"):
        assert word not in text, f"{path.name} holds {word}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{path.name}:{node.lineno} catches everything"


def test_import_makes_no_array_and_sets_no_config():
    code = (
        "import jax; before = dict(jax.config.values)\n"
        "import numpyro_gp\n"
        "assert len(jax.live_arrays()) == 0, jax.live_arrays()\n"
        "assert dict(jax.config.values) == before\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr


def test_top_level_holds_only_what_was_agreed():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT).stdout.split()
    if not listed:
        pytest.skip("not a git checkout (a source archive): nothing to list, 2026-11")
    tops = {name.split("/")[0] for name in listed}
    allowed = {"pyproject.toml", "numpyro_gp", "models", "tests", "examples", "README.md", "LICENSE"}
    assert {top for top in tops if not top.startswith(".")} <= allowed


def test_every_source_file_has_its_test_file():
    for path in SOURCES:
        relative = path.relative_to(PACKAGE)
        if path.name != "__init__.py":
            assert (ROOT / "tests" / relative.parent / f"test_{path.name}").exists(), f"no test file for {relative}"


def test_jaxlib_is_not_one_that_can_stop_for_ever():
    """0.10.* and 0.11.0 deadlock on CPUs with few cores (README, "When something goes wrong")."""
    for package in ("jax", "jaxlib"):
        installed = version(package)
        broken = installed.startswith("0.10.") or installed == "0.11.0" or installed.startswith("0.11.0.")
        assert not broken, (
            f"{package} {installed} can stop for ever on this machine: pip install 'jax!=0.10.*,!=0.11.0'"
        )


def readme() -> str:
    return (ROOT / "README.md").read_text()


def test_readme_links_point_at_files():
    for target in re.findall(r"\]\(([^)#]+)\)", readme()):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), f"README links to {target}, which is not there"


def test_ci_runs_the_test_command_of_the_readme():
    command = next(line for line in readme().splitlines() if "pytest" in line and "pip install" in line)
    assert command.strip() in (ROOT / ".ci" / "run").read_text()
