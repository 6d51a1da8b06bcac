"""What is measured, by whom, and in which environment. Nothing but the standard library is needed here."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# What `install` puts into each environment. GPflow needs NumPy 1.26, JAX needs 2: they cannot share one.
ENVIRONMENTS = {
    "torch": ("torch==2.13.0", "gpytorch==1.15.2", "linear_operator==0.6.1", "numpy==2.4.6", "scikit-learn==1.9.1"),
    "tensorflow": (
        *("tensorflow-cpu==2.21.0", "gpflow==2.11.2", "gpflux==0.4.5", "tensorflow-probability==0.25.0"),
        *("tf-keras==2.21.0", "numpy==1.26.4", "scikit-learn==1.9.1"),
    ),
    "jax": (
        *("jax==0.10.2", "jaxlib==0.10.2", "numpyro==0.22.0", "gpjax==1.0.0", "tinygp==0.3.1"),
        *("equinox==0.13.8", "optax==0.2.8"),
    ),
}


class Place(NamedTuple):
    """A module that does jobs, and the environment that it runs in: "" is the one of the driver."""

    module: str
    environment: str = ""


PLACES = {
    "ours": Place("ours"),
    "GPflow": Place("by_gpflow", "tensorflow"),
    "GPflux": Place("by_gpflux", "tensorflow"),
    "GPJax": Place("by_gpjax", "jax"),
    "GPyTorch": Place("by_gpytorch", "torch"),
    "tinygp": Place("in_one_process", "jax"),  # and NumPyro by hand, and ours: with one JAX
    "our programs": Place("programs"),
}
SPARSE = (("ours", ""), ("GPflow", ""), ("GPJax", ""), ("GPyTorch", ""), ("GPyTorch", "large batch"))


class Job(NamedTuple):
    """What one process is asked for: it goes there as JSON, and comes back in each of its lines."""

    task: str
    size: int = 512  # inducing inputs
    dtype: str = "float64"
    table: str = "simulated"  # 36 000 rows of 8 columns, or the name of a data set
    steps: int = 40
    blocks: int = 10  # timed one by one: the first, which compiles, apart
    batch: int = 1024
    rows: int = 100_000  # of a prediction
    repeats: int = 5
    mean_points: int = 0  # of an orthogonal belief
    width: int = 5  # of a deep process


Parties = tuple[tuple[str, str], ...]  # names, and ways of theirs: the report takes the fastest way of each
STEPS = {128: (200, 20), 512: (40, 10), 1024: (14, 7), 2048: (4, 4)}


def jobs(tables: tuple[str, ...], density_steps: int) -> Iterator[tuple[Job, Parties]]:
    for task in ("adam", "natural"):
        for size in (128, 512, 1024):
            for dtype in ("float64", "float32"):
                yield Job(task, size, dtype, steps=STEPS[size][0], blocks=STEPS[size][1]), SPARSE
    for dtype in ("float64", "float32"):
        yield Job("predict", 512, dtype), SPARSE
        yield Job("latency", 512, dtype, repeats=300), SPARSE
    yield Job("adam", 2048, steps=4, blocks=4), SPARSE  # memory
    yield Job("predict", 2048, repeats=1), SPARSE
    yield Job("deep", 128, steps=60, blocks=10), (("ours", ""), ("GPflux", ""))
    for mean_points, size in ((300, 128), (1000, 300)):
        job = Job("orthogonal", size, steps=60, blocks=10, mean_points=mean_points)
        yield job, (("ours", ""), ("GPyTorch", ""))
    one_process = (("tinygp", ""),)
    yield Job("leapfrog, latent", 0, "float32", repeats=41), one_process
    for task in ("leapfrog, latent", "leapfrog, marginal", "SVGD, latent", "SVGD, marginal", "rows of a batch"):
        yield Job(task, 0, repeats=41, batch=1024), one_process
    yield Job("predict by hand", 512, rows=20_000), one_process
    for size in (300, 512):
        yield Job("floor", size, rows=0, repeats=41), one_process
    yield Job("floor", 512, rows=20_000, repeats=21), one_process
    for dtype in ("float64", "float32"):
        for size in (128, 512, 2048):
            yield Job("programs", size, dtype), (("our programs", ""),)
    for table in tables:
        job = Job("density", 512, table=table, steps=density_steps, blocks=density_steps // 100)
        yield job, (("ours", ""), ("ours", "conditional"), *SPARSE[1:])


def quick(job: Job) -> Job:
    """The same in seconds, with numbers that mean nothing: to see that all of it runs."""
    size, points = min(job.size, 64), min(job.mean_points, 50)
    few = job._replace(size=size, mean_points=points, steps=8, blocks=4, batch=min(job.batch, 128))
    few = few._replace(rows=min(job.rows, 10_000))
    return few._replace(repeats=3)


def python_of(place: Place, environments: Path | None) -> Path | None:
    """The interpreter of a place, where there is one."""
    if not place.environment:
        return Path(sys.executable)
    python = environments / place.environment / "bin" / "python" if environments else None
    return python if python and python.exists() else None
