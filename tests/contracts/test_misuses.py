"""Every misuse of the table is refused, in the library's one form of message."""

import re

import pytest

from tests.contracts import misuses, misuses_after

TABLE = {
    f"{name.lower()} {number}": row
    for table in (misuses, misuses_after)
    for name, rows in vars(table).items()
    if isinstance(rows, list)
    for number, row in enumerate(rows)
}


@pytest.mark.parametrize("row", TABLE)
def test_every_misuse_is_told_what_is_needed_what_came_and_what_to_do(row):
    """``X must be ..., but got .... Cure.``: a bare error of JAX or NumPyro, or a number, fails."""
    call, message = TABLE[row]
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call()
    text = str(caught.value)
    assert re.fullmatch(r"(?s).{1,80} must be .+, but got .+\. \S.+\.?", text), f"not of the one form: {text}"
    assert re.match(message, text), f"not the words of the table: {text}"


def test_the_table_is_long_enough():
    assert len(TABLE) >= 200
