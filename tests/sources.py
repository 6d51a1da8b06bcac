"""The files of the package, each read and parsed once in a process, for tests of what they say."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "numpyro_gp"
FILES = sorted(PACKAGE.rglob("*.py"))


def place(path: Path) -> str:
    """A file as it is named inside of the package."""
    return path.relative_to(PACKAGE).as_posix()


@functools.cache
def text(path: Path) -> str:
    return path.read_text()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the tree of a file."""
    return tuple(ast.walk(tree(path)))
