"""Rows of a line in time, beside tinygp: microseconds a row of a log marginal likelihood and its gradient.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false OMP_NUM_THREADS=1 python -m examples.studies.speed.line_speed

One process with a Matern kernel at random times, Gaussian noise, three hyper-parameters; ours by `ngp.line`, the other
by `tinygp.kernels.quasisep`, told that rows are sorted, both compiled, in turn in one process. Seconds are of the
processor, medians over seven calls each; "first" is the first call, with tracing and compilation. Memory is the
temporary memory of the compiled program. Five minutes of one core; where tinygp is not installed (``pip install
numpyro-gp[bench]``), ours alone.
"""

import argparse
import importlib.util
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

import numpyro_gp as ngp
from examples.tools.tables import markdown, read, save

CASES = [
    (kernel, precision, rows)
    for kernel in ("Matern32", "Matern52")
    for precision in ("float32", "float64")
    for rows in (1000, 10_000, 100_000, 1_000_000)
]
START = {"variance": 1.0, "lengthscale": 0.7, "noise": 0.3}


def ours(kernel, t):
    line = ngp.line(t)

    def density(values, y):
        def model():
            prior = getattr(ngp.kernels, kernel)(values["variance"], values["lengthscale"])
            ngp.gp_regression("y", prior, line, values["noise"] ** 2, obs=y)

        return numpyro.infer.util.log_density(model, (), {}, {})[0]

    return density


def of_tinygp(kernel, t):
    import tinygp

    def density(values, y):
        prior = getattr(tinygp.kernels.quasisep, kernel)(sigma=values["variance"] ** 0.5, scale=values["lengthscale"])
        noise = values["noise"] ** 2
        return tinygp.GaussianProcess(prior, jnp.asarray(t), diag=noise, assume_sorted=True).log_probability(y)

    return density


def timed(kernel, precision, size, repeats=7):
    """A row of the table: both libraries in turn at one size."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, size / 50, size))
    y = np.sin(t) + 0.3 * rng.normal(size=size)
    makers = {"ours": ours} | ({"tinygp": of_tinygp} if importlib.util.find_spec("tinygp") else {})
    with jax.enable_x64(precision == "float64"):
        values, y = {name: jnp.asarray(value) for name, value in START.items()}, jnp.asarray(y)
        calls, row = {}, {"kernel": kernel, "precision": precision, "rows": size}
        for name, make in makers.items():
            before = time.process_time()
            calls[name] = jax.jit(jax.value_and_grad(make(kernel, t))).lower(values, y).compile()
            value, _ = jax.block_until_ready(calls[name](values, y))
            row[f"first of {name}"] = round(time.process_time() - before, 2)
            row[f"MiB of {name}"] = round(calls[name].memory_analysis().temp_size_in_bytes / 2**20, 1)
            row[f"value of {name}"] = float(value)
        seconds = {name: [] for name in calls}
        for _ in range(repeats):
            for name, call in calls.items():
                before = time.process_time()
                jax.block_until_ready(call(values, y))
                seconds[name].append(time.process_time() - before)
        for name, each in seconds.items():
            row[f"microseconds of {name}"] = round(float(np.median(each)) / size * 1e6, 3)
    return row


def table(rows):
    """Markdown: both libraries by kernel, precision and number of rows."""
    lines = []
    for row in rows:
        digits = {"microseconds": 2, "MiB": 0, "first": 1}
        pairs = {of: [float(row[f"{of} of {name}"]) for name in ("ours", "tinygp")] for of in digits}
        ratio = pairs["microseconds"][0] / pairs["microseconds"][1]
        said = [", ".join(f"{value:.{digits[of]}f}" for value in pair) for of, pair in pairs.items()]
        lines.append([f"{row['kernel']}, {row['precision']}", row["rows"], said[0], f"{ratio:.2f}", *said[1:]])
    named = "microseconds: ours, tinygp", "ratio", "MiB: ours, tinygp", "first call in s: ours, tinygp"
    return markdown(["kernel", "rows", *named], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="one small size, to see that it runs")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "line_speed.csv"
    rows = read(path)
    done = {(row["kernel"], row["precision"], int(row["rows"])) for row in rows}
    for case in CASES[:1] if options.smoke else CASES:
        if case not in done:
            rows.append(timed(*case))
            save(path, rows)
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
