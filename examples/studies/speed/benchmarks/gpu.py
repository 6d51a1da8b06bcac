"""Steps and predictions where JAX finds a GPU, and GPyTorch's on the same card, in one process and in turn.

    python -m examples.studies.speed.benchmarks.gpu --out rows.csv [--only adam neighbours] [--quick]

Data, starts and models are those of `studies.peers.libraries`: 36 000 rows of 8 columns, batches of 1024, Matern-5/2.
Milliseconds of the wall clock, medians of blocks of steps, the first block, which compiles, left out. GPyTorch is the
faster one of its two strategies. Where PyTorch is missing, its columns are empty.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from examples.studies.neighbours.neighbours import model as by_neighbours
from examples.studies.peers.libraries import ours
from examples.studies.peers.libraries import problem as given
from examples.studies.peers.libraries.jobs import Job
from examples.studies.peers.libraries.timing import Stopwatch
from tests.precision import x64

COLUMNS = ("device", "dtype", "task", "size", "unit", "ours", "compile_seconds", "gpytorch", "ratio", "versions")
PEER = ("torch", "gpytorch")
BLOCKS, FITS, CHAIN_ROWS = 6, 10, 300
SIZES = (512, 1024)


def timed(run: Callable[[int], Any], units: int) -> tuple[float, float]:
    """Milliseconds of one unit, and seconds of the first call."""
    watch = Stopwatch()
    for _ in range(BLOCKS):
        watch(run, units)
    found = watch.summary(units)
    return 1e3 * found["seconds"], found["first"]


def steps(job: Job) -> Callable[[int], Any]:
    """Steps of SVI, as the comparison with other libraries makes them."""
    problem = given.problem_of(job, "")
    svi, keywords = ours.fit_of(problem, job, "")
    return ours.steps_of(svi, problem, job, keywords)[0]


def repeated(step: Callable[..., Any], state: Any, X: Any, y: Any) -> Callable[[int], Any]:
    """Steps ``(state, X, y) -> (state, loss)``, one after another in one program."""
    held = [state]
    scan = jax.jit(
        lambda state, X, y, count: jax.lax.scan(lambda state, _: step(state, X, y), state, None, count),
        static_argnums=3,
    )

    def run(count: int) -> None:
        held[0], losses = jax.block_until_ready(scan(held[0], X, y, count))
        assert np.isfinite(losses[-1]).all()

    return run


def side_by_side(job: Job) -> Callable[[int], Any]:
    """Steps of ten fits that one program makes; a unit is a step of all of them."""
    problem = given.problem_of(job, "")
    svi, keywords = ours.fit_of(problem, job, "")
    X, y = jnp.asarray(problem.X), jnp.asarray(problem.y)
    begin = jax.jit(jax.vmap(lambda key: svi.init(key, X, y, batch=job.batch, **keywords)))
    step = jax.vmap(lambda state, X, y: svi.update(state, X, y, batch=job.batch, **keywords), (0, None, None))
    return repeated(step, begin(jax.random.split(jax.random.key(0), FITS)), X, y)


def neighbours(job: Job) -> Callable[[int], Any]:
    """Steps of a regression by 32 neighbours: ``size`` is the batch."""
    problem = given.problem_of(job, "")
    near = ngp.neighbours(problem.X, 32, lengthscale=problem.X.shape[1] ** 0.5)
    svi = SVI(by_neighbours, AutoDelta(by_neighbours), optax.adam(given.ADAM), Trace_ELBO())
    y, key = jnp.asarray(problem.y), jax.random.key(0)
    start = jax.jit(lambda near, y: svi.init(key, near, y, batch=job.size))(near, y)
    return repeated(lambda state, near, y: svi.update(state, near, y, batch=job.size), start, near, y)


def chain(job: Job) -> Callable[[int], Any]:
    """Leapfrog steps of a chain of ``size`` rows: its density and slope, one after another."""
    problem = given.problem_of(job, "")
    X, y = jnp.asarray(problem.X[: job.size]), jnp.asarray(problem.y[: job.size])

    def model(X: Any, y: Any) -> None:
        scale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
        ngp.gp_regression("y", ngp.kernels.Matern52(1.0, scale), X, noise_variance=noise**2, obs=y)

    start = {"lengthscale": jnp.zeros(X.shape[1], X.dtype), "noise": jnp.zeros((), X.dtype)}
    slope = jax.grad(lambda point, X, y: numpyro.infer.util.potential_energy(model, (X, y), {}, point))

    @jax.jit
    def leapfrogs(point: Any, X: Any, y: Any, count: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            point, momentum = state
            momentum = jax.tree.map(lambda p, g: p - 0.01 * g, momentum, slope(point, X, y))
            return jax.tree.map(lambda x, p: x + 0.01 * p, point, momentum), momentum

        return jax.lax.fori_loop(0, count, step, (point, jax.tree.map(jnp.zeros_like, point)))

    return lambda count: jax.block_until_ready(leapfrogs(start, X, y, count))


def predictions(job: Job) -> Callable[[int], Any]:
    """Predictions of all new rows, which a unit is."""
    problem = given.problem_of(job, "")
    svi, keywords = ours.fit_of(problem, job, "")
    run, params = ours.steps_of(svi, problem, job, keywords)
    run(10)
    posterior, new = ngp.Posterior.from_svi(svi.model, svi.guide, params()), jnp.asarray(given.new_rows(job))

    def once(count: int) -> None:
        for _ in range(count):
            found = posterior.predict(jax.random.key(1), new, **keywords)
            jax.block_until_ready((found.mean, found.variance))

    return once


def theirs(job: Job, way: str) -> Callable[[int], Any]:
    """GPyTorch's steps or predictions, after a synchronisation of the card."""
    import gpytorch
    import torch

    from examples.studies.peers.libraries import by_gpytorch as peer

    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, job.dtype))
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    problem = given.problem_of(job, "")
    X, y = torch.as_tensor(problem.X), torch.as_tensor(problem.y)
    on_card = problem._replace(X=X, y=y, order=torch.as_tensor(problem.order), lengthscale=problem.lengthscale)
    model, likelihood = peer.Sparse(on_card, job, way), gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = given.NOISE_VARIANCE
    run = peer.steps_of(model, likelihood, on_card, job)
    if job.task != "predict":
        return lambda count: (run(count), wait())
    run(10)
    forget, predict = peer.prediction_of(model, likelihood)
    new = [torch.as_tensor(part) for part in given.parts(given.new_rows(job))]
    return lambda count: [(forget(), [predict(part) for part in new], wait()) for _ in range(count)]


def jobs() -> Iterator[tuple[Job, Callable[[Job], Callable[[int], Any]], str, bool]]:
    """Each job, who makes it, its unit, and whether GPyTorch has the same."""
    for size in SIZES:
        for task in ("adam", "natural"):
            yield Job(task, size), steps, "step", True
    yield Job("predict", 512), predictions, "100 000 rows", True
    yield Job("adam", 512), side_by_side, f"step of {FITS} fits", False
    yield Job("neighbours", 256), neighbours, "step", False
    yield Job("neighbours", 4096), neighbours, "step", False
    yield Job("chain", CHAIN_ROWS), chain, "leapfrog step", False


def row(job: Job, make: Callable[[Job], Callable[[int], Any]], unit: str, has_peer: bool) -> dict[str, Any]:
    """What one job took."""
    count = 2 if job.task == "predict" else job.steps
    with x64(job.dtype == "float64"):
        found, first = timed(make(job), count)
    others = []
    for way in ("", "large batch") if has_peer else ():
        try:
            others.append(timed(theirs(job, way), count)[0])
        except ModuleNotFoundError:
            break
        except Exception as error:
            print(f"GPyTorch {way} {job.task} {job.size} {job.dtype}: {type(error).__name__} {error}"[:300], flush=True)
    best = min(others, default=None)
    return {
        "device": jax.devices()[0].device_kind,
        "dtype": job.dtype,
        "task": job.task,
        "size": job.size,
        "unit": unit,
        "ours": round(found, 3),
        "compile_seconds": round(first, 1),
        "gpytorch": best and round(best, 3),
        "ratio": best and round(found / best, 3),
        "versions": ", ".join(f"{name} {version(name)}" for name in ("jax", "numpyro", *(PEER if others else ()))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.studies.speed.benchmarks.gpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="tasks")
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs")
    options = parser.parse_args()
    with options.out.open("w") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for dtype in options.dtypes:
            for job, make, unit, has_peer in jobs():
                if options.only and job.task not in options.only:
                    continue
                job = job._replace(dtype=dtype, steps=100)
                if options.quick:
                    job = job._replace(size=min(job.size, 64), batch=64, rows=5000, steps=3)
                try:
                    found = row(job, make, unit, has_peer)
                except Exception as error:
                    print(f"{dtype} {job.task} {job.size}: {type(error).__name__} {error}"[:600], flush=True)
                    continue
                print(" ".join(str(value) for value in found.values()), flush=True)
                writer.writerow(found)
                file.flush()


if __name__ == "__main__":
    main()
