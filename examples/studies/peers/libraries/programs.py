"""Our compiled programs: kernels, temporary memory, the largest array, and the floor of their products.

A kernel is an instruction of the optimised program that runs: a fusion, a product, a call of LAPACK; copies are counted
apart. Those in the body of a loop count once, those of a choice on both sides. Those that are not in floating point
draw random numbers and rows. The floor has the operations that XLA counts, without those of LAPACK.
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np

import numpyro_gp as ngp
from examples.studies.peers.libraries import problem as given
from examples.studies.peers.libraries.ours import fit_of
from examples.studies.peers.libraries.timing import Report, Stopwatch

# What only names, groups or chooses values, and what runs other computations, whose instructions count themselves.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all"}
OPENED = re.compile(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$")
SHAPE = re.compile(r"\b[a-z]\w*\[([\d,]*)\]")
SCOPE = re.compile(r'op_name="([^"]*)"')


def scoped(program: str) -> list[tuple[str, str, str]]:
    """Operation, type and scope of every instruction that is no part of a kernel: where in Python it comes from."""
    name, found, inside = "", [], set()
    for line in program.splitlines():
        opened = OPENED.match(line)
        name = opened.group(1) if opened else name
        _, equals, right = line.partition(" = ")
        operation = re.search(r"\s([a-z][a-z\d-]*)\(", " " + right)
        if not equals or operation is None:
            continue
        scope = SCOPE.search(right)
        found.append((name, operation.group(1), right[: operation.start()], scope.group(1) if scope else ""))
        if operation.group(1) != "call":
            inside |= set(re.findall(r"(?:calls|to_apply|comparator)=%?([\w.-]+)", right))
    return [tuple(parts) for name, *parts in found if name not in inside]


def instructions(program: str) -> list[tuple[str, str]]:
    """Operation and type of every instruction that is no part of a kernel."""
    return [(operation, kind) for operation, kind, _ in scoped(program)]


def counts(program: str) -> dict[str, int]:
    run = [(operation, kind) for operation, kind in instructions(program) if operation not in FREE]
    floating = [re.match(r"\(?f\d", kind.strip()) is not None for operation, kind in run if operation != "copy"]
    return dict(kernels=len(floating), floating=sum(floating), copies=len(run) - len(floating))


def sizes(kind: str) -> list[int]:
    """How many numbers each array of a type has."""
    return [math.prod(int(n) for n in shape.split(",") if n) for shape in SHAPE.findall(kind)]


def largest(program: str) -> int:
    """Numbers of the largest array that a kernel writes."""
    written = [kind for operation, kind in instructions(program) if operation not in FREE]
    return max((size for kind in written for size in sizes(kind)), default=0)


def lowered(job, problem, what):
    """A step of training, or a prediction of as many new rows as a chunk has."""
    svi, keywords = fit_of(problem, job._replace(task="natural" if what == "predict" else what), "")
    X, y, key = jnp.asarray(problem.X), jnp.asarray(problem.y), jax.random.key(0)
    if what != "predict":
        # Not of shapes alone: a guide that saw no values looks at the model anew in each step, with a key of its own.
        state = svi.init(key, X, y, batch=job.batch, **keywords)
        return jax.jit(lambda state, X, y: svi.update(state, X, y, batch=job.batch, **keywords)).lower(state, X, y)
    params = svi.get_params(svi.init(key, X[: job.batch], y[: job.batch], **keywords))

    def predict(params, new):
        found = ngp.Posterior.from_svi(svi.model, svi.guide, params).predict(key, new, **keywords)
        return found.mean, found.variance

    return jax.jit(predict).lower(params, jax.ShapeDtypeStruct((8192, X.shape[1]), X.dtype))


def product_rate(dtype):
    """Floating point operations of a square product a second."""
    size, clock = 1024, Stopwatch()
    square, product = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), dtype), jax.jit(lambda a: a @ a)
    for _ in range(8):
        clock(lambda: jax.block_until_ready(product(square)))
    return 2 * size**3 / clock.summary()["cpu" if jax.default_backend() == "cpu" else "seconds"]


def main():
    report = Report("ours", "numpyro-gp", "jax", "numpyro")
    job = report.job
    jax.config.update("jax_enable_x64", job.dtype == "float64")
    problem, product = given.problem_of(job, report.folder), product_rate(job.dtype)
    for what in ("adam", "natural", "predict"):
        compiled = lowered(job, problem, what).compile()
        cost, text = compiled.cost_analysis(), compiled.as_text()
        cost = cost[0] if isinstance(cost, list) else cost
        rows = 8192 if what == "predict" else job.batch
        report.line(
            program=what,
            **counts(text),
            temporary=compiled.memory_analysis().temp_size_in_bytes / 2**20,
            largest=largest(text) / (rows * job.size),
            floor=cost.get("flops", 0.0) / product,
        )


if __name__ == "__main__":
    main()
