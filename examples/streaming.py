"""A memory map larger than you like, fitted at constant memory: batches go to the device while the last step runs.

    python -m examples.streaming --rows 100000000

Rows are made once, in blocks, and written to a file; neither the fit nor the predictions hold more than a batch. The
figure shows the loss, and the memory of the process (without the pages of the file that the system keeps for it).
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.tables import save

COLUMNS, BLOCK, NOISE = 4, 100_000, 0.3
DIRECTION = np.array([1.0, -0.7, 0.4, 0.2], np.float32)


def model(X, y=None, *, Z):
    """Sparse regression; in a stream X is the batch, and its plate stands for all rows."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(jnp.float32(0.5), jnp.float32(0.5)))
    noise = numpyro.sample("noise", dist.LogNormal(jnp.float32(-1.0), jnp.float32(1.0)))
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, lengthscale), Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def write(path, rows, seed):
    """Inputs in the first columns and targets in the last, a block at a time."""
    file = np.memmap(path, np.float32, "w+", shape=(rows, COLUMNS + 1))
    for start in range(0, rows, BLOCK):
        rng, count = np.random.default_rng((seed, start)), min(BLOCK, rows - start)
        X = rng.normal(size=(count, COLUMNS)).astype(np.float32)
        file[start : start + count, :-1] = X
        file[start : start + count, -1] = np.sin(2 * X @ DIRECTION) + NOISE * rng.normal(size=count)
    file.flush()
    return np.memmap(path, np.float32, "r", shape=(rows, COLUMNS + 1))


def batches(table, size, memory, seed=0):
    """A function of the steps done, so that a fit can be resumed: pass after pass, pieces in an order of their own."""
    pieces = -(-len(table) // size)

    def source(step):
        while True:
            order = np.random.default_rng((seed, step // pieces)).permutation(pieces - 1)
            # A full piece first, and the short one last: every batch is filled up to the rows of the first.
            for piece in [*order, pieces - 1][step % pieces :]:
                rows = table[piece * size : (piece + 1) * size]
                memory.append(anonymous_memory())
                yield rows[:, :-1], rows[:, -1]
                step += 1

    return source


def anonymous_memory():
    """MiB of the process that are no pages of a file; NaN where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    sizes = [int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")]
    return sizes[0] if sizes else float("nan")


def draw(path, losses, memory, size):
    """Loss for each row, and memory, by step."""
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(6, 4.5), layout="constrained")
    above.plot(losses, linewidth=0.7)
    above.set_ylabel("loss per row")
    below.plot(memory, linewidth=0.9, label="process")
    below.axhline(size, color="grey", linestyle=":", label="file")
    below.set(xlabel="step", ylabel="MiB", ylim=(0, None))
    below.legend()
    figure.savefig(path, dpi=150)


def main(argv=None):
    """Write the rows, fit and predict in streams, save the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=None, help="one pass over the rows by default")
    parser.add_argument("--inducing", type=int, default=64)
    parser.add_argument("--out", default="examples/output")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(argv)
    if options.smoke:
        options.rows, options.batch, options.steps, options.inducing = 1000, 128, 12, 8
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "streaming.bin"
    table, memory = write(path, options.rows, seed=1), []
    steps = options.steps or -(-len(table) // options.batch)
    Z = jnp.asarray(np.array(table[: options.inducing, :-1]))
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.1), Trace_ELBO())
    start = time.perf_counter()
    source = batches(table, options.batch, memory)
    result = ngp.fit(jax.random.key(0), svi, steps, batches=source, num_data=len(table), Z=Z)
    seconds = time.perf_counter() - start
    posterior = result.posterior()
    pieces = [table[at : at + options.batch] for at in range(0, min(len(table), 20 * options.batch), options.batch)]
    chunks = posterior.predict(jax.random.key(1), (piece[:, :-1] for piece in pieces), Z=Z)
    errors = [np.mean((np.asarray(chunk.mean) - piece[:, -1]) ** 2) for chunk, piece in zip(chunks, pieces)]
    row = {
        "rows": len(table),
        "file_MiB": table.nbytes / 2**20,
        "steps": steps,
        "rows_a_second": steps * options.batch / seconds,
        "memory_MiB_at_half": memory[len(memory) // 2],
        "memory_MiB_at_end": memory[-1],
        "rmse": float(np.sqrt(np.mean(errors))),
    }
    save(folder / "streaming.csv", [row])
    draw(folder / "streaming.png", np.asarray(result.losses) / len(table), memory, table.nbytes / 2**20)
    path.unlink()
    for name, value in row.items():
        print(f"{name:20s} {value:,.4g}")
    print(f"The noise of the data is {NOISE}: an RMSE far above it says that the inducing points are too few,")
    print("a loss that still falls at the end that the steps are, and memory that grows that something holds batches.")


if __name__ == "__main__":
    main()
