"""What a process holds in memory: after its imports, a fit of inducing inputs, predictions, and more fits.

    python -m examples.papers.beyond.memory  # two minutes of one core

Two processes: as the library is, and with what the compiler leaves behind kept, as the C library would.
"""

import argparse
import os
import subprocess
import sys
import threading
from pathlib import Path

from examples.tools.tables import markdown, read, save

STAGES = (
    "NumPy and SciPy",
    "JAX, NumPyro, Optax",
    "numpyro_gp",
    "the first array",
    "a fit",
    "predictions",
    "more fits",
)


def held():
    """MiB in memory, once nothing more is being given back."""
    if (library := sys.modules.get("numpyro_gp.programs.memory")) is not None:
        for thread in threading.enumerate():
            if thread.name == library.NAME:
                thread.join()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def looked_at(keep, steps, fits):
    """Print what is held at each stage."""
    import numpy as np

    print(held())
    import jax
    import jax.numpy as jnp
    import numpyro
    import optax

    print(held())
    import numpyro_gp as ngp
    from numpyro_gp.programs import memory

    print(held())
    if keep:
        memory.trim = lambda: None
    jnp.zeros(3) + 1
    print(held())
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (2000, 3)).astype(np.float32)
    y = (np.sin(X[:, 0]) + 0.1 * rng.normal(size=2000)).astype(np.float32)

    def model(X, y=None):
        lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
        variance = numpyro.sample("variance", ngp.starting.variance_prior())
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
        f = ngp.gp("f", ngp.kernels.RBF(variance, lengthscale), Z)
        with numpyro.plate("data", len(X), subsample_size=None if y is None else 256) as idx:
            ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])

    Z = X[:64]

    def fitted(seed):
        guide = ngp.AutoGP(model, {"f": ngp.guides.coupled()}, rest=numpyro.infer.autoguide.AutoNormal)
        svi = numpyro.infer.SVI(model, guide, optax.adam(0.01), numpyro.infer.Trace_ELBO())
        result = ngp.fit(jax.random.key(seed), svi, steps, X, y, progress=False)
        return ngp.Posterior.from_svi(model, guide, result.params)

    posterior = fitted(0)
    print(held())
    posterior.predict(jax.random.key(1), X).mean.block_until_ready()
    print(held())
    for seed in range(1, fits):
        fitted(seed)
    print(held())


def table(rows):
    """Markdown: MiB by stage, as it is and with what the compiler leaves."""
    lines = [[row["after"], row["MiB"], row["kept"]] for row in rows]
    return markdown(["after", "MiB", "with what the compiler leaves"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--one", choices=["given back", "kept"], help="this process alone, for the program itself")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.fits = 5, 2
    if options.one:
        return looked_at(options.one == "kept", options.steps, options.fits)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "memory.csv"
    rows = read(path)
    if not rows:
        from examples.tools.run_queue import version  # imports the library, which the processes look at

        columns = []
        for how in ("given back", "kept"):
            command = [sys.executable, "-m", "examples.papers.beyond.memory", "--one", how]
            command += ["--steps", str(options.steps), "--fits", str(options.fits)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            columns.append([float(word) for word in done.stdout.split()])
        numbers = zip(STAGES, *columns, strict=True)
        rows = [{"after": name, "MiB": f"{one:.0f}", "kept": f"{kept:.0f}"} for name, one, kept in numbers]
        rows = [row | {"version": version()} for row in rows]
        save(path, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
