"""What users import: no public name is lost, and ``dir()`` shows public names alone."""

import importlib
import re
import types
from pathlib import Path

import numpyro

import numpyro_gp as ngp

NAMES = (Path(__file__).parent / "public_names.txt").read_text().split()
MODULES = sorted(name for name in ngp.__all__ if isinstance(getattr(ngp, name), types.ModuleType))


def test_no_public_name_is_lost():
    """The list only grows: a name that goes is a change that breaks programs."""
    assert sorted(NAMES) == NAMES
    assert len(NAMES) == len(set(NAMES)) >= 194
    for name in NAMES:
        value = ngp
        for part in name.split("."):
            assert part in value.__all__, f"{name} is not public any more"
            value = getattr(value, part)


def test_dir_shows_public_names_alone_and_modules_are_imported_by_the_name_that_users_see():
    """``from numpyro_gp.sobol import plug_in``, wherever the file of that module is."""
    for name in ("", *MODULES):
        module = getattr(ngp, name) if name else ngp
        assert dir(module) == sorted(module.__all__), name
        assert importlib.import_module(module.__name__) is module, name
        assert importlib.import_module(f"numpyro_gp.{name}".removesuffix(".")) is module, name
        names: dict = {}
        exec(f"from {module.__name__} import *", names)
        assert set(module.__all__) <= set(names), name


def test_what_the_package_says_of_itself_exists():
    names = re.findall(r"(?:->|    )\s*([a-zA-Z_][\w.]*)(?= ->|\n)", ngp.__doc__.split("What calls what")[1])
    assert len(names) > 40
    for name in names:
        owner, *parts = [numpyro, *name.split(".")[1:]] if name.startswith("numpyro.") else [ngp, *name.split(".")]
        for part in parts:
            if not hasattr(owner, part):
                importlib.import_module(f"{owner.__name__}.{part}")
            owner = getattr(owner, part)
        assert callable(owner), name
