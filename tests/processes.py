"""One of two processes that fit together: ``python -m tests.processes PORT PROCESS STEPS CHECKPOINT``; PORT 0 is alone."""

import os
import sys

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import numpyro_gp as ngp


def model(X, y=None, *, Z):
    """Looks at its data where it is traced: no process holds all of them."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


def main(port, process, steps, path):
    jax.config.update("jax_enable_x64", True)
    if port:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        waits = {"initialization_timeout": 60, "heartbeat_timeout_seconds": 10}
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, process, **waits)
    # Only now: it makes arrays, and processes meet before the first one is made.
    from tests.devices import KEY, X, Y, Z, natural, refusal

    data = X, Y
    if port:
        mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
        rows, half = NamedSharding(mesh, PartitionSpec("data")), slice(16 * process, 16 * process + 16)
        data = tuple(jax.make_array_from_process_local_data(rows, array[half]) for array in data)
    options = {"checkpoint": path, "resume": True, "checkpoint_every": 0.0, "chunk_size": 1, "progress": False}
    engine = natural(model, f=ngp.guides.coupled(natural=True))
    if port and os.path.exists(path):
        elsewhere = {**options, "checkpoint": path if process == 0 else f"{path}.not"}
        print("refused", refusal(lambda: ngp.fit(KEY, engine, steps, *data, Z=Z, **elsewhere)), flush=True)
    result = ngp.fit(KEY, engine, steps, *data, Z=Z, **options)
    streams(process, rows if port else None)
    print("losses", *np.asarray(result.losses), flush=True)


def streams(process, rows):
    """Each process gives its half of every batch; the one that is alone gives all of it."""
    from tests.devices import KEY, X, Y, Z, refusal, svi

    def run(parts):
        engine = svi(model)
        return ngp.fit(KEY, engine, 3, Z=Z, batches=parts, num_data=64, sharding=rows, progress=False)

    halves = [slice(at, at + 16) if rows is None else slice(at + 8 * process, at + 8 * process + 8) for at in (0, 16)]
    print("stream", *np.asarray(run([(X[half], Y[half]) for half in halves]).losses), flush=True)
    if rows is not None:
        print("unequal", refusal(lambda: run([(X[: 8 + process], Y[: 8 + process])])), flush=True)
        print("shorter", refusal(lambda: run([(X[:8], Y[:8]), (X[:7], Y[:7])])), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4])
