"""The table of deliberate faults is whole: each text is in its file once, and the tests that should see it are there."""

from tests.mutations import FAULTS, ROOT, place


def test_each_text_stands_once_and_changes_and_its_tests_are_there():
    for fault in FAULTS:
        assert place(fault).read_text().count(fault.old) == 1, fault
        assert fault.old != fault.new, fault
        for name in fault.tests.split():
            file, *test = name.split("::")
            text = (ROOT / "tests" / file).read_text()
            assert not test or f"def {test[0]}(" in text, fault


def test_there_are_seventy_five_and_forty_at_random():
    assert len(FAULTS) >= 115
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)
    assert sum(" at random: " in fault.what for fault in FAULTS) >= 40
