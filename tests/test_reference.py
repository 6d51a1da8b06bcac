"""The API reference names every public name, on one page each; it is built by sphinx in ``.ci/run``."""

import functools
import inspect
import re
import types
from pathlib import Path

import numpyro_gp as ngp

GUIDE = Path(__file__).parent.parent / "examples" / "guide"
PAGES = sorted(GUIDE.glob("api/*.rst"))
NAMES = (Path(__file__).parent / "public_names.txt").read_text().split()
PAGE = re.compile(r"^\.\. api:: (numpyro_gp[\w.]*)\n\n((?:   \w+(?:: .*)?\n)+)", re.M)


def listed(page):
    """Names that a page explains, as users write them behind ``ngp.``."""
    found = []
    for module, names in PAGE.findall(page.read_text()):
        inner = module.removeprefix("numpyro_gp").removeprefix(".")
        found += [inner] * bool(inner) + [
            f"{inner}.{name}".removeprefix(".") for name in re.findall(r"^   (\w+)", names, re.M)
        ]
    return found


def test_every_public_name_is_on_one_page():
    found = [name for page in PAGES for name in listed(page)]
    assert sorted(found) == NAMES


def test_every_page_is_in_the_table_of_contents():
    held = re.findall(r"^   (\w+)$", (GUIDE / "api" / "index.rst").read_text(), re.M)
    assert sorted([*held, "index"]) == [page.stem for page in PAGES]
    assert "api/index" in (GUIDE / "index.md").read_text()


VALUES = {name: functools.reduce(getattr, name.split("."), ngp) for name in NAMES}


def test_summaries_can_stand_in_a_table():
    """A sentence on the first line, that is not cut off at an abbreviation or inside a formula."""
    for name, value in VALUES.items():
        if callable(value) or isinstance(value, types.ModuleType):
            first = value.__doc__.split("\n\n")[0].strip()
            assert "\n" not in first, name
            assert first.count("``") % 2 == 0, name
            assert re.search(r"[.:?]$", first), (name, first)
            assert not re.search(r"\b(eq|e\.g|i\.e|cf)\.", first), f"{name} is cut off after an abbreviation: {first}"
            assert not re.search(r"mathematics\.md section \d+\. ", first), (name, first)


def test_docstrings_have_arguments_results_and_an_example():
    """Of a class, the arguments that make it or the attributes that it has; base classes and protocols are not made."""
    for name, value in VALUES.items():
        if callable(value):
            text = inspect.getdoc(value)
            wanted = ["Examples\n---"] + ["Returns\n---"] * (not inspect.isclass(value))
            is_made = not inspect.isabstract(value) and value is not ngp.beliefs.Process
            if is_made and inspect.signature(value).parameters and "Attributes\n---" not in text:
                wanted.append("Parameters\n---")
            lacking = [part.split("\n")[0] for part in wanted if part not in text]
            assert not lacking, f"{name} lacks {lacking}"
