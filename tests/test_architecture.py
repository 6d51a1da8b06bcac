"""The architecture, as rules that a program can check: layers, what importing does, how files pair up."""

import ast
import functools
import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jax.numpy as jnp
import numpyro
import pytest
from jaxtyping import TypeCheckError

from numpyro_gp.linalg import solve_lower
from numpyro_gp.programs.scheduler import FLAG, can_stop
from tests import sources
from tests.shapes import strict_modules
from tests.sources import PACKAGE, ROOT, place

# Parts of the package, in the order in which they may know each other: a file imports only from parts above its own.
ORDER = (
    "arrays > checks > programs > linalg > kernels means > likelihoods > beliefs > sites > neighbours > rows > primitives > "
    "guides > objectives optim > starting > posterior > training > criticism > additive > plots > stein > gam"
)
PARTS = [level.split() for level in ORDER.split(" > ")]
LEVEL = {part: number for number, level in enumerate(PARTS) for part in level}
SOURCES = [path for path in sources.FILES if path != PACKAGE / "__init__.py"]


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Full names of everything that a file imports from the package, wherever the import stands."""
    found = set()
    for node in sources.nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{place(path)}: relative import"
    return frozenset(name for name in found if name.startswith("numpyro_gp.") and is_module(name))


def part_of(path: Path) -> str:
    return place(path).split("/")[0].removesuffix(".py")


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def test_parts_are_those_of_the_package():
    assert {part_of(path) for path in SOURCES} == set(LEVEL)


def test_the_page_of_rooms_has_their_order_what_each_imports_and_names_files_that_exist():
    page = (PACKAGE / "README.md").read_text()
    assert [re.findall(r"`(\w+)`", line.split("|")[1]) for line in page.splitlines() if line.startswith("| `")] == PARTS
    named = re.findall(r"`([\w/]+/[\w.]*\.(?:py|txt|md))`", page)
    assert len(named) > 20
    for name in named:
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), f"{name} is not there"
    ways = re.findall(r"^  \d\. ([\w/]+\.py) (?:\w+\.)*(\w+)$", page, re.M)
    assert len(ways) > 10
    for file, name in ways:
        assert f"def {name}(" in sources.text(PACKAGE / file), f"the page of rooms has {name} in {file}"
    known: dict[str, set[str]] = {part: set() for part in LEVEL}
    for path in SOURCES:
        known[part_of(path)] |= {name.split(".")[1] for name in imports(path)} - {part_of(path)}
    for part, others in known.items():
        for other in others:
            assert LEVEL[other] < LEVEL[part], f"{part} imports {other}, a step down"
        line = f"{part:12s} {' '.join(sorted(others, key=lambda name: (LEVEL[name], name)))}".rstrip()
        assert f"\n{line}\n" in page, f"write into the page of rooms: {line}"


def test_no_import_cycle():
    """Between files, imports inside functions included; a package's ``__init__`` stands for what it imports."""
    graph = {}
    for path in SOURCES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        graph[name] = imports(path) - {name}
    done: set[str] = set()
    while left := [name for name in graph if name not in done]:
        free = [name for name in left if graph[name] & set(graph) <= done | _parts_around(name)]
        assert free, f"a cycle among {left}"
        done |= set(free)


def _parts_around(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def test_a_room_says_what_it_is_for():
    for path in SOURCES:
        if path.name == "__init__.py":
            assert len(ast.get_docstring(sources.tree(path)) or "") > 40, f"{place(path)} does not say what it is for"


def test_shapes_in_annotations_are_checked_while_tests_run():
    with pytest.raises(TypeCheckError, match="right"):
        solve_lower(jnp.eye(3), jnp.ones(2))
    is_strict = lambda name: any(f"{name}.".startswith(f"{module}.") for module in strict_modules())  # noqa: E731
    assert all(is_module(name) for name in strict_modules())
    found = 0
    for path in SOURCES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in sources.tree(path).body if is_strict(name) else []:
            if isinstance(node, ast.FunctionDef) and re.search(r"Float\[|Int\[|Bool\[", ast.unparse(node.args)):
                function = getattr(importlib.import_module(name), node.name)
                assert hasattr(function, "__wrapped__"), f"{name}.{node.name} is not checked"
                found += 1
    assert found > 20


def test_no_catch_all_and_no_unfinished_code():
    for path in SOURCES:
        for word in ("TODO", "FIXME", "NotImplementedError", "pragma: no cover"):
            assert word not in sources.text(path), f"{place(path)} holds {word}"
        for node in sources.nodes(path):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{place(path)}:{node.lineno} catches everything"


# Names of ours, or hooks that a base class documents, which NumPyro's own files happen to use too.
SHARED_NAMES = {"_predictive", "_normal", "_inverse", "_asdict", "_fields", "_replace"}


def test_private_names_of_numpyro_and_jax_stand_in_one_file():
    """``programs/private.py``, whose tests say what each is expected to do; elsewhere nobody would see it change."""
    theirs = "\n".join(path.read_text() for path in Path(numpyro.__file__).parent.rglob("*.py"))
    private = {f"_{name}" for name in re.findall(r"(?:\.|def |class )_([a-zA-Z]\w*)", theirs)} - SHARED_NAMES
    for path in SOURCES:
        for node in sources.nodes(path) if place(path) != "programs/private.py" else ():
            names = [getattr(node, "attr", "")]
            if isinstance(node, ast.ClassDef):
                names = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
            elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("jax", "numpyro"):
                names = [alias.name for alias in node.names] + node.module.split(".")
                private |= {name for name in names if name.startswith("_")}
            assert not private & set(names), f"{place(path)}:{node.lineno} names {private & set(names)}"


def test_import_makes_no_array_and_sets_no_config():
    """And brings in little: 0.2 s on top of NumPyro and optax, where ArviZ and Matplotlib take seconds."""
    code = (  # with a version whose scheduler must be chosen before JAX starts
        "import os, sys, jax, jaxlib, numpyro.contrib.einstein, optax\n"
        "before, there, jaxlib.__version__ = dict(jax.config.values), set(sys.modules), '0.10.2'\n"
        "import numpyro_gp\n"
        f"assert os.environ['XLA_FLAGS'].endswith(' {FLAG}=false'), 'a scheduler that can stop'\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - there}\n"
        "assert not new & {'arviz', 'matplotlib', 'pandas', 'scipy', 'xarray', 'tqdm'}, new\n"
        "assert len(jax.live_arrays()) == 0, jax.live_arrays()\n"
        "assert dict(jax.config.values) == before\n"
    )
    known = dict(os.environ, XLA_FLAGS="--xla_cpu_multi_thread_eigen=true")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120, env=known
    )
    assert done.returncode == 0, done.stderr


def test_tests_run_by_a_scheduler_that_does_not_stop():
    """jaxlib 0.10.* and 0.11.0 can deadlock on CPUs with few cores: the guide, examples/guide/troubleshooting.md."""
    assert not can_stop(version("jaxlib")) or f"{FLAG}=false" in os.environ["XLA_FLAGS"]


def test_readme_links_point_at_files_and_ci_runs_its_test_command():
    """All but benchmarks: the two stages are the two halves of one condition."""
    readme, run = ((ROOT / name).read_text() for name in ("README.md", ".ci/run"))
    for target in re.findall(r"\]\(([^)#]+)\)", readme):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), f"README links to {target}, which is not there"
    command = next(line for line in readme.splitlines() if "pytest" in line and "pip install" in line)
    assert command.strip() in run
    (first,) = re.findall(r"-m '(.*?)'", (ROOT / "pyproject.toml").read_text().split("addopts")[1].split("\n")[0])
    (second,) = re.findall(r"pytest -q -n auto -m \"(.*?)\"", run)
    assert first == f"not (benchmark or {second})"
    assert f'-m "{second}"' in readme
