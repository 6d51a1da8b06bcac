"""Forty misuses with the messages they get, one table to be read for its language: ``python -m tests.contracts.printed``.

With ``all`` every misuse of the tables, in place of forty spread over them.
"""

import re
import sys
import warnings

import jax

from tests.contracts import misuses, misuses_after

TABLES = {
    name: rows for table in (misuses, misuses_after) for name, rows in vars(table).items() if isinstance(rows, list)
}
FORTY = {
    "KERNELS": (0, 3, 9, 12, 13, 21, 29, 32),
    "PRIMITIVES": (2, 3, 13, 23, 24, 25, 26, 30, 33, 34),
    "LIKELIHOODS": (4, 8, 14, 15),
    "BELIEFS": (2, 19, 20),
    "GUIDES": (15, 16, 22, 26),
    "STARTS": (1, 16),
    "RUNS": (0, 3, 6, 11, -1),
    "ANSWERS": (4, 20, 38),
    "CRITICISM": (14,),
}


def told(call):
    """The message that a call gets."""
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        return str(error)
    return "(nothing)"


def printed(everything=False):
    """Lines of a Markdown table: argument, what was required, what came, and the cure."""
    yield "| | argument | must be | but got | cure |"
    yield "|---|---|---|---|---|"
    chosen = {name: range(len(rows)) for name, rows in TABLES.items()} if everything else FORTY
    calls = [TABLES[name][at][0] for name, places in chosen.items() for at in places]
    for number, call in enumerate(calls, start=1):
        text = told(call).replace("\n", " ").replace("|", "\\|")
        parts = re.fullmatch(r"(.{1,80}?) must be (.+), but got (.+?)\. ([A-Zh].+)", text)
        yield f"| {number} | " + " | ".join(parts.groups() if parts else (text, "", "", "")) + " |"


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    print("\n".join(printed("all" in sys.argv[1:])))
