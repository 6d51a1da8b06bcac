"""Every misuse of the table is refused, in the library's one form of message, which is the only one there is."""

import ast
import re

import pytest

from tests.contracts import misuses, misuses_after
from tests.sources import FILES, nodes, place

TABLE = {
    f"{name.lower()} {number}": row
    for table in (misuses, misuses_after)
    for name, rows in vars(table).items()
    if isinstance(rows, list)
    for number, row in enumerate(rows)
}
# What no caller did wrong: a run that stops, and what Python's protocols ask for.
NO_MISUSES = {"non_finite", "FitInterrupted", "IndexError", "AttributeError"}
# Caught where they are raised, and by the search for a mode.
NO_MISUSES |= {
    "UnfitStart",
    "_Mixed in rows/row_readers.py",
    "np.linalg.LinAlgError in gam/search/bound_formulas.py",
    "np.linalg.LinAlgError in gam/model/features.py",
    "np.linalg.LinAlgError in gam/search/series_evidence.py",
}
# What the user's own source of batches raised, a step later.
NO_MISUSES |= {"self.waiting in rows/feeds.py"}
# NumPyro's own words, as it says them where values are known.
NO_MISUSES |= {"ValueError in programs/set_up.py"}
# What a mapping raises, for `in` and `get`.
NO_MISUSES |= {
    "_Mixed in rows/row_readers.py",  # found by its caller
    "ValueError in posterior/storage.py",  # `read_whole` makes a refusal of it
    "KeyError in kernels/members.py",
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


def test_nothing_is_refused_without_argument_requirement_fact_and_cure():
    """Every refusal is a call of `checks.fail` with all four, none of them empty."""
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.Raise) and node.exc is not None and place(path) != "checks.py":
                name = ast.unparse(node.exc).partition("(")[0]
                assert {name, f"{name} in {place(path)}"} & NO_MISUSES, f"{place(path)}: {ast.unparse(node)}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "fail":
                given = [*node.args, *(word.value for word in node.keywords if word.arg != "error")]
                empty = [part for part in given if isinstance(part, ast.Constant) and not str(part.value).strip()]
                assert len(given) >= 4, f"{place(path)}:{node.lineno}: {ast.unparse(node)}"
                assert not empty, f"{place(path)}:{node.lineno}: {ast.unparse(node)}"
