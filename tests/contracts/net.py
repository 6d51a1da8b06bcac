"""Relations that must hold on every model composed at random by a seed (`compositions.py`), two on each.

``python -m tests.contracts.net --seeds 0:500 --out net.txt`` checks the models of 500 seeds and writes a line for
each; those that have a line already are left out, so that it may be stopped and started.
"""

import argparse
import gc
import subprocess
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from random import Random

import jax

import tests.conftest  # noqa: F401  (settings of every test, for a run from the command line too)
from tests.contracts.composed_answers import NET
from tests.contracts.composed_case import Case
from tests.contracts.compositions import Composition, composition

EACH = 2


# Of those that compare with other numbers than the library's own one is checked wherever it can be.
STRONG = (
    "the_bound_is_dense",
    "the_density_of_points_is_dense",
    "predictions_are_dense",
    "inducing_inputs_at_all_rows_are_exact",
    "members_equal_a_loop",
)


def chosen(c: Composition, count: int = EACH) -> list[str]:
    """The relations that are checked on the model of a seed."""
    random = Random(c.seed + 10**6)
    able = [name for name, one in NET.items() if one.applies(c) and random.random() < one.share]
    first = random.sample([name for name in able if name in STRONG] or able, 1)
    return first + random.sample([name for name in able if name not in first], min(count, len(able)) - 1)


def check(seed: int, names: list[str] | None = None) -> list[str]:
    """Assert relations on the model of a seed, those that it chooses by default."""
    c = composition(seed)
    return check_relations(c, chosen(c) if names is None else names)


def check_relations(c: Composition, names: list[str]) -> list[str]:
    """Assert relations on a model; a failure says how to run it again, and what it is made of."""
    case = Case(c)
    for name in names:
        try:
            NET[name].check(case)
        except Exception as error:
            error.add_note(f"NUMPYRO_GP_NET_SEED={c.seed} pytest -m '' tests/contracts/test_net.py: {name} of {c}")
            raise
    return names


def seed_of_commit() -> int:
    """A number of the commit, or of the day where there is no git."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return int(found.stdout[:7], 16) if found.returncode == 0 else date.today().toordinal() * 1000


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Seeds that have a line, and the rest of it."""
    for line in path.read_text().splitlines() if path.exists() else []:
        seed, _, rest = line.partition(" ")
        yield int(seed), rest


def main() -> None:
    """Check many seeds, one line each: seed, processor seconds, ok or what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first:end")
    parser.add_argument("--out", type=Path, default=Path("net.txt"))
    parser.add_argument("--relation", action="append", help="these alone, where they apply")
    asked = parser.parse_args()
    first, end = map(int, asked.seeds.split(":"))
    done = {seed for seed, _ in lines_of(asked.out)}
    for seed in range(first, end):
        if seed in done:
            continue
        begun = time.process_time()
        try:
            names = asked.relation and [n for n in asked.relation if NET[n].applies(composition(seed))]
            said = "ok " + ", ".join(check(seed, names))
        except Exception as error:
            said = f"FAILED {type(error).__name__} {str(error)[:600]} {' '.join(error.__notes__)}".replace("\n", " ")
        if seed % 10 == 9:  # programs and what they hold
            jax.clear_caches()
            gc.collect()
        with asked.out.open("a") as file:
            file.write(f"{seed} {time.process_time() - begun:.1f} {said}\n")


if __name__ == "__main__":
    main()
