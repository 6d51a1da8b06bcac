"""Kernels of a training step, by what they are for: keys and rows, the model with its gradient, the optimiser.

    python -m examples.studies.speed.step_kernels  # a minute of one core

A kernel is an instruction of the optimised program that runs; `peers.programs` counts them. A GPU starts each of them
by itself, and a compiler takes about as long for each. What one is for is read off its scope: the optimiser is outside
of the gradient, and what is inside of it, in no function of the model and in whole numbers draws a minibatch.
"""

import argparse
import re
from collections import Counter
from pathlib import Path

from examples.studies.peers.libraries.jobs import Job
from examples.studies.peers.libraries.problem import problem_of
from examples.studies.peers.libraries.programs import FREE, lowered, scoped
from examples.tools.tables import markdown, read, save

KEYS, PRODUCTS, PARTS, OTHERS, OPTIMISER, COPIES = (
    "random keys, and the rows of a minibatch",
    "products and factors",
    "slices and joins, of triangles most of all",
    "other arithmetic of the model and its gradient",
    "the optimiser",
    "copies",
)
KINDS = (KEYS, PRODUCTS, PARTS, OTHERS, OPTIMISER, COPIES)
JOINED = ("slice", "pad", "concatenate", "split", "transpose", "broadcast_in_dim")
STEPS = {"adam": "Adam", "natural": "natural gradients and Adam"}


def kind_of(operation, written, scope):
    """What an instruction is for, of its operation, the type of what it writes, and its scope."""
    is_real, last = re.match(r"\(?f\d", written.strip()) is not None, scope.rpartition("/")[2]
    is_of_gradient = "jvp(" in scope
    if operation == "copy":
        return COPIES
    if "threefry" in scope or written.strip().startswith("u32"):
        return KEYS
    if "jvp()/" in scope and (not is_real or last == "gather"):  # in no function of the model
        return KEYS
    if operation in ("dot", "custom-call"):
        return PRODUCTS
    if scope and not is_of_gradient:
        return OPTIMISER
    return PARTS if operation == "concatenate" or last in JOINED else OTHERS


def kinds(program):
    """How many kernels of a compiled program are of each kind."""
    found = Counter(kind_of(*one) for one in scoped(program) if one[0] not in FREE)
    return {kind: found[kind] for kind in KINDS}


def table(rows):
    """Markdown: kernels by kind and step."""
    names = dict.fromkeys(row["step"] for row in rows)
    count = {(row["kind"], row["step"]): int(row["kernels"]) for row in rows}
    lines = [[kind, *(str(count[kind, name]) for name in names)] for kind in KINDS]
    return markdown(["kernels of a step", *(STEPS[name] for name in names)], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--size", type=int, default=512, help="inducing inputs")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    steps, size = (("adam",), 16) if options.smoke else (STEPS, options.size)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "step_kernels.csv"
    rows = read(path)
    if not rows:
        from examples.tools.run_queue import version

        job = Job("programs", size, "float32", batch=64 if options.smoke else 1024)
        problem, known = problem_of(job, ""), {"inducing": size, "batch": job.batch, "version": version()}
        for step in steps:
            found = kinds(lowered(job, problem, step).compile().as_text())
            rows += [{"step": step, "kind": kind, "kernels": found[kind]} | known for kind in KINDS]
        save(path, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
