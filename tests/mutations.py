"""Deliberate faults, some chosen and some drawn at random, and whether the tests see them:

    python -m tests.mutations                 all of them
    python -m tests.mutations kl "half"       those whose description holds one of these words
    python -m tests.mutations --quarter       a quarter, the next one for the next commit: what .ci/run does

Each fault of ``tests/faults.txt`` is put into a copy of the package in a temporary folder, and the tests that should
catch it run on the copy. A fault that is caught makes at least one of them fail. ``tests/test_mutations.py`` sees that
every text still stands in its file once, so that the list does not rot. The last line has the counts; a fault that
survives is a failure, unless the table has the reason why no test need see it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).with_name("faults.txt")


class Fault(NamedTuple):
    """What is wrong with it, the text that is replaced in a file of the package, and the tests that should fail.

    Tests are files, or single tests of either stage where a file would take long.
    """

    what: str
    file: str
    old: str
    new: str
    tests: str
    alive: str = ""  # why no test need see it; not an excuse: a test that sees it takes the reason away


def faults() -> list[Fault]:
    """What ``faults.txt`` holds: ``@ what | file | tests``, lines ``-`` of the text, ``+`` of the fault, ``=`` a reason."""
    found = []
    for block in re.split(r"^@ ", TABLE.read_text(), flags=re.M)[1:]:
        head, *lines = block.splitlines()
        what, file, tests = head.split(" | ")
        old, new, alive = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+=")
        found.append(Fault(f"{what}: {new}" if what.endswith(" at random") else what, file, old, new, tests, alive))
    return found


FAULTS = faults()

# A fault that makes a program loop for ever is seen by whoever waits for it.
SECONDS = 600


def place(fault: Fault) -> Path:
    return ROOT / "numpyro_gp" / fault.file


def is_caught(fault: Fault) -> bool:
    """Whether the tests fail on a copy of the repository that holds the fault."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("numpyro_gp", "tests", "models", "examples"):
            shutil.copytree(ROOT / part, folder / part)  # with the bytecode, which fits all files but the changed one
        for part in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / part, folder / part)
        changed = folder / "numpyro_gp" / fault.file
        changed.write_text(changed.read_text().replace(fault.old, fault.new))
        cache = os.environ.get("NUMPYRO_GP_TEST_CACHE", str(ROOT / ".jax_cache"))
        settings = {**os.environ, "PYTHONPATH": ".", "NUMPYRO_GP_TEST_CACHE": cache, "NUMPYRO_GP_TEST_COUNTS": ""}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += [f"tests/{name}" for name in fault.tests.split()]
        # Single tests run in whatever stage they are, and so do files whose tests of the first one let the fault live
        # (0) or are none (5): where a test runs is a matter of its seconds, and no fault is missed by it.
        stages = [["-m", ""]] if "::" in fault.tests else [[], ["-m", ""]]
        for stage in stages:
            try:
                done = subprocess.run(
                    [*command, *stage], capture_output=True, text=True, cwd=folder, env=settings, timeout=SECONDS
                )
            except subprocess.TimeoutExpired:
                return True
            if done.returncode not in (0, 5):
                break
    is_import_stopped = done.returncode == 2 and Path(fault.file).name in done.stdout  # and not for want of a file
    if done.returncode not in (0, 1) and not is_import_stopped:
        raise RuntimeError(f"{fault.what}: the tests did not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def quarter() -> list[Fault]:
    """Every fourth fault; commits that follow each other take one quarter after the other."""
    command = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    count = int(done.stdout) if done.returncode == 0 else int(time.time() // 86400)
    return FAULTS[count % 4 :: 4]


def main() -> int:
    words = sys.argv[1:]
    chosen = [fault for fault in FAULTS if not words or any(word in fault.what for word in words)]
    if words == ["--quarter"]:
        chosen = quarter()
    alive = unexplained = 0
    began = time.time()
    with ThreadPoolExecutor(int(os.environ.get("NUMPYRO_GP_MUTATIONS_AT_ONCE", os.cpu_count() or 1))) as pool:
        for fault, caught in zip(chosen, pool.map(is_caught, chosen)):
            alive += not caught
            unexplained += not caught and not fault.alive
            said = "caught" if caught else f"alive: {fault.alive}" if fault.alive else "MISSED"
            print(f"{said}  {fault.what}  ({fault.file}; {fault.tests})", flush=True)
    seconds = time.time() - began
    print(f"mutations: {len(chosen)} run, {alive} survived, {unexplained} of them without a reason, {seconds:.0f} s")
    return unexplained > 0


if __name__ == "__main__":
    sys.exit(main())
