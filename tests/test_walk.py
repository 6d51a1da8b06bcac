"""From a user's call to the mathematics: few stops, so that someone new can follow them."""

import importlib
import re
from pathlib import Path

import numpyro
import pytest

import numpyro_gp as ngp
from tests.walk import INSIDE, call_of, walked


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name != "gam")) for name in INSIDE])
def test_at_most_eight_stops_which_are_those_of_the_page_of_rooms_and_of_a_gam_few_functions_in_all(name):
    way = walked(call_of(name), INSIDE[name])
    assert name in way.stops[0] or name in way.stops[0].split()[-1]
    assert way.stops[-1].endswith(("step", "trace_at", "find_mode"))
    assert len(way.stops) <= 8
    assert name != "gam" or len(way.stops) + len(way.beside) <= 64, "\n".join(way.beside)
    page = (Path(ngp.__file__).parent / "README.md").read_text()
    assert printed(name, way) in page, f"write into the page: {printed(name, way)}"


def printed(name, way):
    """The stops of a way, as the page of rooms has them."""
    return "\n".join([f"{name}:", *(f"  {number}. {stop}" for number, stop in enumerate(way.stops, 1))])


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
