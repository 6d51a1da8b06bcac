"""What follows a fit by a formula: processor seconds of summary, figure and quantiles, by family, in new processes.

    python -m examples.studies.speed.after_fit  # two minutes of one core

Each family has three processes of its own, of which the least counts: 1000 rows, two curves and a random effect, in
single precision, in one thread. Nothing is compiled before, and seconds of the figure leave out Matplotlib's import.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from examples.tools.tables import markdown, read, save

STAGES = ("fit", "summary", "figure", "quantiles")
SURFACE = "gaussian, a surface"
FAMILIES = ("gaussian", SURFACE, "student_t", "poisson", "negative_binomial", "bernoulli", "binomial", "gamma", "beta")
TRIALS = 7


def data(family, rows):
    """Two columns, eight groups, and a response of the family."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(size=(2, rows))
    group = rng.integers(0, 8, rows)
    f = np.sin(6 * a) + b**2 + 0.3 * rng.normal(size=8)[group]
    rate, share = np.exp(f), 1 / (1 + np.exp(-f))
    responses = {
        "gaussian": lambda: f + 0.3 * rng.normal(size=rows),
        "student_t": lambda: f + 0.3 * rng.standard_t(3, rows),
        "poisson": lambda: rng.poisson(rate),
        "negative_binomial": lambda: rng.poisson(rate * rng.gamma(3, 1 / 3, rows)),
        "bernoulli": lambda: (rng.uniform(size=rows) < share).astype(float),
        "binomial": lambda: rng.binomial(TRIALS, share),
        "gamma": lambda: rng.gamma(3, rate / 3),
        "beta": lambda: np.clip(rng.beta(10 * share, 10 - 10 * share), 1e-6, 1 - 1e-6),
    }
    columns = {"a": a, "b": b, "group": np.array(list("abcdefgh"))[group], "n": np.full(rows, TRIALS)}
    return columns | {"y": responses[family]()}


def timed(case, rows):
    """Print seconds of each stage."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: F401, before the clock starts

    import numpyro_gp as ngp

    family = "gaussian" if case == SURFACE else case
    formula = "y ~ te(a, b) + re(group)" if case == SURFACE else "y ~ s(a) + s(b) + re(group)"
    table, options = data(family, rows), {"trials": "n"} if family == "binomial" else {}
    few, found = {name: column[:200] for name, column in table.items()}, {}
    for stage, run in {
        "fit": lambda: found.update(fit=ngp.gam(formula, table, family, **options)),
        "summary": lambda: str(found["fit"].summary()),
        "figure": lambda: found["fit"].plot(),
        "quantiles": lambda: found["fit"].predict(few).quantiles([0.05, 0.5, 0.95]).block_until_ready(),
    }.items():
        start = time.process_time()
        run()
        print(stage, time.process_time() - start)


def least(case, rows, processes):
    """The row of a family."""
    command = [sys.executable, "-m", "examples.studies.speed.after_fit", "--one", case, "--rows", str(rows)]
    known, found = os.environ | {"OPENBLAS_NUM_THREADS": "1"}, []
    for _ in range(processes):
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=known)
        found.append(dict(line.split() for line in done.stdout.splitlines()))
    return {"family": case} | {stage: f"{min(float(one[stage]) for one in found):.2f}" for stage in STAGES}


def table(rows):
    """Markdown: seconds by family."""
    head = ["family", "fit", "summary", "figure", "predictions with quantiles"]
    return markdown(head, [[row["family"], *(row[stage] for stage in STAGES)] for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--one", choices=FAMILIES, help="this process alone, for the program itself")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.one:
        return timed(options.one, options.rows)
    cases, processes = (FAMILIES[:1], 1) if options.smoke else (FAMILIES, 3)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "after_fit.csv"
    rows = read(path)
    if not rows:
        from examples.tools.run_queue import version

        rows = [least(case, 60 if options.smoke else options.rows, processes) for case in cases]
        rows = [row | {"version": version()} for row in rows]
        save(path, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
