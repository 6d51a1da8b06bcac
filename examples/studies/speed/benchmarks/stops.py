"""How often a program stops for ever under the two schedulers of jaxlib 0.10.

    python -m examples.studies.speed.benchmarks.stops plain 20 --out examples/studies/speed/stops.csv
    python -m examples.studies.speed.benchmarks.stops imported 200 --out examples/studies/speed/stops.csv

The smallest program found: four products, each followed by a batch of five triangular solves, 3000 times. A solve's
batch is spread over the threads that wait for it, and two such waits at a time are for ever on two cores. A process
makes up to twenty runs, and the first that stops is its last: it used no processor for ten seconds. ``imported`` is with
numpyro_gp, which chooses the scheduler (programs/scheduler.py), ``plain`` is JAX alone.
"""

import argparse
import csv
import io
import os
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path

STEPS, CHAINS, BATCH, ROWS, COLUMNS = 3000, 4, 5, 40, 200
STOPPED, IDLE, LIMIT, RUNS = 3, 20, 1800, 20


def program(runs: int) -> None:
    """Run it in this process, and say so after each run."""
    import jax
    import jax.numpy as jnp

    def link(x):
        lower = jnp.tril(jnp.tanh(x @ x.T)) + 40 * jnp.eye(ROWS)
        right = jnp.stack([x * (i + 1) for i in range(BATCH)])
        lower = jnp.broadcast_to(lower, (BATCH, ROWS, ROWS))
        return jnp.tanh(jax.lax.linalg.triangular_solve(lower, right, left_side=True, lower=True).mean(0))

    def step(x, _):
        return jnp.stack([link(x[chain]) for chain in range(CHAINS)]), None

    x = jax.random.normal(jax.random.key(0), (CHAINS, ROWS, COLUMNS))
    run = jax.jit(lambda x: jax.lax.scan(step, x, None, length=STEPS)[0]).lower(x).compile()
    threading.Thread(target=end_when_idle, daemon=True).start()
    for _ in range(runs):
        jax.block_until_ready(run(x))
        print("ended", flush=True)
    os._exit(0)  # without waiting for the thread that watches


def end_when_idle() -> None:
    """End the process with STOPPED once it used no processor in IDLE looks: who may look could have worked instead."""
    used, looks = time.process_time(), 0
    while looks < IDLE:
        time.sleep(0.5)
        looks += 1
        if time.process_time() - used > 0.01:
            used, looks = time.process_time(), 0
    os._exit(STOPPED)


def one_process(how: str, runs: int) -> tuple[int, int]:
    """Runs of a new process, and how many stopped. Threads of OpenBLAS play no part, and are slow on a busy machine."""
    command = [sys.executable, "-m", "examples.studies.speed.benchmarks.stops", how, str(runs), "--child"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("XLA_FLAGS", None)
    child = subprocess.run(command, env=environment, timeout=LIMIT, stdout=subprocess.PIPE, text=True)
    if child.returncode not in (0, STOPPED):
        raise RuntimeError(f"A process must end or stop, but ended with exit status {child.returncode}.")
    stopped = int(child.returncode == STOPPED)
    return child.stdout.count("ended") + stopped, stopped


def main() -> None:
    """All runs, one after the other, and their count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("how", choices=["imported", "plain"])
    parser.add_argument("runs", type=int)
    parser.add_argument("--out", type=Path, help="a CSV file, whose row of this jaxlib and HOW is written anew")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        if asked.how == "imported":
            import numpyro_gp  # noqa: F401
        return program(asked.runs)
    row = {"jaxlib": version("jaxlib"), "cores": os.cpu_count(), "how": asked.how, "runs": 0, "stopped": 0}
    while row["runs"] < asked.runs:
        runs, stopped = one_process(asked.how, min(RUNS, asked.runs - row["runs"]))
        row["runs"] += runs
        row["stopped"] += stopped
        print(*row.values(), flush=True)
        if asked.out:
            write(asked.out, row)


def write(path: Path, row: dict) -> None:
    """The count so far in place of an earlier one: what was run counts when the rest is not."""
    with path.open() if path.exists() else io.StringIO() as file:
        others = [one for one in csv.DictReader(file) if (one["jaxlib"], one["how"]) != (row["jaxlib"], row["how"])]
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, row, lineterminator="\n")
        table.writeheader()
        table.writerows(sorted([*others, row], key=lambda one: (one["jaxlib"], one["how"])))


if __name__ == "__main__":
    main()
