"""From a user's call to the mathematics: few stops, so that someone new can follow them."""

import importlib
import re

import numpyro
import pytest

import numpyro_gp as ngp
from tests.walk import INSIDE, calls, walked


@pytest.mark.long
@pytest.mark.parametrize("name", INSIDE)
def test_at_most_eight_stops(name):
    way = walked(calls()[name], INSIDE[name])
    assert way.stops[0].split()[-1].endswith(name)
    assert way.stops[-1].endswith(("step", "trace_at"))
    assert len(way.stops) <= 8


def found(name):
    """What a dotted name of the package's docstring stands for."""
    owner, *parts = [numpyro, *name.split(".")[1:]] if name.startswith("numpyro.") else [ngp, *name.split(".")]
    for part in parts:
        if not hasattr(owner, part):
            importlib.import_module(f"{owner.__name__}.{part}")
        owner = getattr(owner, part)
    return owner


def test_what_the_package_says_of_itself_exists():
    names = re.findall(r"(?:->|    )\s*([a-zA-Z_][\w.]*)(?= ->|\n)", ngp.__doc__.split("What calls what")[1])
    assert len(names) > 40
    assert all(callable(found(name)) for name in names)
