"""Seconds of a training step over those of the operations that it cannot do without, its floor.

    python -m examples.studies.speed.step_floor  # four minutes of one core, with nothing else beside it

The floor counts, each timed by itself in turn with steps that are compiled as those of a fit: the factor of the Gram
matrix, both kernel matrices with their gradients, Adam on the matrix of a belief, and products. With triangles in four
bands these are 2.875 of M x M by M x B and 2.75 of M x M by M x M, the inverse of the factor among them, at the speed
of whole products.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from examples.tools.clock import one_thread
from examples.tools.tables import markdown, read, save

CASES = [(size, rows, dtype) for dtype in ("float32", "float64") for size in (512, 1024) for rows in (1024, 256)]
WEIGHTS = {"long": 2.875, "square": 2.75, "factor": 1.0, "cross": 1.0, "gram": 1.0, "adam": 1.0}
COLUMNS = 8


def operations(size, rows, dtype):
    """What a step is made of, by name: a function and its arguments."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    import numpyro_gp as ngp
    from numpyro_gp import linalg

    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)  # noqa: E731
    Z, X, square, other = normal(size, COLUMNS), normal(rows, COLUMNS), normal(size, size), normal(size, size)
    parameters = Z, jnp.ones((), dtype), jnp.full(COLUMNS, COLUMNS**0.5, dtype)
    kernel = lambda Z, variance, scale, *X: ngp.kernels.RBF(variance, scale).matrix(Z, *X)  # noqa: E731

    def with_gradient(cotangent, *own):
        value, back = jax.vjp(lambda *given: kernel(*given, *own), *parameters)
        return value, back(cotangent)

    adam, factor = optax.adam(0.01), jnp.eye(size, dtype=dtype)

    def updated(slope, state, factor):
        change, state = adam.update(slope, state, factor)
        return optax.apply_updates(factor, change), state

    raised = kernel(*parameters) + (1e-6 if dtype == "float64" else 1e-4) * factor
    return {
        "long": (linalg.matmul, (square, kernel(*parameters, X))),
        "square": (linalg.matmul, (square, other)),
        "factor": (linalg.factor_of, (raised,)),
        "cross": (with_gradient, (kernel(*parameters, X), X)),
        "gram": (with_gradient, (square,)),
        "adam": (updated, (square, adam.init(factor), factor)),
    }


def step_of(size, rows, dtype, count):
    """``count`` steps of Adam on minibatches of 36 000 rows, compiled, with their first arguments."""
    import jax
    import jax.numpy as jnp

    from examples.studies.peers.libraries.jobs import Job
    from examples.studies.peers.libraries.ours import fit_of
    from examples.studies.peers.libraries.problem import problem_of

    job = Job("adam", size, dtype, batch=rows)
    problem = problem_of(job, "")
    svi, keywords = fit_of(problem, job, "")
    X, y = jnp.asarray(problem.X), jnp.asarray(problem.y)
    state = svi.init(jax.random.key(0), X, y, batch=rows, **keywords)

    def steps(state, X, y):
        body = lambda _, state: svi.update(state, X, y, batch=rows, **keywords)[0]  # noqa: E731
        return jax.lax.fori_loop(0, count, body, state)

    return jax.jit(steps), (state, X, y)


def seen(size, rows, dtype, rounds):
    """Milliseconds of each operation and of a step: medians, each asked in turn."""
    import jax
    import numpy as np

    from numpyro_gp.programs.scheduler import compiler_options

    jax.config.update("jax_enable_x64", dtype == "float64")
    count = 10 if size < 1024 else 4
    parts = {name: (jax.jit(function), given) for name, (function, given) in operations(size, rows, dtype).items()}
    parts["step"] = step_of(size, rows, dtype, count)
    options = compiler_options(largest=size * max(size, rows) * np.dtype(dtype).itemsize)
    programs = {name: (program.lower(*given).compile(options), given) for name, (program, given) in parts.items()}
    for program, given in programs.values():
        jax.block_until_ready(program(*given))
    times = {name: [] for name in programs}
    for _ in range(rounds):
        for name, (program, given) in programs.items():
            for _ in range(1 if name == "step" else 4):
                start = time.perf_counter()
                jax.block_until_ready(program(*given))
                times[name].append((time.perf_counter() - start) * 1e3 / (count if name == "step" else 1))
    print(json.dumps({name: float(np.median(own)) for name, own in times.items()}))


def floor(row):
    """Milliseconds of what a step cannot do without."""
    return sum(weight * float(row[name]) for name, weight in WEIGHTS.items())


def table(rows):
    """Markdown: a step, its floor, and their ratio."""
    head = ["inducing inputs", "rows", "numbers", "step, ms", "floor, ms", "ratio"]
    lines = []
    for row in rows:
        step, least = float(row["step"]), floor(row)
        known = [f"{row[name]}" for name in ("inducing", "batch", "dtype")]
        lines.append([*known, f"{step:.1f}", f"{least:.1f}", f"{step / least:.2f}"])
    return markdown(head, lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--one", help="this process alone, for the program itself")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.one:
        one_thread()
        return seen(*json.loads(options.one), options.rounds)
    cases, rounds = ([(16, 64, "float32")], 1) if options.smoke else (CASES, options.rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "step_floor.csv"
    rows = read(path)
    for size, batch, dtype in cases[len(rows) :]:
        from examples.tools.run_queue import version

        command = [sys.executable, "-m", "examples.studies.speed.step_floor", "--rounds", str(rounds)]
        command += ["--one", json.dumps([size, batch, dtype])]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        known = {"inducing": size, "batch": batch, "dtype": dtype}
        rows.append(known | {name: f"{own:.4f}" for name, own in found.items()} | {"version": version()})
        save(path, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
