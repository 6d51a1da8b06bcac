"""Small fits that compile with less effort: seconds of compiling and of steps both ways, and steps until they are even.

    python -m examples.studies.speed.small_fits  # three minutes of one core

A compiler that optimises less is done sooner, and its steps may take longer. Each model has a process of its own, and
one thread. Its loop of steps is compiled both ways in turn, of which the least counts, and blocks of steps follow in
turn, whose median does. Seconds are of the processor.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from examples.tools.clock import one_thread
from examples.tools.tables import markdown, read, save

COLUMNS = ("full_compile", "less_compile", "full_1000", "less_1000")
SEEN = 0.1  # a share of the seconds of a step by which two runs of one program may differ


class Case(NamedTuple):
    """A regression of ``rows``, with inducing inputs at some of them, or exact where there are none."""

    name: str
    rows: int
    columns: int = 1
    inducing: int = 0
    batch: int | None = None
    dtype: str = "float32"
    steps: int = 500  # of a block


CASES = (
    Case("README", 200, 1, 20),
    Case("README", 200, 1, 20, dtype="float64"),
    Case("8 columns", 200, 8, 20),
    Case("minibatches", 2000, 8, 32, 256, steps=200),
    Case("minibatches", 2000, 8, 32, 256, "float64", steps=200),
    Case("exact", 100, 1, steps=200),
    Case("exact", 100, 1, dtype="float64", steps=200),
    Case("larger", 36_000, 8, 64, 256, steps=100),
    Case("larger", 36_000, 8, 128, 1024, steps=30),
)


def step_of(case):
    """A step of training, as a function of its state, and the first state."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import optax
    from numpyro.infer import SVI, Trace_ELBO

    import numpyro_gp as ngp

    jax.config.update("jax_enable_x64", case.dtype == "float64")
    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.uniform(-3, 3, (case.rows, case.columns)), case.dtype)
    y = jnp.sin(2 * X[:, 0]) + jnp.asarray(0.1 * rng.normal(size=case.rows), case.dtype)

    def model(X, y=None):
        lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
        variance = numpyro.sample("variance", ngp.starting.variance_prior())
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
        kernel = ngp.kernels.RBF(variance, lengthscale)
        if not case.inducing:
            return ngp.gp_regression("y", kernel, X, noise**2, obs=y)
        f = ngp.gp("f", kernel, X[: case.inducing])
        with numpyro.plate("data", len(X), subsample_size=case.batch) as rows:
            return ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(noise), obs=y[rows])

    svi = SVI(model, ngp.AutoGP(model), optax.adam(0.01), Trace_ELBO())
    state = svi.init(jax.random.key(0), X, y)
    return svi.update, state, (X, y)


def seen(case, repeats, blocks):
    """Print seconds of compiling and of a thousand steps, with all effort and with less."""
    import jax

    from numpyro_gp.programs.scheduler import compiler_options

    update, start, data = step_of(case)

    def loop(state, length, *data):  # of as many steps as are asked, as in a fit
        return jax.lax.fori_loop(0, length, lambda _, own: update(own, *data)[0], state)

    traced = jax.jit(loop).trace(start, 1, *data)
    ways = {"full": compiler_options(), "less": compiler_options(1)}
    compiled, seconds, blocks_of = {}, {f"{way}_compile": [] for way in ways}, {f"{way}_1000": [] for way in ways}
    for _ in range(repeats):
        for way, options in ways.items():
            jax.clear_caches()  # or JAX would find the program of the first time
            lowered, clock = traced.lower(), time.process_time()
            compiled[way] = lowered.compile(options)
            seconds[f"{way}_compile"].append(time.process_time() - clock)
    for _ in range(blocks):
        for way, run in compiled.items():
            clock = time.process_time()
            jax.block_until_ready(run(start, case.steps, *data))
            blocks_of[f"{way}_1000"].append((time.process_time() - clock) * 1000 / case.steps)
    found = {name: min(own) for name, own in seconds.items()} | {
        name: np.median(own) for name, own in blocks_of.items()
    }
    print(json.dumps({name: float(found[name]) for name in COLUMNS}))


def even(row):
    """Steps after which both ways have taken as long; None where those compiled sooner are not seen to be slower."""
    slower = float(row["less_1000"]) - float(row["full_1000"])
    saved = float(row["full_compile"]) - float(row["less_compile"])
    return None if slower <= SEEN * float(row["full_1000"]) else max(0.0, 1000 * saved / slower)


def told(steps):
    """Two digits of a number of steps."""
    return "steps as fast" if steps is None else f"{float(f'{steps:.2g}'):.0f} steps"


def table(rows):
    """Markdown: seconds both ways, and steps until they are even."""
    head = ["rows of a step by inducing inputs", "compile, s", "less, s", "1000 steps, s", "less, s", "even after"]
    lines = []
    for row in rows:
        shape = f"{row['batch'] or row['rows']} by {int(row['inducing']) or row['rows']}"
        numbers = [f"{float(row[name]):.2f}" for name in COLUMNS]
        lines.append([f"{row['name']}, {shape}, {row['dtype']}", *numbers, told(even(row))])
    return markdown(head, lines)


def row_of(case, repeats, blocks):
    """The row of a model, from a process of its own."""
    command = [sys.executable, "-m", "examples.studies.speed.small_fits", "--one", json.dumps(case)]
    command += ["--repeats", str(repeats), "--blocks", str(blocks)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return case._asdict() | {name: f"{found[name]:.4f}" for name in COLUMNS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--one", help="this process alone, for the program itself")
    parser.add_argument("--repeats", type=int, default=2, help="of compiling")
    parser.add_argument("--blocks", type=int, default=7, help="of steps")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.one:
        one_thread()
        return seen(Case(*json.loads(options.one)), options.repeats, options.blocks)
    cases = (Case("README", 20, 1, 5, steps=2),) if options.smoke else CASES
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "small_fits.csv"
    rows = read(path)
    for case in cases[len(rows) :]:
        from examples.tools.run_queue import version

        repeats, blocks = (1, 1) if options.smoke else (options.repeats, options.blocks)
        rows.append(row_of(case, repeats, blocks) | {"version": version()})
        save(path, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
