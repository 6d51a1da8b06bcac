"""What a step of `ngp.gam` costs with many terms, and a whole fit: 20, 100 and 200 curves on 50 000 rows.

    python -m examples.studies.speed.benchmarks.many_terms --whole

Each number of terms has a process of its own, on one processor, in float32. Seconds are of the processor: of the
first two steps in minibatches of 2048 with all that they compile, and of a step after that: fifty-five less five, by fifty.
With ``--whole``, in another process, a fit ends by its own rule; then come its summary, its figure as a file, and
predictions of 1000 new rows. Memory is the largest that the process of the whole fit held, without ``--whole`` that of
the steps. Rows go to ``examples/studies/gam/gam_many_terms.csv``.
"""

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS, BATCH, RANK = 50_000, 2048, 20
OUT = Path(__file__).parents[4] / "examples" / "studies" / "gam" / "gam_many_terms.csv"
FIELDS = ["terms", "rows", "first_seconds", "step_ms", "steps", "fit_seconds", "summary_seconds", "figure_seconds"]
FIELDS += ["prediction_seconds", "peak_mb"]


def simulated(terms, rng):
    """A table of uniform columns, ten of which matter, and its formula."""
    import numpy as np

    X = rng.uniform(size=(ROWS, terms))
    y = sum(np.sin(6 * X[:, d]) / (1 + d) for d in range(10)) + 0.3 * rng.normal(size=ROWS)
    table = {f"x{d}": X[:, d] for d in range(terms)} | {"y": y}
    return "y ~ " + " + ".join(f"s(x{d})" for d in range(terms)), table


def peak():
    """The most memory that this process held, in MB."""
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}"


def of_steps(terms: int) -> dict[str, object]:
    """What steps take, in this process."""
    import jax
    import numpy as np
    import optax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    import numpyro_gp as ngp

    model = ngp.gam.model(*simulated(terms, np.random.default_rng(0)))
    guide = ngp.AutoGP(model, {"f": ngp.guides.block_low_rank(RANK, natural=True)}, AutoNormal)
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.02), 0.1), Trace_ELBO())
    clock = time.process_time

    def steps(count: int, before: object) -> tuple[object, float]:
        begin = clock()
        found = ngp.fit(
            jax.random.key(0), svi, count, *model.arguments, batch=BATCH, resume=before or False, progress=False
        )
        return found, clock() - begin

    result, first = steps(2, None)
    result, few = steps(7, result)  # each call traces the step once more
    result, many = steps(62, result)
    return {"first_seconds": f"{first:.1f}", "step_ms": f"{1000 * (many - few) / 50:.0f}", "peak_mb": peak()}


def of_whole(terms: int) -> dict[str, object]:
    """What a fit takes to its own end, and what comes after it, in this process."""
    import numpy as np

    import numpyro_gp as ngp

    rng, row = np.random.default_rng(0), {}
    formula, table = simulated(terms, rng)
    new = {name: rng.uniform(size=1000) for name in table}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        begin = time.process_time()
        found = run()
        row[name] = f"{time.process_time() - begin:.1f}"
        print(name, row[name], file=sys.stderr, flush=True)
        return found

    fit = timed("fit_seconds", lambda: ngp.gam(formula, table))
    timed("summary_seconds", lambda: str(fit.summary()))
    with tempfile.TemporaryDirectory() as folder:
        timed("figure_seconds", lambda: fit.plot(path=Path(folder, "terms.png")))
    timed("prediction_seconds", lambda: np.asarray(fit.predict(new).mean))
    return row | {"steps": fit.steps, "peak_mb": peak()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--terms", type=int, nargs="+", default=[20, 100, 200])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--here", choices=["steps", "whole"], help="measure in this process")
    options = parser.parse_args()
    if options.here:
        print(json.dumps({"steps": of_steps, "whole": of_whole}[options.here](options.terms[0])))
        return
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    rows = []
    for terms in options.terms:
        row: dict[str, object] = {"terms": terms, "rows": ROWS}
        for part in ["steps"] + ["whole"] * options.whole:
            command = [
                sys.executable,
                "-m",
                "examples.studies.speed.benchmarks.many_terms",
                "--here",
                part,
                "--terms",
                str(terms),
            ]
            ran = subprocess.run(command, env=os.environ | flags, stdout=subprocess.PIPE, text=True, check=True)
            row |= json.loads(ran.stdout.strip().splitlines()[-1])
        rows.append(row)
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
