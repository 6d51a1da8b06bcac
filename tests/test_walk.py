"""From a user's call to the mathematics: few stops, so that someone new can follow them."""

import pytest

from tests.walk import INSIDE, calls, walked


@pytest.mark.long
@pytest.mark.parametrize("name", INSIDE)
def test_at_most_eight_stops(name):
    way = walked(calls()[name], INSIDE[name])
    assert way.stops[0].split()[-1].endswith(name)
    assert way.stops[-1].endswith(("step", "trace_at"))
    assert len(way.stops) <= 8
