"""The API reference names every public name, on one page each; it is built by sphinx in ``.ci/run``."""

import re
import types
from pathlib import Path

import pytest

import numpyro_gp as ngp

GUIDE = Path(__file__).parent.parent / "examples" / "guide"
PAGES = sorted(GUIDE.glob("api/*.rst"))
NAMES = (Path(__file__).parent / "public_names.txt").read_text().split()
PAGE = re.compile(r"^\.\. api:: (numpyro_gp[\w.]*)\n\n((?:   \w+\n)+)", re.M)


def listed(page):
    """Names that a page explains, as users write them behind ``ngp.``."""
    found = []
    for module, names in PAGE.findall(page.read_text()):
        inner = module.removeprefix("numpyro_gp").removeprefix(".")
        found += [inner] * bool(inner) + [f"{inner}.{name}".removeprefix(".") for name in names.split()]
    return found


def test_every_public_name_is_on_one_page():
    found = [name for page in PAGES for name in listed(page)]
    assert sorted(found) == NAMES


def test_every_page_is_in_the_table_of_contents():
    held = re.findall(r"^   (\w+)$", (GUIDE / "api" / "index.rst").read_text(), re.M)
    assert sorted([*held, "index"]) == [page.stem for page in PAGES]
    assert "api/index" in (GUIDE / "index.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_public_names_say_what_they_are_for(name):
    """A summary on the first line, which the tables of the reference show: a sentence, without formulas cut in two."""
    value = ngp
    for part in name.split("."):
        value = getattr(value, part)
    if callable(value) or isinstance(value, types.ModuleType):
        first = value.__doc__.split("\n\n")[0]
        assert first.count("``") % 2 == 0
        assert re.search(r"[.:]$", first), first
        assert not re.search(r"\b(eq|e\.g|i\.e|cf)\.", first), f"cut off after its abbreviation: {first}"
