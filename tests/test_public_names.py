"""What users import: no public name is lost, and ``dir()`` shows public names alone."""

import importlib
import re
import types
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", ["", *MODULES])
def test_dir_shows_public_names_alone(name):
    module = getattr(ngp, name) if name else ngp
    assert dir(module) == sorted(module.__all__)
    assert importlib.import_module(module.__name__) is module
    assert all(hasattr(module, one) for one in dir(module))


@pytest.mark.parametrize("name", MODULES)
def test_modules_can_be_imported_by_the_name_that_users_see(name):
    """In a process of its own nothing else has imported them: ``from numpyro_gp.sobol import plug_in``."""
    module = importlib.import_module(f"numpyro_gp.{name}")
    assert module is getattr(ngp, name)
    names = {}
    exec(f"from numpyro_gp.{name} import *", names)
    assert set(module.__all__) <= set(names)


def resolve(name):
    """What a dotted name below the package, or NumPyro's, stands for."""
    root, path = (importlib.import_module("numpyro"), name[8:]) if name.startswith("numpyro.") else (ngp, name)
    value = root
    for part in path.split("."):
        if isinstance(value, types.ModuleType) and not hasattr(value, part):
            value = importlib.import_module(f"{value.__name__}.{part}")
        else:
            value = getattr(value, part)
    return value


def test_every_call_of_the_walk_exists():
    """The package's docstring walks through four steps, ``a -> b -> c``."""
    walks = re.findall(r"(?:^    .*\n)+", ngp.__doc__, re.M)
    assert len(walks) == 4
    for walk in walks:
        names = walk.replace("->", " ").split()
        assert len(names) >= 8
        for name in names:
            assert callable(resolve(name)), name
