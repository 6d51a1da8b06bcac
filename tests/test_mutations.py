"""The list of deliberate faults is whole: each text is in its file once, and the tests that should see it are there."""

import pytest

from tests.mutations import FAULTS, ROOT, place
from tests.random_faults import ALIVE, RANDOM


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.what for fault in FAULTS])
def test_the_text_stands_once_and_changes(fault):
    assert place(fault).read_text().count(fault.old) == 1
    assert fault.old != fault.new
    for name in fault.tests.split():
        file, *test = name.split("::")
        assert not test or f"def {test[0]}(" in (ROOT / "tests" / file).read_text()
        assert (ROOT / "tests" / file).exists()


def test_there_are_seventy_five_and_forty_at_random():
    assert len(FAULTS) >= 115
    assert len(RANDOM) >= 40
    assert set(ALIVE) <= {fault.new for fault in FAULTS}
