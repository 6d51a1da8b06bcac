"""What a step of `ngp.gam` costs with many terms: 20, 100 and 200 curves on 50 000 rows, minibatches of 2048.

    python -m tests.benchmarks.many_terms --summary

Each number of terms has a process of its own, on one processor, in float32. Seconds are of the processor: of the
first two steps with all that they compile, and of a step after that: fifteen less five, by ten. Memory is the
largest that the process held. With ``--summary`` the summary and
the figure are timed too. Rows go to ``examples/results/gam_many_terms.csv``.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROWS, BATCH, RANK = 50_000, 2048, 20
OUT = Path(__file__).parent.parent.parent / "examples" / "results" / "gam_many_terms.csv"
FIELDS = ["terms", "rows", "first_seconds", "step_ms", "peak_mb", "summary_seconds", "figure_seconds"]


def measure(terms: int, summary: bool) -> dict[str, object]:
    """One row, in this process."""
    import jax
    import numpy as np
    import optax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    import numpyro_gp as ngp
    from numpyro_gp.posterior import Posterior

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(ROWS, terms))
    y = sum(np.sin(6 * X[:, d]) / (1 + d) for d in range(10)) + 0.3 * rng.normal(size=ROWS)
    table = {f"x{d}": X[:, d] for d in range(terms)} | {"y": y}
    model = ngp.gam.model("y ~ " + " + ".join(f"s(x{d})" for d in range(terms)), table)
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
    result, five = steps(7, result)  # each call traces the step once more
    result, fifteen = steps(22, result)
    row: dict[str, object] = {"terms": terms, "rows": ROWS, "first_seconds": f"{first:.1f}"}
    row["step_ms"] = f"{1000 * (fifteen - five) / 10:.0f}"
    row["peak_mb"] = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}"
    if summary:
        posterior = Posterior.from_svi(model, guide, result.params)
        fit = ngp.gam.Fit(model, posterior, guide, result, "svi", len(result.losses), (), jax.random.key(1))
        for name, run in (("summary_seconds", fit.summary), ("figure_seconds", fit.plot)):
            begin = clock()
            run()
            row[name] = f"{clock() - begin:.0f}"
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--terms", type=int, nargs="+", default=[20, 100, 200])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--here", action="store_true", help="measure in this process")
    options = parser.parse_args()
    if options.here:
        csv.DictWriter(sys.stdout, FIELDS).writerow(measure(options.terms[0], options.summary))
        return
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    lines = [",".join(FIELDS)]
    for terms in options.terms:
        command = [sys.executable, "-m", "tests.benchmarks.many_terms", "--here", "--terms", str(terms)]
        command += ["--summary"] * options.summary
        ran = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True, check=True)
        lines.append(ran.stdout.strip().splitlines()[-1])
        print(lines[-1], flush=True)
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
